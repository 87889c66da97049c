"""Histograms of units' activations with fixed, logarithmic bins.

The index of a bin consists of the sign, the exponent and the first six mantissa bits of a float32, so that one bit
shift finds it. Before that, each activation is divided by the scale of its unit: a power of two near the largest
activation of the unit on a sample of images. A histogram covers 16 octaves of either sign. The error of a quantile is
at most the width of a bin: 1/64 of the value, or about 2**-11 of the scale near zero.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

_OCTAVES = 16
"""Number of factors of two of magnitude that a histogram covers."""

STEPS = 64
"""Number of bins per octave."""

LOWEST = -11
"""Base-2 logarithm of the smallest scaled magnitude that is distinguished from zero. Those above 2**(LOWEST + _OCTAVES) are
counted in the outermost bin."""

_QUIETEST = 2.0**-12
"""Smallest scale of a unit, as a share of the largest magnitude in its layer. It is for units that are almost silent on
the sample: a class may have a probability of 1e-9 on all images of the sample and of 1 on a later one, far above the
largest magnitude that its histogram would distinguish."""

HALF = _OCTAVES * STEPS
"""Number of bins for values of one sign."""

BINS = 2 * HALF
ZERO = HALF
"""Index of the bin of zeros."""

_BLOCK = 1024
"""Number of units whose quantiles are estimated at a time."""

Counts = npt.NDArray[np.int32]
"""Shape (units, BINS). The first bin holds the most negative values."""

Values = npt.NDArray[np.float64]


def choose_scales(largest: Values) -> npt.NDArray[np.float32]:
    """Returns the scale of each unit, shape (units,): its value in `largest`, rounded down to a power of two.

    Values below _QUIETEST times the maximum over all units are first raised to this limit. A unit with 0 gets the scale 1.

    Args:
        largest: Largest magnitude of each unit of a layer on a sample of images, shape (units,).
    """
    raised = np.maximum(largest, largest.max(initial=0.0) * _QUIETEST)
    exponent = np.floor(np.log2(np.where(largest > 0, raised, 1.0)))
    return np.exp2(np.clip(exponent, -100, 100)).astype(np.float32)


def list_edges() -> Values:
    """Returns the edges of the bins in ascending order, for scaled activations, shape (BINS + 1,)."""
    code = np.arange(1, HALF + 1)
    upper = np.exp2(LOWEST + code // STEPS) * (1 + (code % STEPS) / STEPS)
    return np.concatenate([-upper[::-1], [0.0], upper])


def list_filled(
    counts: npt.NDArray[np.int32], scale: float, low: float, high: float
) -> tuple[Values, npt.NDArray[np.int64]]:
    """Returns the middles of the bins of a unit that contain a value, in ascending order, and the number of values in each.

    Args:
        counts: The histogram of the unit, shape (BINS,).
        scale: Its scale.
        low: Its lowest value, which no middle is below.
        high: Its highest value, which no middle exceeds.
    """
    filled = np.flatnonzero(counts)
    return find_middles(filled, scale, low, high), counts[filled].astype(np.int64)


def find_middles(bins: npt.NDArray[np.int64], scale: float, low: float, high: float) -> Values:
    """Returns the middles of bins with the given indices, between `low` and `high` (see `list_filled`)."""
    edges = np.clip(list_edges() * scale, low, high)
    # The first and the last bin hold everything beyond them, too.
    edges[0], edges[-1] = low, high
    return (edges[bins] + edges[bins + 1]) / 2


def estimate_quantiles(
    counts: Counts, scales: npt.NDArray[np.float32], low: Values, high: Values, wanted: Sequence[float]
) -> Values:
    """Estimates quantiles of each unit's activations by linear interpolation within the bins that contain them.

    Args:
        counts: Histograms, shape (units, BINS).
        scales: Shape (units,).
        low: Lower bounds of the result, shape (units,); -inf for none.
        high: Upper bounds of the result, shape (units,).
        wanted: The quantiles, each from 0 to 1.

    Returns:
        Shape (quantiles, units).
    """
    # In blocks, because cumulated counts take twice the memory of the histograms.
    blocks = [slice(first, first + _BLOCK) for first in range(0, len(counts), _BLOCK)]
    found = [_estimate(counts[each], scales[each], low[each], high[each], wanted) for each in blocks]
    return np.concatenate(found, axis=1) if found else np.zeros((len(wanted), 0))


def _estimate(
    counts: Counts, scales: npt.NDArray[np.float32], low: Values, high: Values, wanted: Sequence[float]
) -> Values:
    below = np.cumsum(counts, axis=1, dtype=np.int64)
    rank = np.array(wanted)[:, None] * np.maximum(below[:, -1] - 1, 0)
    found = [np.searchsorted(own, ranks, side="right") for own, ranks in zip(below, rank.T, strict=True)]
    index = np.minimum(np.array(found, dtype=np.int64).reshape(rank.T.shape).T, BINS - 1)
    rows = np.arange(len(counts))
    inside = np.maximum(counts[rows, index], 1)
    before = below[rows, index] - counts[rows, index]
    bounds = list_edges()
    left, right = (np.clip(bounds[at] * scales, low, high) for at in (index, index + 1))
    # The first and the last bin hold everything beyond them, too.
    left = np.where((index == 0) & np.isfinite(low), low, left)
    right = np.where((index == BINS - 1) & np.isfinite(high), high, right)
    return left + (right - left) * np.clip((rank - before + 0.5) / inside, 0, 1)


def bound_error(value: Values, scales: npt.NDArray[np.float32]) -> Values:
    """Returns the largest possible error of estimated quantiles, shape (units,): the width of their bins."""
    return np.maximum(np.abs(value) / STEPS, np.exp2(LOWEST) * scales * (1 + 1 / STEPS))
