"""Statistics of the activations of a layer's units over the images processed so far.

Summaries can be added. Counts and sums are integers, and ties between extreme activations are broken by the image
number, so that the total does not depend on the number of workers or the order of addition.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

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
"""Number of images whose activations are added to the statistics together."""

ROWS = 256
"""Number of units that are processed together, so that intermediate results stay in the processor's cache."""

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@dataclass(slots=True, kw_only=True)
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
    sampled: dict[int, npt.NDArray[np.float32]] = field(default_factory=dict[int, npt.NDArray[np.float32]])
    """Activations of all units, shape (units,), by image number, for the images of a random sample of the dataset.
    Exemplars of the kinds `random` and `ladder` (evenly spaced by rank) are chosen from this sample."""

    @classmethod
    def empty(cls, scales: npt.NDArray[np.float32], k: int) -> "Summary":
        """Returns the summary of a layer over no images: all counts and sums are 0.

        Args:
            scales: Histogram scales of the units, shape (units,).
            k: Number of highest and of lowest activations to keep per unit.
        """
        units = len(scales)
        nothing = np.zeros((units, 0)), np.zeros((units, 0), dtype=np.int64)
        return cls(
            k=k,
            scales=scales,
            positions=np.zeros((units, histogram.BINS), dtype=np.int32),
            maxima=np.zeros((units, histogram.BINS), dtype=np.int32),
            sums=np.zeros((7, units), dtype=np.int64),
            seen=0,
            positions_seen=0,
            top=nothing,
            bottom=nothing,
            broken=np.zeros(units, dtype=np.bool_),
        )

    def add(self, other: "Summary") -> None:
        """Adds a summary of the same units over other images to this one."""
        self.positions += other.positions
        self.maxima += other.maxima
        self.sums += other.sums
        self.broken |= other.broken
        self.seen += other.seen
        self.positions_seen += other.positions_seen
        self.top = _extremes(self.top, other.top, self.k, descending=True)
        self.bottom = _extremes(self.bottom, other.bottom, self.k, descending=False)
        self.sampled |= other.sampled

    def extremes(self, numbers: Ints, activations: npt.NDArray[np.float32]) -> None:
        """Updates the highest and lowest activations of each unit with those on further images.

        Args:
            numbers: Numbers of the images, shape (images,).
            activations: Activations of all units, shape (images, units).
        """
        values = rounded(activations.T.astype(np.float64))
        ids = np.broadcast_to(numbers, values.shape)
        self.top = _extremes(self.top, (values, ids), self.k, descending=True)
        self.bottom = _extremes(self.bottom, (values, ids), self.k, descending=False)

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Returns the summary as named arrays for a file. Only the non-empty bins of histograms are included."""
        numbers = np.array(sorted(self.sampled), dtype=np.int64)
        sampled = np.array([self.sampled[int(n)] for n in numbers], dtype=np.float32)
        packed = {"sums": self.sums, "broken": self.broken, "sampled": sampled, "sampled_numbers": numbers}
        packed |= {"counts": np.array([self.seen, self.positions_seen])}
        for name, (values, ids) in (("top", self.top), ("bottom", self.bottom)):
            packed |= {name: values, f"{name}_numbers": ids}
        for name, counts in (("positions", self.positions), ("maxima", self.maxima)):
            filled = np.flatnonzero(counts)
            packed |= {f"{name}_at": filled, name: counts.ravel()[filled]}
        return packed

    @classmethod
    def of_arrays(cls, packed: Mapping[str, npt.NDArray[Any]], scales: npt.NDArray[np.float32], k: int) -> "Summary":
        """Restores a summary from the result of `arrays`.

        Args:
            packed: The result of `arrays`.
            scales: Histogram scales of the units, shape (units,).
            k: Number of highest and of lowest activations per unit.
        """
        made = cls.empty(scales, k)
        made.sums, made.broken = packed["sums"], packed["broken"]
        made.seen, made.positions_seen = map(int, packed["counts"])
        made.top = packed["top"], packed["top_numbers"]
        made.bottom = packed["bottom"], packed["bottom_numbers"]
        made.sampled = {int(n): row for n, row in zip(packed["sampled_numbers"], packed["sampled"], strict=True)}
        made.positions.ravel()[packed["positions_at"]] = packed["positions"]
        made.maxima.ravel()[packed["maxima_at"]] = packed["maxima"]
        return made


class Accumulator:
    """Collects the summary (statistics of all units) of a layer. The responses to the images are added one by one.

    It computes on the device that holds the responses.

    Args:
        scales: Histogram scales of the units, shape (units,).
        k: Number of highest and of lowest activations to keep per unit.
        sample: Numbers of the images whose activations are kept for all units.
    """

    def __init__(self, scales: npt.NDArray[np.float32], k: int, sample: frozenset[int]):
        self._total = Summary.empty(scales, k)
        self._sample = sample
        self._counts: torch.Tensor | None = None
        self._numbers: list[int] = []
        self._chosen: list[torch.Tensor] = []
        self._highest: list[torch.Tensor] = []

    def take(self, number: int, start: int, activations: torch.Tensor) -> None:
        """Adds the response to one image to the summary.

        Args:
            number: Number of the image.
            start: Pseudo-random number that belongs to the image (see `Order.start`). It is used if the activation maps
                have more than POSITIONS positions. Then the statistics use the maximum of each map and POSITIONS evenly
                spaced values, of which `start` is the offset.
            activations: Activation maps of all units, shape (units, height, width), or one value per unit, (units,).
        """
        values = activations.reshape(activations.shape[0], -1)
        self._numbers.append(number)
        self._highest.append(values.amax(dim=1))
        self._chosen.append(values if values.shape[1] <= POSITIONS else values[:, _spread(values.shape[1], start)])
        if len(self._numbers) == BLOCK:
            self._settle()

    def total(self) -> Summary:
        """Returns the summary over all images that were added. Later calls of `take` may change it."""
        if self._numbers:
            self._settle()
        if self._counts is not None:
            self._total.positions += self._counts.cpu().numpy().reshape(-1, histogram.BINS)
            self._counts = None
        return self._total

    def _settle(self) -> None:
        chosen, highest = torch.cat(self._chosen, dim=1).float(), torch.stack(self._highest, dim=1).float()
        finite = torch.isfinite(highest) & torch.isfinite(chosen).all(dim=1, keepdim=True)
        if not bool(finite.all()):
            self._total.broken |= (~finite).any(dim=1).cpu().numpy()
            chosen, highest = chosen.where(torch.isfinite(chosen), 0.0), highest.where(torch.isfinite(highest), 0.0)
        inverse = torch.from_numpy(1 / self._total.scales).to(chosen.device)[:, None]
        peaks = highest * inverse
        sums: list[torch.Tensor] = []
        for first in range(0, len(chosen), ROWS):
            part = slice(first, first + ROWS)
            scaled = chosen[part] * inverse[part]
            self._count(first, scaled)
            sums.append(_sums(scaled, peaks[part]))
        self._total.sums += torch.cat(sums, dim=1).cpu().numpy()
        at = histogram.bins(peaks).cpu().numpy()
        np.add.at(self._total.maxima, (np.arange(len(at))[:, None], at), 1)
        self._total.seen += len(self._numbers)
        self._total.positions_seen += chosen.shape[1]
        rows = highest.T.cpu().numpy()
        self._total.extremes(np.array(self._numbers), rows)
        self._total.sampled |= {n: row for n, row in zip(self._numbers, rows, strict=True) if n in self._sample}
        self._numbers, self._chosen, self._highest = [], [], []

    def _count(self, first: int, scaled: torch.Tensor) -> None:
        """Adds the values of a block of units to their histograms.

        Args:
            first: Index of the first unit of the block.
            scaled: Values divided by the scale of their unit, shape (units, positions).
        """
        if self._counts is None:
            units = len(self._total.scales)
            self._counts = torch.zeros(units * histogram.BINS, dtype=torch.int32, device=scaled.device)
        starts = torch.arange(first, first + len(scaled), device=scaled.device)[:, None] * histogram.BINS
        at = histogram.bins(scaled).add(starts).view(-1)
        self._counts.scatter_add_(0, at, torch.ones((), dtype=torch.int32, device=at.device).expand(len(at)))


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


def _spread(count: int, start: int) -> torch.Tensor:
    return (torch.arange(POSITIONS) * count // POSITIONS + start) % count


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
