"""A contact sheet: units by rows, their highest exemplars by columns, each as it is and darkened outside the unit's mask."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from PIL import Image

from openmaia.errors import StoreError
from openmaia.images import Pixels, darken_outside, upsample
from openmaia.services import Exemplar, UnitExemplars, UnitState
from openmaia.store.exemplars import ExemplarStore
from openmaia.units import Unit

UNITS = 64
"""Of one sheet at most: more cannot be looked at together, nor be kept in a page of some megabytes."""
COLUMNS = 10
SIDE = 96


@dataclass(frozen=True, slots=True, kw_only=True)
class Tile:
    """plain, masked: within SIDE x SIDE pixels. masked: None where the layer has no space, and nothing to mask."""

    activation: float
    plain: Image.Image
    masked: Image.Image | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Strip:
    """One unit. top: its highest activation, None without exemplars. damage: why it cannot be shown; the rest is empty
    then."""

    unit: Unit
    state: UnitState = "ok"
    threshold: float = 0.0
    top: float | None = None
    tiles: tuple[Tile, ...] = ()
    damage: str = ""


def strips(store: ExemplarStore, units: Sequence[Unit], columns: int = COLUMNS) -> Iterator[Strip]:
    """One per unit, in their order; read one after the other, so that a sheet is never in memory as a whole."""
    for unit in units:
        try:
            yield _strip(store.read(unit), columns)
        except (StoreError, ValueError) as error:  # a picture that cannot be decoded is a ValueError
            yield Strip(unit=unit, damage=str(error))


def _strip(found: UnitExemplars, columns: int) -> Strip:
    shown = found.of_kind("top")[:columns]
    return Strip(
        unit=found.unit,
        state=found.state,
        threshold=found.threshold,
        top=shown[0].activation if shown else None,
        tiles=tuple(_tile(exemplar, found.threshold) for exemplar in shown),
    )


def _tile(exemplar: Exemplar, threshold: float) -> Tile:
    pixels = exemplar.picture.pixels
    masked = None
    if exemplar.map is not None:
        mask = upsample(exemplar.map, *pixels.shape[:2]) > threshold
        masked = _small(darken_outside(pixels, mask))
    return Tile(activation=exemplar.activation, plain=_small(pixels), masked=masked)


def _small(pixels: Pixels) -> Image.Image:
    image = Image.fromarray(pixels)
    image.thumbnail((SIDE, SIDE))
    return image
