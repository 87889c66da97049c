"""Two pages of the report: a card for each claimed bias with the contrasting pictures, and what the classifier gets wrong."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from openmaia.apps.bias.effects import Verdict
from openmaia.apps.bias.run import examined
from openmaia.apps.bias.stored import FAILURES, Examined, Gallery, Shown, read_gallery
from openmaia.figures.charts import Strips, strips
from openmaia.images import Picture
from openmaia.report.pages import APPLICATIONS, application_page
from openmaia.report.rows import rows
from openmaia.report.thumbnails import Thumbnails
from openmaia.store.run import Owed, Run

PACKAGE = "openmaia.apps.bias"
CARDS, GALLERY = f"{APPLICATIONS}/biases.html", f"{APPLICATIONS}/failure modes.html"

PAIRS = 6
"""Pairs on a card: those of the largest differences in the claimed direction, and as many that say the least."""

SIDE = 144
PAGE_BYTES = 6_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Tile:
    """A picture. uri: "" where the page has no room for it. height: its score between 0 and 1 of the card."""

    uri: str
    shown: Shown


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """strongest, weakest: pairs (with, without) in the claimed direction. page: of the unit, below report/."""

    verdict: Verdict
    page: str
    strips: Strips
    strongest: tuple[tuple[Tile, Tile], ...]
    weakest: tuple[tuple[Tile, Tile], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mode:
    """found: as stored.Gallery has it."""

    name: str
    page: str
    found: Mapping[str, Any]
    tiles: tuple[Tile, ...]


def write_pages(run: Run, verdicts: Sequence[Verdict]) -> None:
    """report/applications/…, for the run's own report."""
    pages = {row.owed: row.page for row in rows(run, run.name, "units/")}
    thumbnails = Thumbnails(PAGE_BYTES)
    cards = [card for one in examined(run) for card in _cards(one, verdicts, pages, thumbnails)]
    order = sorted(cards, key=lambda card: (not card.verdict.supported, -abs(card.verdict.effect.claimed)))
    galleries = [
        read_gallery(data) for owed in sorted(run.all_beside(FAILURES)) if (data := run.beside(FAILURES, owed))
    ]
    config = run.config()
    facts: dict[str, Any] = {
        "run": run.name,
        "asked": config["bias"],
        "is_collage": config["generator"]["kind"] == "collage",
        "backbone": config["backbone"]["kind"],
    }
    silent = sorted({one.name for one in examined(run, light=True) if not one.effects})
    has_gallery = bool(galleries)
    page = application_page(PACKAGE, "biases.html.j2", cards=order, silent=silent, has_gallery=has_gallery, **facts)
    run.files.write(f"report/{CARDS}", page)
    if galleries:
        modes = _modes(galleries, pages, Thumbnails(PAGE_BYTES))
        run.files.write(f"report/{GALLERY}", application_page(PACKAGE, "failures.html.j2", modes=modes, **facts))


def _cards(one: Examined, verdicts: Sequence[Verdict], pages: Mapping[Owed, str], thumbnails: Thumbnails) -> list[Card]:
    own = [verdict for verdict in verdicts if verdict.owed == one.owed]
    return [_card(at, verdict, one, pages[one.owed], thumbnails) for at, verdict in enumerate(own)]


def _card(at: int, verdict: Verdict, one: Examined, page: str, thumbnails: Thumbnails) -> Card:
    shown = [picture for picture in one.shown if picture.context == at]
    pairs = [(a, b) for a, b in zip(shown[::2], shown[1::2], strict=True) if _is_sound(a) and _is_sound(b)]
    sign = verdict.effect.context.sign or (-1 if verdict.effect.score and verdict.effect.score.mean < 0 else 1)
    order = sorted(pairs, key=lambda pair: -sign * (pair[0].value - pair[1].value))
    weakest = order[PAIRS:][-PAIRS:]
    groups = {"with": [a.value for a, _ in pairs], "without": [b.value for _, b in pairs]}
    return Card(
        verdict=verdict,
        page=page,
        strips=strips(groups),
        strongest=_tiles(order[:PAIRS], thumbnails),
        weakest=_tiles(weakest, thumbnails),
    )


def _is_sound(one: Shown) -> bool:
    return one.there is True and not one.undrawn


def _tiles(pairs: Sequence[tuple[Shown, Shown]], thumbnails: Thumbnails) -> tuple[tuple[Tile, Tile], ...]:
    return tuple((_tile(one, thumbnails), _tile(other, thumbnails)) for one, other in pairs)


def _tile(one: Shown, thumbnails: Thumbnails) -> Tile:
    return Tile(uri=thumbnails.uri(Picture(data=one.data), SIDE), shown=one)


def _modes(galleries: Sequence[Gallery], pages: Mapping[Owed, str], thumbnails: Thumbnails) -> list[Mode]:
    return [
        Mode(
            name=gallery.name,
            page=pages[gallery.owed],
            found=found,
            tiles=tuple(_tile(one, thumbnails) for one in gallery.shown if one.context == at),
        )
        for gallery in galleries
        for at, found in enumerate(gallery.found)
    ]
