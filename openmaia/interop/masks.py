"""Converts between the masks of imported exemplars and activation maps.

An exemplar as MAIA and MILAN publish it has a mask at the size of its image, but no activation map. Our mask is the region
in which the upsampled map exceeds the unit's threshold. An imported mask is therefore converted to a map: the fraction of
each cell that the mask covers, scaled such that a half-covered cell has the threshold's value and a fully covered cell
approximately the exemplar's activation. Such a map reproduces the mask. It is not a measurement.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from openmaia.core.images import upsample
from openmaia.core.services import Map

_SIDE = 56
"""Largest number of cells per side of a map that is made from a mask.

Measured with masks of 224 x 224 pixels from maps of white noise, the worst case: the recovered mask has an IoU with the
original one of 0.98 for maps of 7 x 7 cells, 0.9 for 14 x 14 and 0.8 for 28 x 28. 0.2 to 3 % of the pixels differ."""

_MARGIN = 0.05
"""Minimum relative distance between a map's values and the threshold, so that rounding to float16 does not cross it."""


def normalize(mask: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
    """Converts masks of booleans, of 0 and 1, or of 0 to 255 to values from 0 to 1."""
    top = 255.0 if mask.max(initial=0) > 1 else 1.0
    return (mask / np.float32(top)).astype(np.float32)


def to_map(covered: npt.NDArray[np.float32], activation: float, threshold: float) -> Map:
    """Converts a mask to a map of at most _SIDE cells per side, from which `from_map` approximately recovers it.

    Args:
        covered: The mask with values from 0 to 1, shape (height, width).
        activation: The unit's activation on the exemplar.
        threshold: The unit's mask threshold.
    """
    height, width = (min(length, _SIDE) for length in covered.shape)
    share = upsample(covered, height, width)
    cells = share
    if share.shape != covered.shape:
        # Upsampling blurs small spots away. What is missing after the first attempt is added once.
        first = (upsample(share, *covered.shape) > 0.5).astype(np.float32)
        cells = np.clip(2 * share - upsample(first, height, width), -1, 2)
    span = max(activation - threshold, _MARGIN * max(abs(activation), abs(threshold))) or 1.0
    return (threshold + (2 * cells - 1) * span).astype(np.float32)


def from_map(small: Map | None, threshold: float, height: int, width: int) -> npt.NDArray[np.uint8]:
    """Returns the mask of an activation map, 0 or 1. It is 1 everywhere if the layer has no positions."""
    if small is None:
        return np.ones((height, width), dtype=np.uint8)
    return (upsample(small, height, width) > threshold).astype(np.uint8)


def estimate_threshold(activations: npt.NDArray[np.float64], lit: npt.NDArray[np.bool_]) -> float:
    """Estimates the threshold of a unit's masks from its exemplars.

    The mask of an exemplar is empty unless its activation exceeds the threshold. Let `upper` be the lowest activation with a
    non-empty mask, and `lower` the highest activation below `upper` with an empty mask. The first case that applies:

    - All masks are empty: the highest activation.
    - `lower` exists: the mean of `lower` and `upper`.
    - `upper` is positive: half of `upper`.
    - Otherwise: `upper` minus its distance to the highest activation, or minus a small margin if that is larger.

    Args:
        activations: Activations on the exemplars, shape (k,).
        lit: Whether each exemplar has a mask that is not empty, shape (k,).
    """
    if not lit.any():
        return float(activations.max())
    lowest = float(activations[lit].min())
    below = activations[~lit & (activations < lowest)]
    if below.size:
        return (lowest + float(below.max())) / 2
    return lowest / 2 if lowest > 0 else lowest - max(float(activations.max()) - lowest, abs(lowest) * _MARGIN, _MARGIN)
