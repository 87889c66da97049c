"""The two passes over a dataset that compute exemplars.

The first pass finds the images that excite each unit most and least. The second pass encodes these images and stores
their activation maps. Images are numbered in the order of their digests, so that no result depends on the order of
processing. One forward pass per image reads all layers.
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

from openmaia.core.images import EncodedImage, Pixels, ViewBox
from openmaia.core.services import (
    QUANTILES,
    ExemplarKind,
    Map,
    PositionStatistics,
    UnitExemplars,
    UnitState,
)
from openmaia.core.units import TargetInfo, Unit
from openmaia.exemplars import histogram
from openmaia.exemplars.summary import FIXED, WORD, Accumulator, Floats, Ints, Summary, rounded

SCALED_ON = 32
"""Number of images in the sample from which the histogram scales (see histogram.py) of all units are computed."""

BATCH = 32
"""Number of images that are passed to the target (the network) in one call."""

ENCODERS = min(os.cpu_count() or 1, 4)
"""Number of threads that encode images."""

T = TypeVar("T")
Scales = Mapping[str, npt.NDArray[np.float32]]
"""Histogram scales (see histogram.py) of the units of each layer, shape (units,)."""

Numbered = Iterable[tuple[int, Pixels]]
"""Pairs of an image number (see `Order`) and the image."""


class Readable(Protocol):
    """A target (network under study) that returns the responses of whole layers."""

    def info(self) -> TargetInfo:
        """Returns properties of the target, such as its name and the number of units of each layer."""
        ...

    def look(self, images: Sequence[Pixels]) -> Sequence[tuple[ViewBox, Mapping[str, npt.NDArray[np.float32]]]]:
        """Returns a pair for each image: the part of it that the network sees, and its responses.

        The responses of all layers are keyed by the name of the layer. They have the shape (units, height, width), or
        (units,) if the layer has no positions, and are not rounded.
        """
        ...


@dataclass(frozen=True, slots=True)
class Order:
    """The images of a dataset, sorted by digest and numbered in this order.

    All pseudo-random choices about an image derive from its digest, so that they do not depend on the order of
    processing.
    """

    digests: Sequence[str]
    """Digests of all images in ascending order."""

    def sample(self, count: int) -> list[int]:
        """Returns the numbers of `count` pseudo-randomly chosen images, or of all images if there are fewer."""
        lots = sorted(range(len(self.digests)), key=lambda n: _lot(self.digests[n]))
        return lots[:count]

    def start(self, number: int) -> int:
        """Returns a pseudo-random number that decides which positions of an image's activation maps are sampled.

        If an activation map is large, only evenly spaced positions of it enter the statistics (see
        `summary.POSITIONS`). The first sampled position is this number modulo the number of positions of the map.

        Args:
            number: Number of the image.
        """
        return int(self.digests[number][:8], 16)


def _lot(digest: str) -> str:
    return hashlib.sha256(f"random {digest}".encode()).hexdigest()


def sample_size(k: int) -> int:
    """Returns the number of images in the random sample from which `random` and `ladder` exemplars are chosen.

    `ladder` exemplars have activations with evenly spaced ranks. The first pass keeps the activations of all units on
    the images of the sample.

    Args:
        k: Number of exemplars per unit and kind.
    """
    return 8 * k


def scales(reader: Readable, layers: Sequence[str], pictures: Iterable[Pixels]) -> Scales:
    """Computes the histogram scales of all units of the layers from their activations on a sample of images.

    The scale of a unit is the number by which its activations are divided for its histogram (see histogram.py).

    Args:
        reader: The target (network under study).
        layers: The names of the layers.
        pictures: The images of the sample.
    """
    largest: dict[str, Floats] = {}
    for found in (found for batch in batches(pictures) for _, found in reader.look(batch)):
        for layer in layers:
            values = np.abs(found[layer].reshape(len(found[layer]), -1)).max(axis=1).astype(np.float64)
            values = np.where(np.isfinite(values), values, 0)
            largest[layer] = np.maximum(largest.get(layer, np.zeros_like(values)), values)
    return {layer: histogram.scale(values) for layer, values in largest.items()}


def batches(waiting: Iterable[T]) -> Iterator[list[T]]:
    """Yields the items in lists of length BATCH, the number of images in one call of the target.

    The last list may be shorter.
    """
    left = iter(waiting)
    while batch := list(islice(left, BATCH)):
        yield batch


class FirstPass:
    """Collects statistics of all units, and finds the images with their highest and lowest activations.

    Args:
        reader: The target (network under study).
        order: The order of all images of the dataset.
        scales: Histogram scales of the units (see `scales` in this module) of each layer to read.
        k: Number of exemplars per unit and kind.
    """

    def __init__(self, reader: Readable, order: Order, scales: Scales, k: int):
        self._reader, self._order = reader, order
        sample = frozenset(order.sample(sample_size(k)))
        self._layers = {layer: Accumulator(scale, k, sample) for layer, scale in scales.items()}

    def take(self, pictures: Numbered) -> None:
        """Runs the target on numbered images (see `Order`), and adds the activations to the units' statistics."""
        for batch in batches(pictures):
            seen = self._reader.look([image for _, image in batch])
            for (number, _), (_, found) in zip(batch, seen, strict=True):
                for layer, accumulator in self._layers.items():
                    accumulator.take(number, self._order.start(number), torch.from_numpy(found[layer]))

    def summaries(self) -> dict[str, Summary]:
        """Returns for each layer the statistics of its units over all images processed so far.

        They include the images with the highest and lowest activations of each unit.
        """
        return {layer: accumulator.total() for layer, accumulator in self._layers.items()}


Chosen = dict[ExemplarKind, tuple[Floats, Ints]]
"""The images that are selected as exemplars of a layer's units, by kind: the units' activations on them and their image
numbers, both of shape (units, at most k exemplars) and ordered by rank."""


def choose(summary: Summary, order: Order) -> Chosen:
    """Selects the exemplars of each unit of a layer.

    There are four kinds: the images with the highest activations (`top`), those with the lowest (`bottom`), random
    images (`random`), and images whose activations have evenly spaced ranks from lowest to highest (`ladder`).

    Args:
        summary: Statistics of the layer over the whole dataset.
        order: The order of all images of the dataset.

    Returns:
        For each kind, the units' activations on the selected images and the numbers of these images.
    """
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
    """Selects images whose activations have evenly spaced ranks, from the lowest to the highest of each unit.

    Ranked are the sampled images and the two images with the unit's extreme activations.
    """
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
    """An exemplar whose image is selected, but not stored yet.

    The second pass over the images stores the image with the unit's activation map.
    """

    layer: str
    unit: int
    kind: ExemplarKind
    rank: int
    """Position among the unit's exemplars of this kind, from 0."""
    activation: float


def wanted(chosen: Mapping[str, Chosen]) -> dict[int, list[Wanted]]:
    """Groups the selected exemplars of all layers by image. One image can be an exemplar of several units.

    Args:
        chosen: The result of `choose` for each layer.

    Returns:
        For each image number, the exemplars for which the image is selected.
    """
    result: dict[int, list[Wanted]] = {}
    for layer, kinds in chosen.items():
        for kind, (values, numbers) in kinds.items():
            for unit in range(len(numbers)):
                for rank, (value, number) in enumerate(zip(values[unit], numbers[unit], strict=True)):
                    place = Wanted(layer=layer, unit=unit, kind=kind, rank=rank, activation=float(value))
                    result.setdefault(int(number), []).append(place)
    return result


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """An image that was selected as an exemplar of some units."""

    number: int
    image: EncodedImage
    box: ViewBox
    """The part of the image that the network sees."""
    places: list[tuple[Wanted, Map | None]]
    """The exemplars for which it is selected, each with the unit's activation map on the image, or None if the layer has
    no positions."""


def second_pass(
    reader: Readable, pictures: Numbered, digests: Sequence[str], places: Mapping[int, Sequence[Wanted]]
) -> Iterator[Kept]:
    """Yields the images that were selected as exemplars, with the activation maps of the units concerned.

    Args:
        reader: The target.
        pictures: The selected images.
        digests: Digests of all images of the dataset by number.
        places: For each image number, the exemplars (layer, unit, kind and rank) for which the image is selected.
    """
    encoding: deque[Future[Kept]] = deque()
    with ThreadPoolExecutor(ENCODERS) as threads:
        for batch in batches(pictures):
            seen = reader.look([image for _, image in batch])
            for (number, pixels), (box, maps) in zip(batch, seen, strict=True):
                mapped = [(place, _map(place, maps)) for place in places[number]]
                encoding.append(threads.submit(_kept, number, pixels, digests[number], box, mapped))
                if len(encoding) > BATCH:
                    yield encoding.popleft().result()
        yield from (each.result() for each in encoding)


def _kept(number: int, pixels: Pixels, source: str, box: ViewBox, places: list[tuple[Wanted, Map | None]]) -> Kept:
    image = EncodedImage.of(pixels, [source], for_keeping=True)
    return Kept(number=number, image=image, box=box, places=places)


def _map(place: Wanted, maps: Mapping[str, npt.NDArray[np.float32]]) -> Map | None:
    return np.ascontiguousarray(maps[place.layer][place.unit]) if maps[place.layer].ndim == 3 else None


def unit_rows(info: TargetInfo, layer: str, summary: Summary, quantile: float) -> list[UnitExemplars]:
    """Returns the statistics of each unit of a layer, with an empty list of exemplars.

    Args:
        info: Description of the target. If it has a `mask_threshold`, this is the threshold of all units' masks.
        layer: Name of the layer.
        summary: Statistics of the layer over the whole dataset.
        quantile: A number from 0 to 1. If `info` has no `mask_threshold`, a unit's threshold is this quantile of its
            activations over all positions and images.
    """
    given = info.mask_threshold
    scale = summary.scales.astype(np.float64)
    values, low, high, positive, peaks, peak_low, peak_high = summary.sums.astype(np.float64)
    squares, peak_squares = low + high * WORD, peak_low + peak_high * WORD
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
            positions=PositionStatistics(
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
    """Returns the activation above which a position belongs to the masks of a unit.

    This is `threshold`, a quantile of the unit's activations, unless it equals the maximum `highest`, as in a saturated
    unit. No activation would exceed it then. The result is in this case the upper edge of the highest non-empty
    histogram bin below the maximum, if there is one.
    """
    if threshold < highest:
        return threshold
    edges: Any = histogram.edges() * float(summary.scales[unit])
    filled = np.flatnonzero(summary.positions[unit])
    below = [at for at in filled if edges[at + 1] < highest]
    return float(edges[below[-1] + 1]) if below else threshold
