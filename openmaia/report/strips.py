"""Units of a contact sheet as a page shows them: pictures as data URIs, units with links."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from openmaia.figures.sheets import Strip, Tile
from openmaia.report.thumbnails import Thumbnails
from openmaia.services import UnitState
from openmaia.units import Unit


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownTile:
    """plain, masked: data URIs, "" where the page has no room left; masked is None where there is nothing to mask."""

    activation: float
    plain: str
    masked: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownStrip:
    """href: of the unit's own page, "" for none. The rest as in figures.sheets.Strip."""

    unit: Unit
    href: str
    state: UnitState
    threshold: float
    top: float | None
    tiles: tuple[ShownTile, ...]
    damage: str


def shown(strips: Iterable[Strip], thumbnails: Thumbnails, links: Mapping[Unit, str]) -> list[ShownStrip]:
    def tile(one: Tile) -> ShownTile:
        masked = None if one.masked is None else thumbnails.of(one.masked)
        return ShownTile(activation=one.activation, plain=thumbnails.of(one.plain), masked=masked)

    return [
        ShownStrip(
            unit=strip.unit,
            href=links.get(strip.unit, ""),
            state=strip.state,
            threshold=strip.threshold,
            top=strip.top,
            tiles=tuple(tile(one) for one in strip.tiles),
            damage=strip.damage,
        )
        for strip in strips
    ]
