"""The two passes over a dataset: the first finds which pictures excite each unit, the second keeps those and their maps.

Pictures are numbered in the order of their digests, so that "the smaller number" is a property of the picture and not of
the order of arrival. All layers are read in one forward pass each.
"""

import hashlib
import os
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from typing import Any, Protocol, TypeVar

import numpy as np
import numpy.typing as npt
import torch

from openmaia.dissection import histogram
from openmaia.dissection.summary import FIXED, Accumulator, Floats, Ints, Summary, rounded
from openmaia.images import Picture, Pixels
from openmaia.services import QUANTILES, ExemplarKind, Map, Positions, UnitExemplars, UnitState
from openmaia.units import TargetInfo, Unit

SCALED_ON = 32
"""Pictures of the first sample, which fixes the bounds of all histograms."""

BATCH = 32
"""Pictures that a target looks at together."""

ENCODERS = min(os.cpu_count() or 1, 4)

T = TypeVar("T")
Scales = Mapping[str, npt.NDArray[np.float32]]
Numbered = Iterable[tuple[int, Pixels]]


class Readable(Protocol):
    """A target that shows whole layers, not only single units."""

    def info(self) -> TargetInfo: ...

    def look(self, pictures: Sequence[Pixels]) -> Sequence[tuple[Pixels, Mapping[str, npt.NDArray[np.float32]]]]:
        """For each picture what is seen of it, and layer -> (units, height, width) or (units,), before any rounding."""
        ...


@dataclass(frozen=True, slots=True)
class Order:
    """The digests of a dataset, sorted, and what is drawn from it by them."""

    digests: Sequence[str]

    def sample(self, count: int) -> list[int]:
        """The numbers of `count` pictures that a hash of their digests picks."""
        lots = sorted(range(len(self.digests)), key=lambda n: _lot(self.digests[n]))
        return lots[:count]

    def start(self, number: int) -> int:
        """Where the spread of positions over a map begins."""
        return int(self.digests[number][:8], 16)


def _lot(digest: str) -> str:
    return hashlib.sha256(f"random {digest}".encode()).hexdigest()


def sample_size(k: int) -> int:
    """Pictures whose activations are kept for all units: `random` and `ladder` are taken from them."""
    return 8 * k


def scales(reader: Readable, layers: Sequence[str], pictures: Iterable[Pixels]) -> Scales:
    """Powers of two near the largest magnitude of each unit over some pictures."""
    largest: dict[str, Floats] = {}
    for found in (found for batch in batches(pictures) for _, found in reader.look(batch)):
        for layer in layers:
            values = np.abs(found[layer].reshape(len(found[layer]), -1)).max(axis=1).astype(np.float64)
            values = np.where(np.isfinite(values), values, 0)
            largest[layer] = np.maximum(largest.get(layer, np.zeros_like(values)), values)
    return {layer: histogram.scale(values) for layer, values in largest.items()}


def batches(waiting: Iterable[T]) -> Iterator[list[T]]:
    left = iter(waiting)
    while batch := list(islice(left, BATCH)):
        yield batch


class FirstPass:
    def __init__(self, reader: Readable, order: Order, scales: Scales, k: int):
        self._reader, self._order = reader, order
        sample = frozenset(order.sample(sample_size(k)))
        self._layers = {layer: Accumulator(scale, k, sample) for layer, scale in scales.items()}

    def take(self, pictures: Numbered) -> None:
        for batch in batches(pictures):
            seen = self._reader.look([picture for _, picture in batch])
            for (number, _), (_, found) in zip(batch, seen, strict=True):
                for layer, accumulator in self._layers.items():
                    accumulator.take(number, self._order.start(number), torch.from_numpy(found[layer]))

    def summaries(self) -> dict[str, Summary]:
        return {layer: accumulator.total() for layer, accumulator in self._layers.items()}


Chosen = dict[ExemplarKind, tuple[Floats, Ints]]
"""kind -> (activations, picture numbers), both (units, at most k)."""


def choose(summary: Summary, order: Order) -> Chosen:
    sample = [n for n in order.sample(sample_size(summary.k)) if n in summary.sampled]
    numbers = np.array(sample, dtype=np.int64)
    values = rounded(np.stack([summary.sampled[n] for n in sample], axis=1).astype(np.float64))
    ids = np.broadcast_to(numbers, values.shape)
    return {
        "top": summary.top,
        "bottom": summary.bottom,
        "random": (values[:, : summary.k], ids[:, : summary.k]),
        "ladder": _ladder(summary, values, ids),
    }


def _ladder(summary: Summary, values: Floats, ids: Ints) -> tuple[Floats, Ints]:
    """From the lowest to the highest activation, evenly spaced by rank within the sample, the extremes at its ends."""
    values = np.concatenate([values, summary.top[0][:, :1], summary.bottom[0][:, :1]], axis=1)
    ids = np.concatenate([ids, summary.top[1][:, :1], summary.bottom[1][:, :1]], axis=1)
    order = np.lexsort((ids, -values), axis=1)
    values, ids = np.take_along_axis(values, order, axis=1), np.take_along_axis(ids, order, axis=1)
    rungs_of: list[tuple[Floats, Ints]] = []
    for row, row_ids in zip(values, ids, strict=True):
        _, first = np.unique(row_ids, return_index=True)
        once = np.sort(first)
        at = once[np.round(np.linspace(len(once) - 1, 0, min(summary.k, len(once)))).astype(int)]
        rungs_of.append((row[at], row_ids[at]))
    length = min(len(ids) for _, ids in rungs_of)
    return np.stack([v[:length] for v, _ in rungs_of]), np.stack([i[:length] for _, i in rungs_of])


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A place of the store that wants a picture's map."""

    layer: str
    unit: int
    kind: ExemplarKind
    rank: int
    activation: float


def wanted(chosen: Mapping[str, Chosen]) -> dict[int, list[Wanted]]:
    """Picture number -> what it is kept for."""
    result: dict[int, list[Wanted]] = {}
    for layer, kinds in chosen.items():
        for kind, (values, numbers) in kinds.items():
            for unit in range(len(numbers)):
                for rank, (value, number) in enumerate(zip(values[unit], numbers[unit], strict=True)):
                    place = Wanted(layer=layer, unit=unit, kind=kind, rank=rank, activation=float(value))
                    result.setdefault(int(number), []).append(place)
    return result


def second_pass(
    reader: Readable, pictures: Numbered, digests: Sequence[str], places: Mapping[int, Sequence[Wanted]]
) -> Iterator[tuple[int, Picture, list[tuple[Wanted, Map | None]]]]:
    """(number, the picture as the network saw it, what it is kept for with the maps). Pictures are encoded by threads of
    their own, behind the network."""
    encoding: deque[tuple[int, Future[Picture], list[tuple[Wanted, Map | None]]]] = deque()
    with ThreadPoolExecutor(ENCODERS) as threads:
        for batch in batches(pictures):
            seen = reader.look([picture for _, picture in batch])
            for (number, _), (view, maps) in zip(batch, seen, strict=True):
                picture = threads.submit(Picture.of, view, [digests[number]], for_keeping=True)
                encoding.append((number, picture, [(place, _map(place, maps)) for place in places[number]]))
                if len(encoding) > BATCH:
                    yield _encoded(encoding.popleft())
        yield from map(_encoded, encoding)


def _encoded(
    waiting: tuple[int, Future[Picture], list[tuple[Wanted, Map | None]]],
) -> tuple[int, Picture, list[tuple[Wanted, Map | None]]]:
    number, picture, kept = waiting
    return number, picture.result(), kept


def _map(place: Wanted, maps: Mapping[str, npt.NDArray[np.float32]]) -> Map | None:
    return np.ascontiguousarray(maps[place.layer][place.unit]) if maps[place.layer].ndim == 3 else None


def unit_rows(info: TargetInfo, layer: str, summary: Summary, quantile: float) -> list[UnitExemplars]:
    """What is known of each unit of a layer, without its exemplars."""
    given = info.mask_threshold
    scale = summary.scales.astype(np.float64)
    values, squares, positive, peaks, peak_squares = summary.sums.astype(np.float64)
    unit_of_sum = scale / FIXED
    mean = values * unit_of_sum / summary.positions_seen
    variance = np.maximum(squares * unit_of_sum * scale / summary.positions_seen - mean**2, 0)
    peak_mean = peaks * unit_of_sum / summary.seen
    peak_std = np.sqrt(np.maximum(peak_squares * unit_of_sum * scale / summary.seen - peak_mean**2, 0))
    highest, lowest = summary.top[0][:, 0], summary.bottom[0][:, 0]
    floor = np.full(len(highest), -np.inf)
    levels = {
        q: histogram.quantile(summary.positions, summary.scales, floor, highest, q) for q in {*QUANTILES, quantile}
    }
    maxima = [histogram.quantile(summary.maxima, summary.scales, lowest, highest, q / 100) for q in range(1, 100)]
    percentiles = np.stack([lowest, *maxima, highest], axis=1)
    dead = highest == lowest
    return [
        UnitExemplars(
            unit=Unit(target=info.name, layer=layer, index=unit),
            threshold=_threshold(summary, unit, float(levels[quantile][unit]), float(highest[unit]))
            if given is None
            else given,
            maxima=percentiles[unit],
            mean=float(peak_mean[unit]),
            std=0.0 if dead[unit] else float(peak_std[unit]),
            exemplars=(),
            positions=Positions(
                quantiles=tuple(float(levels[q][unit]) for q in QUANTILES),
                mean=float(mean[unit]),
                variance=float(variance[unit]),
                positive=float(positive[unit] / summary.positions_seen),
            ),
            state=_state(bool(summary.broken[unit]), bool(dead[unit])),
        )
        for unit in range(len(highest))
    ]


def _state(broken: bool, dead: bool) -> UnitState:
    return "not finite" if broken else "dead" if dead else "ok"


def _threshold(summary: Summary, unit: int, threshold: float, highest: float) -> float:
    """A unit so saturated that its quantile is its maximum would never rise above it; its threshold is the highest bin
    below that holds something."""
    if threshold < highest:
        return threshold
    edges: Any = histogram.edges() * float(summary.scales[unit])
    filled = np.flatnonzero(summary.positions[unit])
    below = [at for at in filled if edges[at + 1] < highest]
    return float(edges[below[-1] + 1]) if below else threshold
