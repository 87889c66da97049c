"""Ranks units by how strongly they respond to a picture, each beside the images of its dataset."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from openmaia.core.images import EncodedImage
from openmaia.core.services import LayerProbe, Target, UnitExemplars
from openmaia.core.units import Unit


@dataclass(frozen=True, slots=True, kw_only=True)
class PictureResponse:
    """How strongly a unit responds to a picture."""

    unit: Unit
    activation: float
    """As `UnitActivation.value`."""
    percent: float
    """See `UnitExemplars.percent_below`."""
    z: float | None
    """See `UnitExemplars.z_score`."""


def rank_units(target: Target, image: EncodedImage, known: Mapping[Unit, UnitExemplars]) -> list[PictureResponse]:
    """Measures units on a picture, and returns them with the strongest response first.

    Activations of two units cannot be compared. The order is that of the percentage of dataset images that excite a unit
    less; of equal ones, such as those above all images, that of the distance from the unit's mean in its standard deviations.

    Args:
        target: Measures each layer once.
        known: The units, with their statistics on the dataset; exemplars are not needed. Units without statistics, with
            equal activations on all images, or with activations that are not finite, are left out.

    Raises:
        ServiceError: The target failed.
    """
    layers = list(dict.fromkeys(unit.layer for unit in known))
    found = target.respond([LayerProbe(layer=layer, image=image) for layer in layers])
    values = dict(zip(layers, found, strict=True))
    responses = [
        each
        for unit, statistics in known.items()
        for each in _response(unit, float(values[unit.layer][unit.index]), statistics)
    ]
    return sorted(responses, key=lambda each: (-each.percent, -(each.z or 0.0), each.unit))


def _response(unit: Unit, activation: float, statistics: UnitExemplars) -> Iterator[PictureResponse]:
    percent = statistics.percent_below(activation)
    if percent is not None and statistics.state == "ok" and math.isfinite(activation):
        yield PictureResponse(unit=unit, activation=activation, percent=percent, z=statistics.z_score(activation))
