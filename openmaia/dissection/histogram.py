"""Histograms of activations whose bins are fixed beforehand: they add up to the same whatever the order.

A bin is what the sign, the exponent and the first six bits of the mantissa of a float32 say, so that sorting a value in
costs a shift. Relative to its unit's scale (a power of two, from a first sample) a histogram reaches over 16 octaves of
both signs. A quantile read from it is off by at most one bin: 1/64 of the value, or 2**-11 of the scale near zero.
"""

import numpy as np
import numpy.typing as npt
import torch

OCTAVES = 16
STEPS = 64
"""Bins per octave."""

LOWEST = -11
"""log2 of the smallest magnitude that is told from zero, in units of the scale; the largest is 2**(LOWEST + OCTAVES)."""

HALF = OCTAVES * STEPS
BINS = 2 * HALF
_SHIFT = 23 - STEPS.bit_length() + 1
_BASE = (127 + LOWEST) * STEPS

Counts = npt.NDArray[np.int32]
"""(units, BINS), from the most negative to the most positive."""

Values = npt.NDArray[np.float64]


def bins(values: torch.Tensor) -> torch.Tensor:
    """float32, divided by the scale -> bin indices, int32."""
    bits = values.contiguous().view(torch.int32)
    code = (bits & 0x7FFFFFFF).bitwise_right_shift_(_SHIFT).sub_(_BASE).clamp_(0, HALF - 1)
    # Negative numbers are counted backwards: x ^ -1 is -1 - x.
    return code.bitwise_xor_(bits >> 31).add_(HALF)


def scale(largest: Values) -> npt.NDArray[np.float32]:
    """(units,) largest magnitudes of a sample -> powers of two not above them; 1 for a unit that stayed silent."""
    exponent = np.floor(np.log2(np.where(largest > 0, largest, 1.0)))
    return np.exp2(np.clip(exponent, -100, 100)).astype(np.float32)


def edges() -> Values:
    """(BINS + 1,) in units of the scale."""
    code = np.arange(1, HALF + 1)
    upper = np.exp2(LOWEST + code // STEPS) * (1 + (code % STEPS) / STEPS)
    return np.concatenate([-upper[::-1], [0.0], upper])


def quantile(counts: Counts, scales: npt.NDArray[np.float32], low: Values, high: Values, q: float) -> Values:
    """(units,) The q-th quantile, linear within its bin. low, high: (units,) bounds that no value passes."""
    total = counts.sum(axis=1, dtype=np.int64)
    below = np.cumsum(counts, axis=1, dtype=np.int64)
    rank = q * np.maximum(total - 1, 0)
    index = np.minimum((below <= rank[:, None]).sum(axis=1), BINS - 1)
    rows = np.arange(len(counts))
    inside = np.maximum(counts[rows, index], 1)
    before = below[rows, index] - counts[rows, index]
    bounds = edges()
    left = np.clip(bounds[index] * scales, low, high)
    right = np.clip(bounds[index + 1] * scales, low, high)
    return left + (right - left) * np.clip((rank - before + 0.5) / inside, 0, 1)


def width(value: Values, scales: npt.NDArray[np.float32]) -> Values:
    """The largest error of a quantile of this value."""
    return np.maximum(np.abs(value) / STEPS, np.exp2(LOWEST) * scales * (1 + 1 / STEPS))
