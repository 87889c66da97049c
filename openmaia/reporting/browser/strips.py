"""Prepares the rows of a contact sheet: top exemplars of units, with outlines of the areas where they respond."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from PIL import Image

from openmaia.core.errors import StoreError
from openmaia.core.images import seen_part
from openmaia.core.services import Exemplar, UnitState
from openmaia.core.units import Unit
from openmaia.exemplars.store import ExemplarStore
from openmaia.reporting.browser.thumbnails import Thumbnails
from openmaia.reporting.browser.unit.pictures import MISSING, Picture, trace_frame, trace_map

STRIP_COLUMNS = 10
STRIP_SIDE = 96


@dataclass(frozen=True, slots=True, kw_only=True)
class ExemplarTile:
    """An exemplar, and the activation of the unit on it."""

    activation: float
    picture: Picture
    """The image, with an outline if the unit has a map."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExemplarStrip:
    """The top exemplars of a unit."""

    unit: Unit
    state: UnitState = "ok"
    """Whether the activations on the dataset are usable: ok, dead (all equal) or not finite."""
    threshold: float = 0.0
    """The activation above which an area is outlined."""
    top: float | None = None
    """The highest activation; None without exemplars."""
    tiles: tuple[ExemplarTile, ...] = ()
    damage: str = ""
    """Why the exemplars cannot be shown; empty if they can."""


def make_strips(store: ExemplarStore, units: Sequence[Unit], thumbnails: Thumbnails) -> Iterator[ExemplarStrip]:
    """Yields the row of each unit. Units are read singly to save memory."""
    for unit in units:
        try:
            yield _strip(store, unit, thumbnails)
        except (StoreError, ValueError) as error:  # an image that cannot be decoded is a ValueError
            yield ExemplarStrip(unit=unit, damage=str(error))


def _strip(store: ExemplarStore, unit: Unit, thumbnails: Thumbnails) -> ExemplarStrip:
    exemplars = store.read(unit)
    shown = exemplars.of_kind("top")[:STRIP_COLUMNS]
    return ExemplarStrip(
        unit=exemplars.unit,
        state=exemplars.state,
        threshold=exemplars.threshold,
        top=shown[0].activation if shown else None,
        tiles=tuple(_tile(exemplar, exemplars.threshold, thumbnails) for exemplar in shown),
    )


def _tile(exemplar: Exemplar, threshold: float, thumbnails: Thumbnails) -> ExemplarTile:
    image = Image.fromarray(exemplar.image.pixels)
    image.thumbnail((STRIP_SIDE, STRIP_SIDE))
    uri, outline = thumbnails.of(image), ""
    if exemplar.map is not None:
        outline = trace_map(exemplar.map, exemplar.box, exemplar.image.size, threshold)
    seen = trace_frame(seen_part(exemplar.image.size, exemplar.box), exemplar.image.size)
    picture = Picture(number=0, uri=uri, outline=outline, frame=seen) if uri else MISSING
    return ExemplarTile(activation=exemplar.activation, picture=picture)
