"""Writes two pages of the report: claimed biases with contrasting images, and the errors that biases cause."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from openmaia.core.components import stored_remark
from openmaia.core.images import EncodedImage
from openmaia.recipes.bias.effects import BiasVerdict
from openmaia.recipes.bias.run import classes_without_claim, read_tests
from openmaia.recipes.bias.stored import BIAS_TESTS, FAILURES, StoredImage, StoredTest
from openmaia.reporting.browser.pages import APPLICATIONS, render
from openmaia.reporting.browser.thumbnails import Thumbnails
from openmaia.reporting.figures.charts import value_strips
from openmaia.reporting.figures.style import svg
from openmaia.reporting.image_models import image_model
from openmaia.reporting.tables import make_rows
from openmaia.runs.run import InvestigationId, Run

_PACKAGE = "openmaia.recipes.bias"
_CARDS, _GALLERY = f"{APPLICATIONS}/biases.html", f"{APPLICATIONS}/failure modes.html"

_PAIRS = 6
"""Pairs of a card whose scores differ most in the claimed direction, and as many whose scores differ least."""
_SIDE = 144
_PAGE_BYTES = 6_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageTile:
    """An image of a page."""

    uri: str
    """A data URI; empty if the page would exceed _PAGE_BYTES with it."""
    image: StoredImage


TilePair = tuple[ImageTile, ImageTile]
"""With and without the context."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BiasCard:
    """One claimed bias."""

    verdict: BiasVerdict
    page: str
    """Of the unit, relative to the folder report/ of the run."""
    strips: Markup
    """A chart of the scores."""
    strongest: tuple[TilePair, ...]
    """The pairs whose scores differ most in the claimed direction."""
    weakest: tuple[TilePair, ...]
    """The pairs whose scores differ least in it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureSection:
    """One failure mode."""

    name: str
    """The class."""
    page: str
    """Of the unit, relative to the folder report/ of the run."""
    mode: Mapping[str, Any]
    """The fields of the `FailureMode`, without its images."""
    tiles: tuple[ImageTile, ...]


def write_pages(run: Run, verdicts: Sequence[BiasVerdict]) -> None:
    """Writes the page of claimed biases and, if failure modes are stored, their page to report/applications/ of the
    run.
    """
    pages = {row.investigation: row.page for row in make_rows(run, run.name, "units/")}
    failures = list(read_tests(run, FAILURES))
    config = run.config()
    facts: dict[str, Any] = {
        "run": run.name,
        "settings": config["bias"],
        "generator": image_model(config["generator"], "generator"),
        "backbone": config["backbone"]["kind"],
        "backbone_remark": stored_remark(config["backbone"], "backbone"),
    }
    thumbnails = Thumbnails(_PAGE_BYTES)
    cards = [card for test in read_tests(run, BIAS_TESTS) for card in _cards(test, verdicts, pages, thumbnails)]
    cards.sort(key=lambda card: (not card.verdict.supported, -abs(card.verdict.effect.claimed)))
    facts_of_cards = {"cards": cards, "silent": classes_without_claim(run), "has_gallery": bool(failures)}
    run.files.write(f"report/{_CARDS}", render("biases.html.j2", _PACKAGE, **facts_of_cards, **facts))
    if failures:
        thumbnails = Thumbnails(_PAGE_BYTES)
        sections = [section for test in failures for section in _sections(test, pages, thumbnails)]
        page = render("failures.html.j2", _PACKAGE, sections=sections, **facts)
        run.files.write(f"report/{_GALLERY}", page)


def _cards(
    test: StoredTest, verdicts: Sequence[BiasVerdict], pages: Mapping[InvestigationId, str], thumbnails: Thumbnails
) -> list[BiasCard]:
    own = [verdict for verdict in verdicts if verdict.investigation == test.investigation]
    return [
        _card(verdict, [image for image in test.images if image.part == part], pages[test.investigation], thumbnails)
        for part, verdict in enumerate(own)
    ]


def _card(verdict: BiasVerdict, images: Sequence[StoredImage], page: str, thumbnails: Thumbnails) -> BiasCard:
    pairs = [(a, b) for a, b in zip(images[::2], images[1::2], strict=True) if a.is_sound and b.is_sound]
    sign = verdict.effect.context.sign or (-1 if verdict.effect.score and verdict.effect.score.mean < 0 else 1)
    pairs.sort(key=lambda pair: -sign * (pair[0].value - pair[1].value))

    def tiles(pairs: Sequence[tuple[StoredImage, StoredImage]]) -> tuple[TilePair, ...]:
        return tuple((_tile(one, thumbnails), _tile(other, thumbnails)) for one, other in pairs)

    groups = {"with": [a.value for a, _ in pairs], "without": [b.value for _, b in pairs]}
    return BiasCard(
        verdict=verdict,
        page=page,
        strips=svg(value_strips(groups, first="with"), "Scores with and without the context"),
        strongest=tiles(pairs[:_PAIRS]),
        weakest=tiles(pairs[_PAIRS:][-_PAIRS:]),
    )


def _sections(test: StoredTest, pages: Mapping[InvestigationId, str], thumbnails: Thumbnails) -> list[FailureSection]:
    return [
        FailureSection(
            name=test.name,
            page=pages[test.investigation],
            mode=mode,
            tiles=tuple(_tile(image, thumbnails) for image in test.images if image.part == part),
        )
        for part, mode in enumerate(test.parts)
    ]


def _tile(image: StoredImage, thumbnails: Thumbnails) -> ImageTile:
    return ImageTile(uri=thumbnails.uri(EncodedImage(data=image.data), _SIDE), image=image)
