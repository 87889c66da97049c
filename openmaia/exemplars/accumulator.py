"""Collects the statistics of a layer on the device that holds the responses."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, partial

import numpy as np
import numpy.typing as npt
import torch

from openmaia.exemplars.histogram import BINS, HALF, LOWEST, STEPS, ZERO
from openmaia.exemplars.sparse import Responses, SparseResponses
from openmaia.exemplars.summary import LAST_IMAGE, NO_IMAGE, Summary

_POSITIONS = 49
"""Largest number of positions per activation map that are counted. They are evenly spaced, and their offset depends on the
image. Quantiles over n images rest on up to 49 n positions. The maximum of a map is taken over all its positions."""

_BLOCK = 32
"""Smallest number of images whose activations are added to the statistics together."""

_VALUES = 2**19
"""Number of values that are processed together, so that intermediate results stay in the processor's cache."""

_VALUES_GPU = 2**23
"""The same for a GPU, whose memory the intermediate results of so many values fill by half a gigabyte."""

_SHIFT = 23 - STEPS.bit_length() + 1
_BASE = (127 + LOWEST) * STEPS


@dataclass(frozen=True, slots=True)
class NumberedImages:
    """Some images of a batch, for `Accumulator.take`."""

    numbers: Sequence[int]
    on_device: torch.Tensor
    """The numbers on the device of the responses, int64 of shape (images,)."""
    starts: torch.Tensor
    """Offsets of the counted positions (see `Order.start`) on this device, int64 of shape (images,)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Waiting:
    """What is still to be added to the statistics."""

    images: NumberedImages
    highest: torch.Tensor
    """Activations on the images, shape (units, images)."""
    counted: torch.Tensor
    """Values at counted positions, shape (units, values); of sparse responses those that are not 0, shape (values,)."""
    units: torch.Tensor | None
    """The unit of each value of sparse responses, shape (values,)."""
    positions: int
    """Number of counted positions per unit, over the images."""


class Accumulator:
    """Collects the summary of a layer on the device that holds the responses.

    Args:
        scales: Histogram scales of the units, shape (units,).
        k: Number of highest and of lowest activations to keep per unit.
        sample: Numbers of the images whose activations are kept for all units.
        device: The device that holds the responses.
    """

    def __init__(self, scales: npt.NDArray[np.float32], k: int, sample: frozenset[int], device: torch.device):
        self._scales, self._k, self._sample = scales, k, sample
        units = len(scales)
        zeros = partial(torch.zeros, device=device)
        self._inverse = torch.from_numpy(1 / scales).to(device)[:, None]
        self._positions = zeros(units * BINS, dtype=torch.int32)
        self._maxima = zeros(units * BINS, dtype=torch.int32)
        self._sums = zeros(5, units, dtype=torch.float64)
        self._broken = zeros(units, dtype=torch.bool)
        self._highest = self._lowest = zeros(units, 0, dtype=torch.int64)
        self._first = torch.full((units * BINS,), NO_IMAGE, dtype=torch.int64, device=device)
        self._sampled: list[tuple[list[int], torch.Tensor]] = []
        self._seen = self._positions_seen = 0
        # Nothing is copied from the device before `total`, so that the network does not wait.
        self._waiting: list[_Waiting] = []
        self._block = _VALUES_GPU if device.type == "cuda" else _VALUES

    def take(self, images: NumberedImages, responses: Responses) -> None:
        """Adds the responses of the layer to some images."""
        is_sparse = isinstance(responses, SparseResponses)
        self._waiting.append(_few(images, responses) if is_sparse else _all(images, responses))
        if sum(len(each.images.numbers) for each in self._waiting) >= _BLOCK:
            self._settle()

    def total(self) -> Summary:
        """Returns the summary over all images so far."""
        if self._waiting:
            self._settle()
        positions = self._positions.cpu().numpy().reshape(-1, BINS).copy()
        # Zeros of sparse responses were not counted.
        positions[:, ZERO] += (self._positions_seen - positions.sum(axis=1)).astype(np.int32)
        return Summary(
            k=self._k,
            scales=self._scales,
            positions=positions,
            maxima=self._maxima.cpu().numpy().reshape(-1, BINS).copy(),
            sums=self._sums.cpu().numpy().copy(),
            seen=self._seen,
            positions_seen=self._positions_seen,
            highest=self._highest.cpu().numpy(),
            lowest=self._lowest.cpu().numpy(),
            first=self._first.cpu().numpy().reshape(-1, BINS).copy(),
            broken=self._broken.cpu().numpy().copy(),
            sampled={
                number: row
                for numbers, rows in self._sampled
                for number, row in zip(numbers, rows.cpu().numpy(), strict=True)
            },
        )

    def _settle(self) -> None:
        waiting, self._waiting = self._waiting, []
        numbers = [number for each in waiting for number in each.images.numbers]
        on_device = torch.cat([each.images.on_device for each in waiting])
        highest = torch.cat([each.highest for each in waiting], dim=1)
        units = [each.units for each in waiting if each.units is not None]
        counted = torch.cat([each.counted for each in waiting], dim=-1)
        if units:
            self._add_few(torch.cat(units), counted)
        else:
            self._add(counted, self._positions, self._sums[:3])
        self._add(highest, self._maxima, self._sums[3:], on_device)
        self._seen += len(numbers)
        self._positions_seen += sum(each.positions for each in waiting)
        # With the number of the image in the low bits, one `topk` finds values with their images. Of equal activations,
        # which are frequent where units are silent, the image with the smaller number is the more extreme one.
        codes = find_codes(highest) << 32
        top = torch.cat([self._highest, codes | (LAST_IMAGE - on_device)], dim=1)
        bottom = torch.cat([self._lowest, codes | on_device], dim=1)
        k = min(self._k, top.shape[1])
        self._highest = top.topk(k, dim=1).values
        self._lowest = bottom.topk(k, dim=1, largest=False).values
        if kept := [i for i, number in enumerate(numbers) if number in self._sample]:
            self._sampled.append(([numbers[i] for i in kept], torch.stack([highest[:, i] for i in kept])))

    def _add(
        self, values: torch.Tensor, counts: torch.Tensor, sums: torch.Tensor, images: torch.Tensor | None = None
    ) -> None:
        """Adds values of shape (units, values) to histograms and sums. In them, 0 takes the place of what is not finite.

        Args:
            images: The number of the image of each value, shape (values,): the first one in each bin is kept.
        """
        rows = max(self._block // values.shape[1], 1)
        for first in range(0, len(values), rows):
            part = slice(first, first + rows)
            own = values[part]
            finite = torch.isfinite(own).all(dim=1)
            self._broken[part] |= ~finite
            # A GPU would have to be waited for to know that there is none.
            if own.is_cuda or not bool(finite.all()):
                own.nan_to_num_(0.0, 0.0, 0.0)
            at = _bins(first, own * self._inverse[part])
            counts.scatter_add_(0, at, torch.ones((), dtype=torch.int32, device=at.device).expand(len(at)))
            if images is not None:
                codes = (images << 32) | (find_codes(own) & LAST_IMAGE)
                self._first.scatter_reduce_(0, at, codes.reshape(-1), "amin")
            sums[:, part] += _sums(own, with_positive=len(sums) == 3)

    def _add_few(self, units: torch.Tensor, values: torch.Tensor) -> None:
        """Adds the values at counted positions that are not 0, with the unit of each."""
        finite = torch.isfinite(values)
        self._broken[units[~finite]] = True
        values = torch.where(finite, values, 0.0)
        bins = find_bins(values * self._inverse[units, 0])
        ones = torch.ones((), dtype=torch.int32, device=values.device).expand(len(values))
        self._positions.scatter_add_(0, units * BINS + bins, ones)
        wide = values.double()
        for row, each in enumerate((wide, wide.square(), (values > 0).double())):
            self._sums[row].index_add_(0, units, each)


def _all(images: NumberedImages, responses: torch.Tensor) -> _Waiting:
    values = responses.flatten(2) if responses.ndim > 2 else responses[:, :, None]
    count = values.shape[2]
    highest = values.amax(dim=2)
    if count > _POSITIONS:
        # One image, as on a CPU, needs no index for each unit.
        at = _counted(images, count)
        values = (
            values[:, :, at[0]] if len(at) == 1 else values.gather(2, at[:, None, :].expand(-1, values.shape[1], -1))
        )
    counted = values.transpose(0, 1).reshape(values.shape[1], -1)
    return _Waiting(images=images, highest=highest.T, counted=counted, units=None, positions=counted.shape[1])


def _few(images: NumberedImages, responses: SparseResponses) -> _Waiting:
    units, values, count = responses.unit_of, responses.values, responses.count
    if count > _POSITIONS:
        is_counted = torch.zeros(responses.images, count, dtype=torch.bool, device=values.device)
        is_counted.scatter_(1, _counted(images, count), True)
        own = is_counted.view(-1)[responses.at // (count * responses.units) * count + responses.at % count]
        units, values = units[own], values[own]
    positions = responses.images * min(count, _POSITIONS)
    return _Waiting(images=images, highest=responses.maxima().T, counted=values, units=units, positions=positions)


def _counted(images: NumberedImages, count: int) -> torch.Tensor:
    """Returns the counted of `count` positions, shape (images, _POSITIONS)."""
    return (images.starts[:, None] + _spread(count, images.starts.device)) % count


def _bins(first: int, scaled: torch.Tensor) -> torch.Tensor:
    """Returns the bin of each scaled value, shape (units, values), among those of all units, for a block that begins with unit
    `first`. Shape (units · values,)."""
    starts = torch.arange(first, first + len(scaled), device=scaled.device)[:, None] * BINS
    return find_bins(scaled).add(starts).view(-1)


def _sums(values: torch.Tensor, *, with_positive: bool) -> torch.Tensor:
    """Returns for each of a block of units the sum of the values and of their squares, and the number of positive ones."""
    wide = values.double()
    sums = [wide.sum(dim=1), wide.square().sum(dim=1)]
    # A block's count of ones is exact in float32, whose sums are several times as fast as those of booleans.
    return torch.stack([*sums, (values > 0).float().sum(dim=1).double()] if with_positive else sums)


@cache
def _spread(count: int, device: torch.device) -> torch.Tensor:
    return torch.arange(_POSITIONS, device=device) * count // _POSITIONS


def find_codes(values: torch.Tensor) -> torch.Tensor:
    """Returns an integer of 32 bits in int64 for each finite value of float32, in the order of the values."""
    # Zero is added, which makes negative zeros positive: they are equal, and their bits are not.
    bits = (values + 0.0).view(torch.int32)
    # The bits of floats are ordered like their values, those of negative ones the other way round.
    return torch.where(bits >= 0, bits, bits ^ 0x7FFFFFFF).long()


def find_bins(values: torch.Tensor) -> torch.Tensor:
    """Returns the index of the bin (int32) of each float32 activation that was divided by the scale of its unit."""
    bits = values.contiguous().view(torch.int32)
    code = (bits & 0x7FFFFFFF).bitwise_right_shift_(_SHIFT).sub_(_BASE).clamp_(0, HALF - 1)
    # For negative values, bits >> 31 is -1, and x ^ -1 is -1 - x: their bins are numbered in reverse, below HALF.
    return code.bitwise_xor_(bits >> 31).add_(HALF)
