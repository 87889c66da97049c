"""Statistics of the activations of a layer's units over the images processed so far.

Summaries can be added. Counts and sums are integers, and ties between extreme activations are broken by the image
number, so that the total does not depend on the number of workers or the order of addition.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, partial

import numpy as np
import numpy.typing as npt
import torch

from openmaia.exemplars import histogram

POSITIONS = 49
"""Largest number of positions per activation map whose values enter the statistics. They are evenly spaced, and their
offset depends on the image. Quantiles over n images rest on up to 49 n positions. The maximum of a map is taken over
all its positions."""

FIXED = float(2**20)
"""Sums of activations are stored as integer multiples of the unit's histogram scale (see histogram.py) / FIXED, because
a sum of integers does not depend on the order of addition."""

CLAMP = float(2**16)
"""Largest magnitude of a summand relative to the unit's histogram scale (see histogram.py). It keeps sums over a
million images within 64 bits."""

WORD = float(2**26)
"""Sums of squares consist of two integers, high and low, of which the value is high x WORD + low. A square is up to
CLAMP**2, which in one integer of 64 bits would leave no room for a sum."""

BLOCK = 32
"""Smallest number of images whose activations are added to the statistics together."""

VALUES = 2**19
"""Number of values that are processed together, so that intermediate results stay in the processor's cache."""

VALUES_GPU = 2**23
"""The same for a GPU, whose memory the intermediate results of so many values fill by half a gigabyte."""

DIGITS = 50
"""No power of ten of a float32 is as small as that of minus this number."""

POWERS = 10.0 ** (4 - np.arange(-DIGITS, DIGITS, dtype=np.float64))
"""By which to multiply a value of each power of ten to have an integer of five digits. From a table, because a GPU does not
compute these powers exactly."""

LAST = 2**32 - 1
"""The largest number of an image."""

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """Statistics of the activations of all units of a layer over a set of images.

    The activation of a unit on an image is the maximum of the unit's activation map.
    """

    k: int
    """Number of highest and of lowest activations that are kept per unit."""
    scales: npt.NDArray[np.float32]
    """Histogram scales of the units (see histogram.py), shape (units,)."""
    positions: histogram.Counts
    """Histograms of each unit's values at the counted positions (a sample of each map, see POSITIONS)."""
    maxima: histogram.Counts
    """Histograms of each unit's activations on images."""
    sums: Ints
    """Sums per unit, shape (7, units). Rows 0 to 3, over the counted positions of the maps: the values, their squares
    (low and high word, see WORD), and the number of positive values. Rows 4 to 6, over images: the activations and
    their squares (low and high word). Values are multiples of scale / FIXED, squares of scale**2 / FIXED."""
    seen: int
    """Number of images that the statistics cover."""
    positions_seen: int
    """Number of counted positions per unit, over all images."""
    top: tuple[Floats, Ints]
    """Highest activations in descending order and the numbers of their images, both of shape (units, at most k)."""
    bottom: tuple[Floats, Ints]
    """Lowest activations in ascending order and the numbers of their images, both of shape (units, at most k)."""
    broken: npt.NDArray[np.bool_]
    """Whether a unit had a value that was NaN or infinite, shape (units,)."""
    sampled: dict[int, npt.NDArray[np.float32]]
    """Activations of all units, shape (units,), by image number, for the images of a random sample of the dataset.
    Exemplars of the kinds `random` and `ladder` (evenly spaced by rank) are chosen from this sample."""

    def __add__(self, other: "Summary") -> "Summary":
        """Returns the summary of the same units over both sets of images."""
        return Summary(
            k=self.k,
            scales=self.scales,
            positions=self.positions + other.positions,
            maxima=self.maxima + other.maxima,
            sums=self.sums + other.sums,
            seen=self.seen + other.seen,
            positions_seen=self.positions_seen + other.positions_seen,
            top=_extremes(self.top, other.top, self.k, descending=True),
            bottom=_extremes(self.bottom, other.bottom, self.k, descending=False),
            broken=self.broken | other.broken,
            sampled=self.sampled | other.sampled,
        )


@dataclass(frozen=True, slots=True)
class NumberedImages:
    """Some images of a batch, for `Accumulator.take`."""

    numbers: Sequence[int]
    """Numbers of the images (see `passes.Order`)."""
    on_device: torch.Tensor
    """The same numbers on the device of the responses, int64 of shape (images,)."""
    starts: torch.Tensor
    """For each image a pseudo-random number (see `Order.start`), on the same device, int64 of shape (images,). It is the
    offset of the positions that are counted."""


class Accumulator:
    """Collects the summary (statistics of all units) of a layer.

    It computes on the device that holds the responses. Nothing is copied from there before `total`, so that the network
    does not wait.

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
        self._sums = zeros(7, units, dtype=torch.int64)
        self._broken = zeros(units, dtype=torch.bool)
        self._top, self._bottom = zeros(units, 0, dtype=torch.int64), zeros(units, 0, dtype=torch.int64)
        self._sampled: list[tuple[list[int], torch.Tensor]] = []
        self._seen = self._positions_seen = 0
        self._waiting: list[tuple[Sequence[int], torch.Tensor, torch.Tensor, torch.Tensor]] = []
        self._block = VALUES_GPU if device.type == "cuda" else VALUES
        self._powers = torch.from_numpy(POWERS).to(device)

    def take(self, images: NumberedImages, responses: torch.Tensor) -> None:
        """Adds the responses to some images to the summary.

        The statistics use the maximum of each map, and its values at POSITIONS evenly spaced positions if it has more.

        Args:
            images: The images.
            responses: Activation maps of all units, shape (images, units, height, width), or one value per unit,
                (images, units).
        """
        values = responses.flatten(2) if responses.ndim > 2 else responses[:, :, None]
        count = values.shape[2]
        highest = values.amax(dim=2)
        if count > POSITIONS:
            # One image, as on a CPU, needs no index for each unit.
            at = (images.starts[:, None] + _spread(count, values.device)) % count
            values = (
                values[:, :, at[0]]
                if len(at) == 1
                else values.gather(2, at[:, None, :].expand(-1, values.shape[1], -1))
            )
        chosen = values.transpose(0, 1).reshape(values.shape[1], -1)
        self._waiting.append((images.numbers, images.on_device, chosen, highest.T))
        if sum(len(numbers) for numbers, *_ in self._waiting) >= BLOCK:
            self._settle()

    def total(self) -> Summary:
        """Returns the summary over all images that were added."""
        if self._waiting:
            self._settle()
        top, bottom = self._top.cpu().numpy(), self._bottom.cpu().numpy()
        return Summary(
            k=self._k,
            scales=self._scales,
            positions=self._positions.cpu().numpy().reshape(-1, histogram.BINS).copy(),
            maxima=self._maxima.cpu().numpy().reshape(-1, histogram.BINS).copy(),
            sums=self._sums.cpu().numpy().copy(),
            seen=self._seen,
            positions_seen=self._positions_seen,
            top=(_values(top >> 32), LAST - (top & LAST)),
            bottom=(_values(bottom >> 32), bottom & LAST),
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
            scaled, scaled_peaks = own * inverse, peaks * inverse
            _count(self._positions, first, scaled)
            _count(self._maxima, first, scaled_peaks)
            self._sums[:, part] += _sums(scaled, scaled_peaks)
        self._seen += len(numbers)
        self._positions_seen += chosen.shape[1]
        # Of equal activations, the image with the smaller number is the more extreme one.
        codes = _codes(highest, self._powers) << 32
        top = torch.cat([self._top, codes | (LAST - on_device)], dim=1)
        bottom = torch.cat([self._bottom, codes | on_device], dim=1)
        k = min(self._k, top.shape[1])
        self._top = top.topk(k, dim=1).values
        self._bottom = bottom.topk(k, dim=1, largest=False).values
        if kept := [i for i, number in enumerate(numbers) if number in self._sample]:
            self._sampled.append(([numbers[i] for i in kept], torch.stack([highest[:, i] for i in kept])))


def _count(counts: torch.Tensor, first: int, scaled: torch.Tensor) -> None:
    """Adds values to the histograms of a block of units.

    Args:
        counts: The histograms of all units one after the other.
        first: Index of the first unit of the block.
        scaled: Values divided by the scale of their unit, shape (units, values).
    """
    starts = torch.arange(first, first + len(scaled), device=scaled.device)[:, None] * histogram.BINS
    at = histogram.bins(scaled).add(starts).view(-1)
    counts.scatter_add_(0, at, torch.ones((), dtype=torch.int32, device=at.device).expand(len(at)))


def _sums(scaled: torch.Tensor, peaks: torch.Tensor) -> torch.Tensor:
    """Returns `Summary.sums` of a block of units.

    Each value is rounded before the addition, so that the result does not depend on which values are added together.
    """
    # A block's count of ones is exact in float32, whose sums are several times as fast as those of booleans.
    positive = (scaled > 0).float().sum(dim=1).long()
    return torch.stack([_fixed(scaled), *_squares(scaled), positive, _fixed(peaks), *_squares(peaks)])


def _fixed(values: torch.Tensor) -> torch.Tensor:
    """Returns the sum of each row in multiples of 1 / FIXED.

    The summands are integers of magnitude at most 2**36, of which a double adds up more than 100,000 without rounding.
    """
    return (values.clamp(-CLAMP, CLAMP) * FIXED).round_().double().sum(dim=1).long()


def _squares(values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns the sum of the squares of each row in multiples of 1 / FIXED: the low and the high word.

    Each word of a summand is an integer below 2**27, of which a double adds up 2**26 without rounding.
    """
    squares = (values.clamp(-CLAMP, CLAMP).square() * FIXED).round_().double()
    high = (squares / WORD).floor_()
    return (squares - high * WORD).sum(dim=1).long(), high.sum(dim=1).long()


@cache
def _spread(count: int, device: torch.device) -> torch.Tensor:
    return torch.arange(POSITIONS, device=device) * count // POSITIONS


def _codes(values: torch.Tensor, powers: torch.Tensor) -> torch.Tensor:
    """Returns an integer of 32 bits for each finite value, in int64. Its order is that of the values as `rounded` rounds.

    Args:
        values: float32.
        powers: POWERS on the device of the values.
    """
    exact = values.double()
    digits = torch.where(exact == 0, 1.0, exact.abs()).log10_().floor_().long()
    factors = powers[digits + DIGITS]
    # Zero is added, which makes negative zeros positive: they are equal, and their bits are not.
    bits = exact.mul_(factors).round_().div_(factors).float().add_(0.0).view(torch.int32)
    # The bits of floats are ordered like their values, those of negative ones the other way round.
    return torch.where(bits >= 0, bits, bits ^ 0x7FFFFFFF).long()


def _values(codes: Ints) -> Floats:
    """Returns the rounded values of which `_codes` returned the codes."""
    narrow = codes.astype(np.int32)
    return rounded(np.where(narrow >= 0, narrow, narrow ^ 0x7FFFFFFF).view(np.float32).astype(np.float64))


def rounded(values: Floats) -> Floats:
    """Rounds to 5 significant digits, like the activations that a target (network) returns for single images."""
    with np.errstate(divide="ignore", invalid="ignore"):
        digits = np.where(values == 0, 0, np.floor(np.log10(np.abs(values))))
    factor = 10.0 ** (4 - digits)
    return np.where(np.isfinite(values), np.round(values * factor) / factor, values)


def _extremes(one: tuple[Floats, Ints], other: tuple[Floats, Ints], k: int, *, descending: bool) -> tuple[Floats, Ints]:
    """Merges the extreme activations of two sets of images: returns the k highest (or lowest) and their image numbers.

    Of equal activations, the one with the smaller image number comes first.
    """
    values, numbers = np.concatenate([one[0], other[0]], axis=1), np.concatenate([one[1], other[1]], axis=1)
    order = np.lexsort((numbers, -values if descending else values), axis=1)[:, :k]
    return np.take_along_axis(values, order, axis=1), np.take_along_axis(numbers, order, axis=1)
