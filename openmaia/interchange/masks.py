"""Published masks as activation maps, and back.

A published exemplar has a mask at the size of its picture and no map. Our exemplars have a map, and their mask is where
the enlarged map exceeds the unit's threshold. So a map is made for each mask: the share of a cell that the mask covers,
scaled such that a half-covered cell is at the threshold and a covered one at about the exemplar's activation. Such a map shows
the mask; it is no measurement.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from openmaia.images import upsample
from openmaia.services import Map

SIDE = 56
"""Cells per side of a map that is made. Measured at 224 pixels, the worst case, masks of white noise: of a 7 x 7 map the
mask comes back with an overlap (IoU) of 0.98, of 14 x 14 with 0.9, of 28 x 28 with 0.8; 0.2 to 3 % of the pixels differ."""

FLAT = 0.05
"""Least distance of a map from its threshold, relative to both: kept in half precision, it has to stay on its side."""


def coverage(mask: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
    """Any mask (..., height, width), of bool, 0 and 1, or 0 to 255 -> 0 to 1."""
    top = 255.0 if mask.max(initial=0) > 1 else 1.0
    return (mask / np.float32(top)).astype(np.float32)


def to_map(covered: npt.NDArray[np.float32], activation: float, threshold: float) -> Map:
    """covered: (height, width), 0 to 1. The result is as large, but at most SIDE cells per side."""
    height, width = (min(length, SIDE) for length in covered.shape)
    share = upsample(covered, height, width)
    cells = share
    if share.shape != covered.shape:
        # Enlarging blurs small spots away: what the first try lacks is added once.
        lit = (upsample(share, *covered.shape) > 0.5).astype(np.float32)
        cells = np.clip(2 * share - upsample(lit, height, width), -1, 2)
    span = max(activation - threshold, FLAT * max(abs(activation), abs(threshold))) or 1.0
    return (threshold + (2 * cells - 1) * span).astype(np.float32)


def from_map(small: Map | None, threshold: float, height: int, width: int) -> npt.NDArray[np.uint8]:
    """1 where the unit fired; everywhere, where its layer has no space."""
    if small is None:
        return np.ones((height, width), dtype=np.uint8)
    return (upsample(small, height, width) > threshold).astype(np.uint8)


def estimate(activations: npt.NDArray[np.float64], lit: npt.NDArray[np.bool_]) -> float:
    """The threshold of a unit from its exemplars, where nobody has written it down.

    activations: (k,). lit: (k,), whether the exemplar's mask holds anything. A lit mask means an activation above the
    threshold and an empty one an activation that is not. Between those two the middle is taken. Where every mask is
    lit, all that is known is an upper bound, and half of it is taken (or, below zero, as far below it as the strongest
    exemplar is above it).
    """
    if not lit.any():
        return float(activations.max())
    lowest = float(activations[lit].min())
    below = activations[~lit & (activations < lowest)]
    if below.size:
        return (lowest + float(below.max())) / 2
    return lowest / 2 if lowest > 0 else lowest - max(float(activations.max()) - lowest, abs(lowest) * FLAT, FLAT)
