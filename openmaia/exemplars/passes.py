"""The two passes over a dataset that compute exemplars.

The first finds the images that excite each unit most and least. The second reads these images again and stores them with
their activation maps. One forward pass per image reads all layers.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch

from openmaia.core.errors import ServiceError
from openmaia.core.images import EncodedImage, Pixels, ViewBox
from openmaia.core.services import (
    LEVELS,
    QUANTILES,
    ActivationCounts,
    ExemplarKind,
    Map,
    PositionStatistics,
    UnitExemplars,
    UnitState,
    find_levels,
)
from openmaia.core.units import OUTPUT, TargetInfo, Unit
from openmaia.exemplars import histogram
from openmaia.exemplars.accumulator import Accumulator, NumberedImages, find_bins
from openmaia.exemplars.loading import LoadedImage
from openmaia.exemplars.sparse import Responses, SparseResponses
from openmaia.exemplars.store import KINDS
from openmaia.exemplars.summary import Floats, Ints, Summaries, Summary, round_values

SCALED_ON = 32
"""Number of images in the sample on which the histogram scales are measured."""

Scales = Mapping[str, npt.NDArray[np.float32]]
"""Histogram scales (see histogram.py) of the units of each layer, shape (units,)."""


class Readable(Protocol):
    """A target that returns the responses of whole layers."""

    batch: int
    """Number of images that one call of `responses` takes best; 1 on a CPU. A pass that runs out of memory halves it."""

    def info(self) -> TargetInfo:
        """Returns the properties of the target."""
        ...

    def view(self, pixels: Pixels) -> tuple[Pixels, ViewBox]:
        """Returns what the network receives of an image, and the part of the image that this shows.

        It is called in other threads and processes, which have no GPU.
        """
        ...

    def responses(self, views: Sequence[Pixels], recipes: Sequence[str]) -> Mapping[str, Responses]:
        """Returns the responses of all layers to images of equal shape that `view` returned, by layer name.

        Args:
            recipes: `EncodedImage.recipe` of each image. A network has no use for it.

        Returns:
            On the device of the network, not rounded.

        Raises:
            ServiceError: The images need more memory than the GPU has. Its cause is a torch.OutOfMemoryError.
        """
        ...


@dataclass(frozen=True, slots=True)
class Order:
    """The images of a dataset, numbered in the ascending order of their digests.

    Pseudo-random choices about an image derive from its digest, so that all workers make the same.
    """

    digests: Sequence[str]

    def sample(self, count: int) -> list[int]:
        """Returns the numbers of `count` pseudo-randomly chosen images, or of all images if there are fewer."""
        lots = sorted(range(len(self.digests)), key=lambda n: _lot(self.digests[n]))
        return lots[:count]

    def start(self, number: int) -> int:
        """Returns a pseudo-random number, from which the positions of an image that are counted are offset."""
        return int(self.digests[number][:8], 16)


def _lot(digest: str) -> str:
    return hashlib.sha256(f"random {digest}".encode()).hexdigest()


def sample_size(k: int) -> int:
    """Returns the number of images in the random sample from which `random` and `ladder` exemplars are chosen."""
    return 8 * k


def measure_scales(reader: Readable, layers: Sequence[str], images: Iterable[LoadedImage]) -> Scales:
    """Measures the histogram scales of all units of the layers on a sample of images."""
    largest: dict[str, Floats] = {}
    for _, found in run_batches(reader, images):
        for layer in layers:
            values = _largest(found[layer]).cpu().numpy().astype(np.float64)
            values = np.where(np.isfinite(values), values, 0)
            largest[layer] = np.maximum(largest.get(layer, np.zeros_like(values)), values)
    return {layer: histogram.choose_scales(values) for layer, values in largest.items()}


def _largest(responses: Responses) -> torch.Tensor:
    """Returns the largest magnitude of each unit, shape (units,)."""
    if isinstance(responses, SparseResponses):
        return responses.maxima().amax(dim=0)
    return responses.transpose(0, 1).flatten(1).abs().amax(dim=1)


def run_batches(
    reader: Readable, images: Iterable[LoadedImage]
) -> Iterator[tuple[list[LoadedImage], Mapping[str, Responses]]]:
    """Runs the target on images, as many of equal shape at a time as it takes best.

    Images wait until there are enough of their shape, at the longest until the last one has come. If a batch needs more
    memory than the GPU has, it and all later ones are halved.

    Yields:
        Some of the images, and the responses to them (see `Readable.responses`).

    Raises:
        ServiceError: A single image needs more memory than the GPU has.
    """
    for group in _of_equal_shape(reader, images):
        first = 0
        while first < len(group):
            batch = group[first : first + reader.batch]
            if (found := _responses(reader, batch)) is None:
                reader.batch = len(batch) // 2
            else:
                yield batch, found
                first += len(batch)


def _of_equal_shape(reader: Readable, images: Iterable[LoadedImage]) -> Iterator[list[LoadedImage]]:
    waiting: dict[tuple[int, ...], list[LoadedImage]] = {}
    for image in images:
        group = waiting.setdefault(image.view.shape, [])
        group.append(image)
        if len(group) >= reader.batch:
            yield waiting.pop(image.view.shape)
    yield from waiting.values()


def _responses(reader: Readable, batch: Sequence[LoadedImage]) -> Mapping[str, Responses] | None:
    """Returns None if the batch needs more memory than the GPU has and can be halved."""
    try:
        return reader.responses([image.view for image in batch], [image.recipe for image in batch])
    except ServiceError as error:
        if len(batch) == 1 or not isinstance(error.__cause__, torch.OutOfMemoryError):
            raise
    # Only here, where the error no longer holds the tensors of the failed pass.
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    return None


class FirstPass:
    """Collects the statistics of the layers of `scales`, with `k` exemplars per unit and kind."""

    def __init__(self, reader: Readable, order: Order, scales: Scales, k: int):
        self._reader, self._order, self._scales, self._k = reader, order, scales, k
        self._sample = frozenset(order.sample(sample_size(k)))
        self._layers: dict[str, Accumulator] = {}

    def take(self, images: Iterable[LoadedImage]) -> None:
        """Adds the responses to images to the statistics."""
        with torch.inference_mode():
            for batch, found in run_batches(self._reader, images):
                device = _device(next(iter(found.values())))
                numbers = [image.number for image in batch]
                starts = [self._order.start(number) for number in numbers]
                on_device = _moved([numbers, starts], device)
                numbered = NumberedImages(numbers, on_device[0], on_device[1])
                for layer, scale in self._scales.items():
                    if layer not in self._layers:
                        self._layers[layer] = Accumulator(scale, self._k, self._sample, device)
                    self._layers[layer].take(numbered, found[layer])

    def summaries(self) -> Summaries:
        """Returns the statistics over all images so far, of which there must be some."""
        with torch.inference_mode():
            return {layer: accumulator.total() for layer, accumulator in self._layers.items()}


def _device(responses: Responses) -> torch.device:
    return responses.values.device if isinstance(responses, SparseResponses) else responses.device


def _moved(numbers: Sequence[Sequence[int]], device: torch.device) -> torch.Tensor:
    # From pinned memory: a copy from other memory waits until the GPU has finished its work.
    return torch.tensor(numbers, pin_memory=device.type == "cuda").to(device, non_blocking=True)


Chosen = dict[ExemplarKind, tuple[Floats, Ints]]
"""For each kind of exemplars of a layer the activations and the image numbers by rank, both of shape (units, at most k), or
(units, LEVELS) for `levels`, where the number is -1 if there is no image."""


def choose(summary: Summary, order: Order) -> Chosen:
    """Selects the exemplars of each unit of a layer from its statistics over the whole dataset."""
    sample = order.sample(sample_size(summary.k))
    numbers = np.array(sample, dtype=np.int64)
    values = round_values(np.stack([summary.sampled[n] for n in sample], axis=1).astype(np.float64))
    ids = np.broadcast_to(numbers, values.shape)
    return {
        "top": summary.top,
        "bottom": summary.bottom,
        "random": (values[:, : summary.k], ids[:, : summary.k]),
        "ladder": _ladder(summary, values, ids),
        "levels": _levels(summary),
    }


def _levels(summary: Summary) -> tuple[Floats, Ints]:
    units = len(summary.scales)
    values, numbers = np.zeros((units, LEVELS)), np.full((units, LEVELS), -1, dtype=np.int64)
    for unit, (low, high) in enumerate(zip(summary.bottom[0][:, 0], summary.top[0][:, 0], strict=True)):
        own, ids = summary.level_images(unit)
        scaled = torch.from_numpy((own / summary.scales[unit]).astype(np.float32))
        # By the middle of the bin, as the images of a level are counted.
        middles = histogram.find_middles(
            find_bins(scaled).numpy().astype(np.int64), float(summary.scales[unit]), low, high
        )
        levels = find_levels(middles, low, high)
        for at in np.argsort(-ids):
            values[unit, levels[at]], numbers[unit, levels[at]] = own[at], ids[at]
    return values, numbers


def _ladder(summary: Summary, values: Floats, ids: Ints) -> tuple[Floats, Ints]:
    # With the extremes, which the sample may lack, the ladder leads from the lowest to the highest activation.
    top, bottom = summary.top, summary.bottom
    values = np.concatenate([values, top[0][:, :1], bottom[0][:, :1]], axis=1)
    ids = np.concatenate([ids, top[1][:, :1], bottom[1][:, :1]], axis=1)
    order = np.argsort(-values, axis=1, kind="stable")
    values, ids = np.take_along_axis(values, order, axis=1), np.take_along_axis(ids, order, axis=1)
    rungs_of: list[tuple[Floats, Ints]] = []
    for row, row_ids in zip(values, ids, strict=True):
        _, first = np.unique(row_ids, return_index=True)
        once = np.sort(first)
        at = once[np.round(np.linspace(len(once) - 1, 0, min(summary.k, len(once)))).astype(int)]
        rungs_of.append((row[at], row_ids[at]))
    length = min(len(ids) for _, ids in rungs_of)
    return np.stack([v[:length] for v, _ in rungs_of]), np.stack([i[:length] for _, i in rungs_of])


Places = npt.NDArray[np.void]
"""Exemplars that are chosen, but not stored yet: an array of _PLACE, ordered by the number of the image."""

_PLACE = np.dtype([
    ("number", np.int64), ("layer", np.int32), ("unit", np.int32), ("kind", np.int8), ("rank", np.int32),
    ("activation", np.float64),
])  # fmt: skip
"""Number of the image, index of the layer, the unit, index of the kind in KINDS, rank, and the unit's activation."""


def list_places(chosen: Mapping[str, Chosen]) -> Places:
    """Returns the chosen exemplars of all layers, which are numbered in the order of `chosen`."""
    parts: list[Places] = []
    for layer, kinds in enumerate(chosen.values()):
        for kind, (values, numbers) in kinds.items():
            part = np.empty(numbers.shape, dtype=_PLACE)
            part["number"], part["activation"] = numbers, values
            part["layer"], part["kind"] = layer, KINDS.index(kind)
            part["unit"], part["rank"] = np.arange(len(numbers))[:, None], np.arange(numbers.shape[1])
            parts.append(part[numbers >= 0])
    places = np.concatenate(parts)
    return places[np.argsort(places["number"], kind="stable")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """An image that is an exemplar of some units."""

    number: int
    image: EncodedImage
    box: ViewBox
    """The part of the image that the network sees."""
    places: Places
    """The exemplars that it is."""
    maps: Sequence[Map | None]
    """For each of these exemplars the activation map, or None if the layer has no positions."""


def second_pass(
    reader: Readable, images: Iterable[LoadedImage], layers: Sequence[str], places: Places
) -> Iterator[Kept]:
    """Yields images with the activation maps of their exemplars. Only these maps leave the device of the target.

    Args:
        reader: The target.
        images: The images, with their encodings for the store.
        layers: Names of the layers by index.
        places: All exemplars that these images are.
    """
    for batch, found in run_batches(reader, images):
        ends = [np.searchsorted(places["number"], image.number + each) for image in batch for each in (0, 1)]
        own = [places[start:end] for start, end in zip(ends[::2], ends[1::2], strict=True)]
        row_of = np.repeat(np.arange(len(batch)), [len(each) for each in own])
        joined = np.concatenate(own)
        maps: list[Map | None] = [None] * len(joined)
        for index, layer in enumerate(layers):
            at = np.flatnonzero(joined["layer"] == index)
            if len(at) and _has_maps(values := found[layer]):
                picked = _moved([row_of[at].tolist(), joined["unit"][at].tolist()], _device(values))
                for row, small in zip(at.tolist(), _chosen(values, picked).cpu().numpy(), strict=True):
                    maps[row] = small
        start = 0
        for image, mine in zip(batch, own, strict=True):
            assert image.kept is not None
            small_maps = maps[start : start + len(mine)]
            yield Kept(number=image.number, image=image.kept, box=image.box, places=mine, maps=small_maps)
            start += len(mine)


def _has_maps(responses: Responses) -> bool:
    return len(responses.positions) == 2 if isinstance(responses, SparseResponses) else responses.ndim == 4


def _chosen(responses: Responses, picked: torch.Tensor) -> torch.Tensor:
    """Returns the maps of pairs of an image and a unit, given in shape (2, pairs)."""
    if isinstance(responses, SparseResponses):
        return responses.chosen(picked[0], picked[1])
    return responses[picked[0], picked[1]]


def describe_units(info: TargetInfo, layer: str, summary: Summary, quantile: float) -> list[UnitExemplars]:
    """Returns the statistics of each unit of a layer, without exemplars.

    A unit's mask threshold is `info.mask_threshold`, or else this quantile of its activations over all positions and images.
    """
    given = info.mask_threshold
    values, squares, positive, peaks, peak_squares = summary.sums
    mean = values / summary.positions_seen
    variance = np.maximum(squares / summary.positions_seen - mean**2, 0)
    peak_mean = peaks / summary.seen
    peak_std = np.sqrt(np.maximum(peak_squares / summary.seen - peak_mean**2, 0))
    highest, lowest = summary.top[0][:, 0], summary.bottom[0][:, 0]
    floor = np.full(len(highest), -np.inf)
    asked = sorted({*QUANTILES, quantile})
    names = info.classes if layer == OUTPUT and len(info.classes) == len(highest) else [""] * len(highest)
    found = histogram.estimate_quantiles(summary.positions, summary.scales, floor, highest, asked)
    levels = dict(zip(asked, found, strict=True))
    maxima = histogram.estimate_quantiles(
        summary.maxima, summary.scales, lowest, highest, [q / 100 for q in range(1, 100)]
    )
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
            counts=_counts(summary, unit, lowest[unit], highest[unit]),
            class_name=names[unit],
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


def _counts(summary: Summary, unit: int, low: float, high: float) -> ActivationCounts:
    values, images = histogram.list_filled(summary.maxima[unit], float(summary.scales[unit]), low, high)
    return ActivationCounts(values=values, images=images)


def _state(broken: bool, dead: bool) -> UnitState:
    return "not finite" if broken else "dead" if dead else "ok"


def _threshold(summary: Summary, unit: int, threshold: float, highest: float) -> float:
    if threshold < highest:
        return threshold
    # No activation of a saturated unit exceeds its maximum. The highest filled bin below that ends its masks instead.
    edges: Any = histogram.list_edges() * float(summary.scales[unit])
    filled = np.flatnonzero(summary.positions[unit])
    below = [at for at in filled if edges[at + 1] < highest]
    return float(edges[below[-1] + 1]) if below else threshold
