"""Where a unit responds against where a judge sees what its labels name, over all positions of the judged pictures."""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from openmaia.evaluate.statistics import Values
from openmaia.images import Picture, upsample
from openmaia.services import Activation

Region = npt.NDArray[np.bool_]
"""(height, width) over the whole picture, in as many steps as the judge likes."""


@runtime_checkable
class Locator(Protocol):
    """A judge that also knows where."""

    def locate(self, pictures: Sequence[Picture], labels: Sequence[str]) -> list[Region]:
        """For each picture where any of the labels is; empty regions where none is."""
        ...


def mask_iou(pictures: Sequence[Picture], regions: Sequence[Region], answers: Sequence[Activation], weight: Values) -> float | None:  # fmt: skip
    """Intersection over union of the regions and of the unit's maps as degrees of membership, over all positions that the
    network saw: the sum of the lesser over the sum of the greater (Ruzicka's similarity), each picture by its weight.

    A map is enlarged to its region as for a mask that is shown. Degrees run from 0 at the median of all positions to 1 at the
    highest, so that no threshold is chosen. None for a layer without maps, where nothing is located, or for a constant
    unit.
    """
    values: list[Values] = []
    inside: list[Values] = []
    weights: list[Values] = []
    for picture, region, answer, each in zip(pictures, regions, answers, weight, strict=True):
        if answer.map is None:
            return None
        seen = seen_part(picture, region, answer)
        values.append(upsample(answer.map, *seen.shape).astype(np.float64).ravel())
        inside.append(seen.ravel().astype(np.float64))
        weights.append(np.full(seen.size, each / seen.size))
    return graded(np.concatenate(inside), np.concatenate(values), np.concatenate(weights)) if values else None


def seen_part(picture: Picture, region: Region, answer: Activation) -> Region:
    """The part of a region that the network saw: it may have cut off the picture's rim. At least one position."""
    width, height = picture.size
    rows, columns = region.shape
    left, top, right, bottom = answer.box
    x1, x2 = (min(max(round(x / width * columns), 0), columns) for x in (left, right))
    y1, y2 = (min(max(round(y / height * rows), 0), rows) for y in (top, bottom))
    x1, y1 = min(x1, columns - 1), min(y1, rows - 1)
    return region[y1 : max(y2, y1 + 1), x1 : max(x2, x1 + 1)]


def graded(inside: Values, values: Values, weight: Values) -> float | None:
    """inside: 0 or 1 for each position."""
    order = np.argsort(values)
    total = np.cumsum(weight[order])
    low = float(values[order][np.searchsorted(total, 0.5 * total[-1])])
    high = float(values.max())
    if not high > low or not inside.any():
        return None
    degree = np.clip((values - low) / (high - low), 0.0, 1.0)
    return float((weight * np.minimum(inside, degree)).sum() / (weight * np.maximum(inside, degree)).sum())
