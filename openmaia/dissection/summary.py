"""What one layer's units said to the pictures seen so far.

Summaries add up: counts and sums are integers, and the extremes are chosen by (activation, picture), so that any number
of workers in any order ends with the same bytes.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from openmaia.dissection import histogram

POSITIONS = 49
"""Of each picture and unit, at most so many positions go into the statistics, spread evenly over the map with a start
drawn by the picture; the maximum is taken over all. Quantiles of n pictures then rest on 49 n positions."""

FIXED = float(2**20)
"""Sums are kept in units of the unit's scale / FIXED, as integers: adding those does not depend on the order."""

CLAMP = float(2**16)
"""In units of the scale; keeps the sums of a million pictures within 64 bits."""

BLOCK = 32
"""Pictures that are counted together."""

ROWS = 256
"""Units that are counted together: what lies between two steps then stays in the processor's cache."""

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@dataclass(slots=True, kw_only=True)
class Summary:
    """Arrays are (units,) or (units, ...).

    top, bottom: (units, <= k) activations, best first, and the numbers of the pictures (by the order of their digests).
    sampled: activations of all units to each picture of the sample. broken: units that were not finite at times.
    """

    k: int
    scales: npt.NDArray[np.float32]
    positions: histogram.Counts
    maxima: histogram.Counts
    sums: Ints
    """(5, units): of values and of squares over positions, of positive positions, of maxima and of their squares."""
    seen: int
    positions_seen: int
    top: tuple[Floats, Ints]
    bottom: tuple[Floats, Ints]
    broken: npt.NDArray[np.bool_]
    sampled: dict[int, npt.NDArray[np.float32]] = field(default_factory=dict[int, npt.NDArray[np.float32]])

    @classmethod
    def empty(cls, scales: npt.NDArray[np.float32], k: int) -> "Summary":
        units = len(scales)
        nothing = np.zeros((units, 0)), np.zeros((units, 0), dtype=np.int64)
        return cls(
            k=k,
            scales=scales,
            positions=np.zeros((units, histogram.BINS), dtype=np.int32),
            maxima=np.zeros((units, histogram.BINS), dtype=np.int32),
            sums=np.zeros((5, units), dtype=np.int64),
            seen=0,
            positions_seen=0,
            top=nothing,
            bottom=nothing,
            broken=np.zeros(units, dtype=np.bool_),
        )

    def add(self, other: "Summary") -> None:
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
        """numbers: (pictures,); activations: (pictures, units)."""
        values = rounded(activations.T.astype(np.float64))
        ids = np.broadcast_to(numbers, values.shape)
        self.top = _extremes(self.top, (values, ids), self.k, descending=True)
        self.bottom = _extremes(self.bottom, (values, ids), self.k, descending=False)

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """For a file. Histograms are kept as their bins that are not empty."""
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
    """Takes in one layer's activations where they are (CPU or GPU), and gives a Summary."""

    def __init__(self, scales: npt.NDArray[np.float32], k: int, sample: frozenset[int]):
        self._total = Summary.empty(scales, k)
        self._sample = sample
        self._counts: torch.Tensor | None = None
        self._numbers: list[int] = []
        self._chosen: list[torch.Tensor] = []
        self._highest: list[torch.Tensor] = []

    def take(self, number: int, start: int, activations: torch.Tensor) -> None:
        """One picture: (units, height, width) or (units,). start: where the spread of positions begins."""
        values = activations.reshape(activations.shape[0], -1)
        self._numbers.append(number)
        self._highest.append(values.amax(dim=1))
        self._chosen.append(values if values.shape[1] <= POSITIONS else values[:, _spread(values.shape[1], start)])
        if len(self._numbers) == BLOCK:
            self._settle()

    def total(self) -> Summary:
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
        """first: number of the first unit."""
        if self._counts is None:
            units = len(self._total.scales)
            self._counts = torch.zeros(units * histogram.BINS, dtype=torch.int32, device=scaled.device)
        starts = torch.arange(first, first + len(scaled), device=scaled.device)[:, None] * histogram.BINS
        at = histogram.bins(scaled).add(starts).view(-1)
        self._counts.scatter_add_(0, at, torch.ones((), dtype=torch.int32, device=at.device).expand(len(at)))


def _sums(scaled: torch.Tensor, peaks: torch.Tensor) -> torch.Tensor:
    """(5, units); see Summary.sums. Rounded value by value, so that they are the same in any grouping."""
    fixed = [_fixed(x) for x in (scaled, scaled * scaled, peaks, peaks * peaks)]
    # A block's count of ones is exact in float32, whose sums are several times as fast as those of booleans.
    return torch.stack([fixed[0], fixed[1], (scaled > 0).float().sum(dim=1).long(), fixed[2], fixed[3]])


def _fixed(values: torch.Tensor) -> torch.Tensor:
    """Whole numbers below 2**36, of which doubles add up hundreds of thousands without rounding."""
    return (values.clamp(-CLAMP, CLAMP) * FIXED).round_().double().sum(dim=1).long()


def _spread(count: int, start: int) -> torch.Tensor:
    return (torch.arange(POSITIONS) * count // POSITIONS + start) % count


def rounded(values: Floats) -> Floats:
    """5 significant digits, as probes are rounded."""
    with np.errstate(divide="ignore", invalid="ignore"):
        digits = np.where(values == 0, 0, np.floor(np.log10(np.abs(values))))
    factor = 10.0 ** (4 - digits)
    return np.where(np.isfinite(values), np.round(values * factor) / factor, values)


def _extremes(one: tuple[Floats, Ints], other: tuple[Floats, Ints], k: int, *, descending: bool) -> tuple[Floats, Ints]:
    """The k highest (or lowest) of both; of equal activations the picture with the smaller number."""
    values, numbers = np.concatenate([one[0], other[0]], axis=1), np.concatenate([one[1], other[1]], axis=1)
    order = np.lexsort((numbers, -values if descending else values), axis=1)[:, :k]
    return np.take_along_axis(values, order, axis=1), np.take_along_axis(numbers, order, axis=1)
