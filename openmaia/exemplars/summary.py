"""Statistics of the activations of a layer's units over the images processed so far. They can be added."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, partial

import numpy as np
import numpy.typing as npt
import torch

from openmaia.exemplars import histogram

_POSITIONS = 49
"""Largest number of positions per activation map that are counted. They are evenly spaced, and their offset depends on the
image. Quantiles over n images rest on up to 49 n positions. The maximum of a map is taken over all its positions."""

_BLOCK = 32
"""Smallest number of images whose activations are added to the statistics together."""

_VALUES = 2**19
"""Number of values that are processed together, so that intermediate results stay in the processor's cache."""

_VALUES_GPU = 2**23
"""The same for a GPU, whose memory the intermediate results of so many values fill by half a gigabyte."""

_LAST = 2**32 - 1

_NONE = 2**63 - 1

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
    """Histograms of the values at counted positions (see _POSITIONS)."""
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
    """The highest activations in descending order, shape (units, at most k): `_codes` in the high 32 bits, and _LAST minus
    the number of the image in the low ones."""
    lowest: Ints
    """The lowest activations in ascending order, with the numbers of the images in the low bits."""
    first: Ints
    """For each bin of `maxima`, of all images in it, that with the smallest number, which is as good as random. The number is
    in the high 32 bits, `_codes` of the activation in the low ones; _NONE without an image."""
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
        return _values(self.highest >> 32), _LAST - (self.highest & _LAST)

    @property
    def bottom(self) -> tuple[Floats, Ints]:
        """The lowest activations, rounded, and the numbers of their images, both of shape (units, at most k)."""
        return _values(self.lowest >> 32), self.lowest & _LAST

    def level_images(self, unit: int) -> tuple[Floats, Ints]:
        """Returns activations of a unit, rounded, and the numbers of their images: one from each filled bin."""
        codes = self.first[unit][self.first[unit] != _NONE]
        return _values(codes & _LAST), codes >> 32


@dataclass(frozen=True, slots=True)
class NumberedImages:
    """Some images of a batch, for `Accumulator.take`."""

    numbers: Sequence[int]
    on_device: torch.Tensor
    """The numbers on the device of the responses, int64 of shape (images,)."""
    starts: torch.Tensor
    """Offsets of the counted positions (see `Order.start`) on this device, int64 of shape (images,)."""


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
        self._positions = zeros(units * histogram.BINS, dtype=torch.int32)
        self._maxima = zeros(units * histogram.BINS, dtype=torch.int32)
        self._sums = zeros(5, units, dtype=torch.float64)
        self._broken = zeros(units, dtype=torch.bool)
        self._highest = self._lowest = zeros(units, 0, dtype=torch.int64)
        self._first = torch.full((units * histogram.BINS,), _NONE, dtype=torch.int64, device=device)
        self._sampled: list[tuple[list[int], torch.Tensor]] = []
        self._seen = self._positions_seen = 0
        # Nothing is copied from the device before `total`, so that the network does not wait.
        self._waiting: list[tuple[Sequence[int], torch.Tensor, torch.Tensor, torch.Tensor]] = []
        self._block = _VALUES_GPU if device.type == "cuda" else _VALUES

    def take(self, images: NumberedImages, responses: torch.Tensor) -> None:
        """Adds responses of shape (images, units, height, width) or (images, units)."""
        values = responses.flatten(2) if responses.ndim > 2 else responses[:, :, None]
        count = values.shape[2]
        highest = values.amax(dim=2)
        if count > _POSITIONS:
            # One image, as on a CPU, needs no index for each unit.
            at = (images.starts[:, None] + _spread(count, values.device)) % count
            values = (
                values[:, :, at[0]]
                if len(at) == 1
                else values.gather(2, at[:, None, :].expand(-1, values.shape[1], -1))
            )
        chosen = values.transpose(0, 1).reshape(values.shape[1], -1)
        self._waiting.append((images.numbers, images.on_device, chosen, highest.T))
        if sum(len(numbers) for numbers, *_ in self._waiting) >= _BLOCK:
            self._settle()

    def total(self) -> Summary:
        """Returns the summary over all images so far."""
        if self._waiting:
            self._settle()
        return Summary(
            k=self._k,
            scales=self._scales,
            positions=self._positions.cpu().numpy().reshape(-1, histogram.BINS).copy(),
            maxima=self._maxima.cpu().numpy().reshape(-1, histogram.BINS).copy(),
            sums=self._sums.cpu().numpy().copy(),
            seen=self._seen,
            positions_seen=self._positions_seen,
            highest=self._highest.cpu().numpy(),
            lowest=self._lowest.cpu().numpy(),
            first=self._first.cpu().numpy().reshape(-1, histogram.BINS).copy(),
            broken=self._broken.cpu().numpy().copy(),
            sampled={
                number: row
                for numbers, rows in self._sampled
                for number, row in zip(numbers, rows.cpu().numpy(), strict=True)
            },
        )

    def _settle(self) -> None:
        numbers = [number for each, *_ in self._waiting for number in each]
        on_device = torch.cat([each for _, each, *_ in self._waiting])
        chosen = torch.cat([each for _, _, each, _ in self._waiting], dim=1)
        highest = torch.cat([each for *_, each in self._waiting], dim=1)
        self._waiting = []
        rows = max(self._block // chosen.shape[1], 1)
        for first in range(0, len(chosen), rows):
            part = slice(first, first + rows)
            own, peaks, inverse = chosen[part], highest[part], self._inverse[part]
            finite = torch.isfinite(peaks).all(dim=1) & torch.isfinite(own).all(dim=1)
            self._broken[part] |= ~finite
            # Zeros take the place of what is not finite. A GPU would have to be waited for to know that there is none.
            if own.is_cuda or not bool(finite.all()):
                own, peaks = own.nan_to_num(0.0, 0.0, 0.0), peaks.nan_to_num(0.0, 0.0, 0.0)
                highest[part] = peaks
            _count(self._positions, first, own * inverse)
            _count(self._maxima, first, peaks * inverse)
            _keep_first(self._first, first, peaks * inverse, (on_device << 32) | (_codes(peaks) & _LAST))
            self._sums[:, part] += _sums(own, peaks)
        self._seen += len(numbers)
        self._positions_seen += chosen.shape[1]
        # With the number of the image in the low bits, one `topk` finds values with their images. Of equal activations,
        # which are frequent where units are silent, the image with the smaller number is the more extreme one.
        codes = _codes(highest) << 32
        top = torch.cat([self._highest, codes | (_LAST - on_device)], dim=1)
        bottom = torch.cat([self._lowest, codes | on_device], dim=1)
        k = min(self._k, top.shape[1])
        self._highest = top.topk(k, dim=1).values
        self._lowest = bottom.topk(k, dim=1, largest=False).values
        if kept := [i for i, number in enumerate(numbers) if number in self._sample]:
            self._sampled.append(([numbers[i] for i in kept], torch.stack([highest[:, i] for i in kept])))


def _count(counts: torch.Tensor, first: int, scaled: torch.Tensor) -> None:
    """Adds scaled values, shape (units, values), to the histograms of a block of units that begins with unit `first`."""
    starts = torch.arange(first, first + len(scaled), device=scaled.device)[:, None] * histogram.BINS
    at = histogram.find_bins(scaled).add(starts).view(-1)
    counts.scatter_add_(0, at, torch.ones((), dtype=torch.int32, device=at.device).expand(len(at)))


def _keep_first(kept: torch.Tensor, first: int, scaled: torch.Tensor, codes: torch.Tensor) -> None:
    """Keeps the smallest code in each bin, of scaled values and their codes, both (units, images)."""
    starts = torch.arange(first, first + len(scaled), device=scaled.device)[:, None] * histogram.BINS
    at = histogram.find_bins(scaled).add(starts).view(-1)
    kept.scatter_reduce_(0, at, codes.reshape(-1), "amin")


def _sums(values: torch.Tensor, peaks: torch.Tensor) -> torch.Tensor:
    """Returns `Summary.sums` of a block of units."""
    # A block's count of ones is exact in float32, whose sums are several times as fast as those of booleans.
    positive = (values > 0).float().sum(dim=1).double()
    values, peaks = values.double(), peaks.double()
    return torch.stack([
        values.sum(dim=1), values.square().sum(dim=1), positive, peaks.sum(dim=1), peaks.square().sum(dim=1)
    ])  # fmt: skip


@cache
def _spread(count: int, device: torch.device) -> torch.Tensor:
    return torch.arange(_POSITIONS, device=device) * count // _POSITIONS


def _codes(values: torch.Tensor) -> torch.Tensor:
    """Returns an integer of 32 bits in int64 for each finite value of float32, in the order of the values."""
    # Zero is added, which makes negative zeros positive: they are equal, and their bits are not.
    bits = (values + 0.0).view(torch.int32)
    # The bits of floats are ordered like their values, those of negative ones the other way round.
    return torch.where(bits >= 0, bits, bits ^ 0x7FFFFFFF).long()


def _values(codes: Ints) -> Floats:
    """Returns the values of which `_codes` returned the codes, rounded."""
    narrow = codes.astype(np.int32)
    return round_values(np.where(narrow >= 0, narrow, narrow ^ 0x7FFFFFFF).view(np.float32).astype(np.float64))


def round_values(values: Floats) -> Floats:
    """Rounds to 5 significant digits, like the activations that a target returns for single images."""
    with np.errstate(divide="ignore", invalid="ignore"):
        digits = np.where(values == 0, 0, np.floor(np.log10(np.abs(values))))
    factor = 10.0 ** (4 - digits)
    return np.where(np.isfinite(values), np.round(values * factor) / factor, values)
