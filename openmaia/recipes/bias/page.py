"""Writes two pages of the report: claimed biases with contrasting images, and the errors that biases cause."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from openmaia.core.components import stored_remark
from openmaia.recipes.bias.effects import BiasVerdict
from openmaia.recipes.bias.pairs import MatchedPair, PairSide
from openmaia.recipes.bias.study import BIAS_TESTS, FAILURES, classes_without_claim, read_tests
from openmaia.reporting.browser.pages import APPLICATIONS, render
from openmaia.reporting.browser.thumbnails import Thumbnails
from openmaia.reporting.figures.charts import value_strips
from openmaia.reporting.figures.style import svg
from openmaia.reporting.image_models import image_model
from openmaia.reporting.tables import make_rows
from openmaia.runs.run import InvestigationId, Run

_PAIRS = 6
"""Pairs of a card whose scores differ most in the claimed direction, and as many whose scores differ least."""
_SIDE = 144
_PAGE_BYTES = 6_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class BiasCard:
    """One claimed bias."""

    verdict: BiasVerdict
    page: str
    """Of the unit, relative to the folder report/ of the run."""
    strips: Markup
    """A chart of the scores."""
    strongest: Sequence[MatchedPair]
    weakest: Sequence[MatchedPair]


def write_pages(run: Run, verdicts: Sequence[BiasVerdict]) -> None:
    """Writes the page of claimed biases and, if failure modes are stored, their page to report/applications/ of the
    run.
    """
    pages = {row.investigation: row.page for row in make_rows(run, run.name, "units/")}
    failures = [
        {"name": test.name, "page": pages[test.investigation], "mode": mode, "wrong": wrong}
        for test in read_tests(run, FAILURES)
        for mode, wrong in zip(test.parts, test.images, strict=True)
    ]
    has_gallery = bool(run.artifacts(FAILURES))
    cards = sorted(_cards(run, verdicts, pages), key=lambda card: _order(card.verdict))
    silent = classes_without_claim(run)
    _write(run, "biases", cards=cards, silent=silent, has_gallery=has_gallery)
    if has_gallery:
        _write(run, "failure modes", "failures", sections=failures)


def _write(run: Run, page: str, template: str = "", **values: Any) -> None:
    config, thumbnails = run.config(), Thumbnails(_PAGE_BYTES)

    def thumbnail(side: PairSide) -> str:
        """Returns a data URI; empty if the page would exceed _PAGE_BYTES with it."""
        return thumbnails.uri(side.image, _SIDE)

    data = render(
        f"{template or page}.html.j2",
        "openmaia.recipes.bias",
        run=run.name,
        settings=config["bias"],
        generator=image_model(config["generator"], "generator"),
        backbone=config["backbone"]["kind"],
        backbone_remark=stored_remark(config["backbone"], "backbone"),
        thumbnail=thumbnail,
        **values,
    )
    run.files.write(f"report/{APPLICATIONS}/{page}.html", data)


def _order(verdict: BiasVerdict) -> tuple[bool, float]:
    return not verdict.supported, -abs(verdict.effect.claimed)


def _cards(run: Run, verdicts: Sequence[BiasVerdict], pages: Mapping[InvestigationId, str]) -> list[BiasCard]:
    cards: list[BiasCard] = []
    for test in read_tests(run, BIAS_TESTS):
        own = [verdict for verdict in verdicts if verdict.investigation == test.investigation]
        cards += [
            _card(verdict, images, pages[test.investigation]) for verdict, images in zip(own, test.images, strict=True)
        ]
    return cards


def _card(verdict: BiasVerdict, images: Sequence[PairSide], page: str) -> BiasCard:
    every = [MatchedPair(having=one, without=other) for one, other in zip(images[::2], images[1::2], strict=True)]
    pairs = [pair for pair in every if pair.is_sound]
    sign = verdict.effect.context.sign or (-1 if verdict.effect.score and verdict.effect.score.mean < 0 else 1)
    pairs.sort(key=lambda pair: -sign * pair.difference)
    groups = {"with": [pair.having.value for pair in pairs], "without": [pair.without.value for pair in pairs]}
    return BiasCard(
        verdict=verdict,
        page=page,
        strips=svg(value_strips(groups, first="with"), "Scores with and without the context"),
        strongest=pairs[:_PAIRS],
        weakest=pairs[_PAIRS:][-_PAIRS:],
    )
