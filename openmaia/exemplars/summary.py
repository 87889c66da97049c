"""Statistics of the activations of a layer's units over the images processed so far. They can be added.

This module does without torch: a process that only adds what workers have found does not load it.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from openmaia.exemplars import histogram

LAST_IMAGE = 2**32 - 1
"""Largest number of an image."""

NO_IMAGE = 2**63 - 1
"""Stands for a bin without an image in `Summary.first`."""

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """Statistics of the activations of all units of a layer over a set of images."""

    k: int
    """Number of highest and of lowest activations that are kept per unit."""
    scales: npt.NDArray[np.float32]
    """Histogram scales, shape (units,)."""
    positions: histogram.Counts
    """Histograms of the values at counted positions (see `accumulator`)."""
    maxima: histogram.Counts
    """Histograms of the activations on images."""
    sums: Floats
    """Shape (5, units). Over the counted positions: the values, their squares, and the number of positive values. Over images:
    the activations and their squares."""
    seen: int
    """Number of images."""
    positions_seen: int
    """Number of counted positions per unit, over all images."""
    highest: Ints
    """The highest activations in descending order, shape (units, at most k): `accumulator.find_codes` in the high 32 bits, and
    LAST_IMAGE minus the number of the image in the low ones."""
    lowest: Ints
    """The lowest activations in ascending order, with the numbers of the images in the low bits."""
    first: Ints
    """For each bin of `maxima`, of all images in it, that with the smallest number, which is as good as random. The number is
    in the high 32 bits, `accumulator.find_codes` of the activation in the low ones; NO_IMAGE without an image."""
    broken: npt.NDArray[np.bool_]
    """Whether a unit had a value that was NaN or infinite, shape (units,)."""
    sampled: dict[int, npt.NDArray[np.float32]]
    """Activations of all units, shape (units,), by image number, for a random sample of the dataset."""

    def __add__(self, other: "Summary") -> "Summary":
        return Summary(
            k=self.k,
            scales=self.scales,
            positions=self.positions + other.positions,
            maxima=self.maxima + other.maxima,
            sums=self.sums + other.sums,
            seen=self.seen + other.seen,
            positions_seen=self.positions_seen + other.positions_seen,
            highest=np.sort(np.concatenate([self.highest, other.highest], axis=1), axis=1)[:, ::-1][:, : self.k],
            lowest=np.sort(np.concatenate([self.lowest, other.lowest], axis=1), axis=1)[:, : self.k],
            first=np.minimum(self.first, other.first),
            broken=self.broken | other.broken,
            sampled=self.sampled | other.sampled,
        )

    @property
    def top(self) -> tuple[Floats, Ints]:
        """The highest activations, rounded, and the numbers of their images, both of shape (units, at most k)."""
        return _values(self.highest >> 32), LAST_IMAGE - (self.highest & LAST_IMAGE)

    @property
    def bottom(self) -> tuple[Floats, Ints]:
        """The lowest activations, rounded, and the numbers of their images, both of shape (units, at most k)."""
        return _values(self.lowest >> 32), self.lowest & LAST_IMAGE

    def level_images(self, unit: int) -> tuple[Floats, Ints]:
        """Returns activations of a unit, rounded, and the numbers of their images: one from each filled bin."""
        codes = self.first[unit][self.first[unit] != NO_IMAGE]
        return _values(codes & LAST_IMAGE), codes >> 32


Summaries = dict[str, Summary]
"""Statistics by layer."""


def add(one: Summaries, other: Summaries) -> Summaries:
    """Returns the statistics over two sets of images."""
    return {layer: one[layer] + other[layer] for layer in one}


def _values(codes: Ints) -> Floats:
    """Returns the values of which `accumulator.find_codes` returned the codes, rounded."""
    narrow = codes.astype(np.int32)
    return round_values(np.where(narrow >= 0, narrow, narrow ^ 0x7FFFFFFF).view(np.float32).astype(np.float64))


def round_values(values: Floats) -> Floats:
    """Rounds to 5 significant digits, like the activations that a target returns for single images."""
    with np.errstate(divide="ignore", invalid="ignore"):
        digits = np.where(values == 0, 0, np.floor(np.log10(np.abs(values))))
    factor = 10.0 ** (4 - digits)
    return np.where(np.isfinite(values), np.round(values * factor) / factor, values)
