"""Computes the exemplars (strongest, weakest and random images) of all units of layers, in two passes over the images.

Layers whose exemplars are in the store are left out. The first pass collects statistics and selects the images to keep
for each unit. The second pass stores the selected images and their activation maps. Several workers may share this job:
the images are divided into shards, and the results of finished shards are saved in the store, so that an interrupted
job continues where it stopped.
"""

import hashlib
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import islice

import numpy as np

from openmaia.config.schema import Config
from openmaia.core.components import target_class
from openmaia.core.errors import UsageError
from openmaia.core.paths import user_path
from openmaia.core.units import TargetInfo
from openmaia.datasets.library import DatasetImage, ImageDataset
from openmaia.exemplars import passes
from openmaia.exemplars.loading import PROCESSES, ImageLoader
from openmaia.exemplars.store import ExemplarStore
from openmaia.exemplars.summary import Summary
from openmaia.exemplars.work import Work
from openmaia.runs.lease import held

SHARD = 64
"""Number of images in a shard. Whether a shard is finished is what an interrupted job knows."""

GPU_SHARDS = 64
"""Number of shards that a worker with a GPU finishes together. Images of equal shape in them share a batch."""

EXCITING = 95
"""Percentile of the activations on all images below which the weakest of a unit's top exemplars are said to excite it
little. With 15 exemplars, 300 images reach it."""

ProgressCallback = Callable[[int, int], None]
"""Called with the number of processed images and the total number. Each image is counted once in each of the two passes
over the images, so the total is twice the number of images."""


def exemplar_images(config: Config, dataset: ImageDataset) -> list[DatasetImage]:
    """Returns the images from which exemplars are chosen, without duplicates and sorted by digest.

    If the config names a folder in `exemplars.folder`, these are all its images. Otherwise they are the images of the
    dataset's explore split, which are never used to test descriptions. If the config's `pictures.limit` is above 0, it
    is the maximum number of images.

    Raises:
        UsageError: There are no such images.
    """
    dataset = _source(config, dataset)
    if config.exemplars.folder:
        items = list(dataset.items)
    else:
        items = [*dataset.photos("explore"), *dataset.cutouts("explore"), *dataset.textures("explore")]
    unique = {item.digest: item for item in items}
    chosen = [unique[digest] for digest in sorted(unique)][: config.pictures.limit or None]
    if not chosen:
        left_out = f" (left out: {dataset.left_out})" if dataset.left_out else ""
        raise UsageError(
            f"{dataset.root} has no image to take exemplars from{left_out}; descriptions are tested on one half of the "
            "images, and exemplars come from the other: give a folder with more images"
        )
    return chosen


def _source(config: Config, dataset: ImageDataset) -> ImageDataset:
    folder = config.exemplars.folder
    return ImageDataset.open(user_path(folder), is_divided=False) if folder else dataset


def open_store(config: Config, info: TargetInfo, items: Sequence[DatasetImage]) -> ExemplarStore:
    """Opens the store for exemplars of a target (the network under study) on a dataset.

    Args:
        config: Names the folder of the store and the parameters of the exemplars.
        info: Description of the target.
        items: The images from which exemplars are chosen.

    Raises:
        UsageError: The store holds exemplars of another network, of other images or with other parameters.
    """
    store = ExemplarStore.at(config.paths.exemplars, info.name, config.exemplars.dataset or config.pictures.kind)
    store.claim(
        {
            "target": info.name,
            "network": info.digest,
            "preprocess": info.preprocessing,
            "pictures": hashlib.sha256("".join(item.digest for item in items).encode()).hexdigest(),
            "k": config.exemplars.k,
            "quantile": config.exemplars.quantile,
            **target_class(config.target).exemplar_facts(config.target),
        }
    )
    return store


def compute_exemplars(
    worker: "ExemplarWorker",
    layers: Sequence[str],
    progress: ProgressCallback = lambda done, total: None,
    say: Callable[[str], None] = lambda line: None,
) -> ExemplarStore:
    """Computes, in this process, the exemplars of those layers that the worker's store lacks, and returns the store.

    If another process is computing exemplars of the same store, this function waits until that process has finished.

    Args:
        worker: Holds the network, the images and the store.
        layers: Names of the layers.
        progress: Called with the number of processed images and the total, see `ProgressCallback`.
        say: Receives messages for the user.
    """

    def compute(missing: list[str]) -> None:
        job = worker.begin(missing)
        done = job.images - sum(worker.images(shard) for shard in job.first)

        def advanced(images: int) -> None:
            nonlocal done
            done += images
            progress(done, 2 * job.images)

        worker.first(job.first, advanced)
        worker.save()
        second = worker.choose()
        each = job.images / max(len(second), 1)
        worker.second(second, lambda shards: progress(round(job.images + each * shards), 2 * job.images))
        worker.finish()

    compute_alone(worker.store, lambda: worker.missing(layers), compute, say)
    return worker.store


def compute_alone(
    store: ExemplarStore,
    missing: Callable[[], list[str]],
    compute: Callable[[list[str]], None],
    say: Callable[[str], None],
) -> None:
    """Computes the exemplars of the layers that a store lacks. Only one process at a time computes for a store.

    If another process is computing exemplars for the store, this function waits until that process has finished. It
    then computes only the layers that are still missing.

    Args:
        store: The store.
        missing: Returns the names of the layers that the store lacks.
        compute: Computes the exemplars of the layers with the given names.
        say: Receives a message for the user if the function has to wait.
    """
    if missing():
        with held(store.files, say):
            # The other process may have computed some of them.
            if left := missing():
                compute(left)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExemplarJob:
    """The work that the first pass over the images still has to do for a computation of exemplars.

    The first pass collects statistics of the activations of all units.
    """

    images: int
    """Number of all images, including those that the first pass has processed."""
    first: list[int]
    """Indices of the shards (groups of images, see `SHARD`) that the first pass has not processed yet."""


@dataclass(slots=True)
class _State:
    """State of one worker after it has joined a job."""

    work: Work
    scales: passes.Scales
    first: passes.FirstPass
    name: str = field(default_factory=lambda: uuid.uuid4().hex[:12])
    shards: list[int] = field(default_factory=list[int])
    merged: dict[str, Summary] | None = None
    """The statistics of all workers together, by layer. None until they are merged at the end of the first pass."""
    saved: float = field(default_factory=time.monotonic)


class ExemplarWorker:
    """Computes exemplars with a target network. Several workers can share one job (the exemplars of some layers).

    Workers exchange their results through files of the store. The methods are called in this order: each worker calls
    `begin` or `join`, `first` for its shards of images, and `save`. Once all have saved, one worker calls `choose`. The
    workers call `second` for the shards that it returns. One worker calls `finish` at the end.

    Args:
        config: Names the folder of the store and the parameters of the exemplars.
        target: The network whose layers are read.
        dataset: The images from which exemplars are chosen, unless the config names others in `exemplars.folder`.
    """

    def __init__(self, config: Config, target: passes.Readable, dataset: ImageDataset):
        self._config = config
        self._reader = target
        self._dataset = dataset
        self._items = exemplar_images(config, dataset)
        self._order = passes.Order([item.digest for item in self._items])
        # A GPU is faster than threads that share one interpreter lock. A network on a CPU needs the cores itself.
        self._loader = ImageLoader(self._items, target.view, PROCESSES if target.batch > 1 else 0)
        self._together = GPU_SHARDS if target.batch > 1 else 1
        self._state: _State | None = None
        self.store = open_store(config, self._reader.info(), self._items)

    def dataset_remarks(self) -> list[str]:
        """Returns what a user should know about the images, such as which were skipped; see `ImageDataset.remarks`."""
        source = _source(self._config, self._dataset)
        return list(dict.fromkeys([*self._dataset.remarks, *source.remarks]))

    def remark(self) -> str:
        """Returns how many images exemplars come from, as a sentence that warns if they are few."""
        k, images = self._config.exemplars.k, len(self._items)
        reached = max(100 * (1 - k / images), 0)
        if reached >= EXCITING:
            return f"exemplars: the {k} most exciting of {images:,} images"
        return (
            f"exemplars: the {k} most exciting of only {images} images, down to percentile {reached:.0f} of them: even images "
            f"that excite a unit little are shown as its exemplars; give {k * 100 // (100 - EXCITING)} images or more for "
            "exemplars (half of the pictures), or a smaller exemplars.k"
        )

    def info(self) -> TargetInfo:
        """Returns properties of the target (network under study), such as its name and its layers."""
        return self._reader.info()

    def open_store(self) -> ExemplarStore:
        """Returns the store to which the exemplars are written."""
        return self.store

    def missing(self, layers: Sequence[str]) -> list[str]:
        """Returns the given layers that have no exemplars in the store, without duplicates."""
        return [layer for layer in dict.fromkeys(layers) if not self.store.units(layer)]

    def begin(self, layers: Sequence[str]) -> ExemplarJob:
        """Joins the computation of the exemplars of these layers (see `join`), and returns the unfinished work.

        Further calls return the work that is unfinished at that time.

        Returns:
            The shards of images that the first pass, which collects statistics of the units, has not processed yet.
        """
        self.join(layers)
        state = self._joined
        shards = range(-(-len(self._items) // SHARD))
        done = state.work.done_first()
        missing = [shard for shard in shards if shard not in done]
        return ExemplarJob(images=len(self._items), first=missing)

    def join(self, layers: Sequence[str]) -> None:
        """Lets this worker take part in the computation of the exemplars of these layers.

        A worker can take part in one computation only. Further calls have no effect.

        All workers must divide the activations of a unit by the same number, its histogram scale (see histogram.py).
        The scales are loaded from the store. If they are missing there, they are computed from a sample of the images
        and saved.
        """
        if self._state is None:
            work = Work(self.store, tuple(layers), self._config.exemplars.k)
            scales = work.scales()
            if scales is None:
                sample = self._order.sample(passes.SCALED_ON)
                scales = passes.scales(self._reader, layers, self._loader.load(sample))
                work.save_scales(scales)
            first = passes.FirstPass(self._reader, self._order, scales, work.k)
            self._state = _State(work, scales, first)

    def images(self, shard: int) -> int:
        """Returns the number of images in a shard of the first pass."""
        return len(self._shard(shard))

    def first(self, shards: Sequence[int], progress: Callable[[int], None] = lambda images: None) -> None:
        """Adds the activations on the images of shards to this worker's statistics (first pass over the images).

        The statistics are saved whenever the config's `ray.save_seconds` have passed since they were last saved.

        Args:
            shards: Indices of the shards, as in `ExemplarJob.first`.
            progress: Called with the number of images that were processed since its last call.
        """
        state = self._joined
        # One pipeline for all shards: a new one for each would leave the network without images at first.
        images = self._loader.load([number for shard in shards for number in self._shard(shard)])
        for first in range(0, len(shards), self._together):
            portion = shards[first : first + self._together]
            count = sum(self.images(shard) for shard in portion)
            state.first.take(islice(images, count))
            state.shards += portion
            progress(count)
            if time.monotonic() - state.saved >= self._config.ray.save_seconds:
                self.save()

    def save(self) -> None:
        """Saves this worker's statistics from the first pass. They replace those that it saved before."""
        state = self._joined
        if state.shards:
            state.work.save_first(state.name, state.shards, state.first.summaries())
        state.saved = time.monotonic()

    def choose(self) -> list[tuple[int, passes.Places]]:
        """Selects the images to store as exemplars, from the statistics that all workers have saved in the first pass.

        The selected images are divided into new shards, which are not those of the first pass.

        Returns:
            The shards that the second pass has not stored yet: the index of each, and the exemplars that its images
            become.
        """
        state = self._joined
        places = passes.wanted({layer: passes.choose(found, self._order) for layer, found in self._merged().items()})
        starts = np.unique(places["number"], return_index=True)[1][::SHARD]
        shards = enumerate(np.split(places, starts[1:]))
        done = state.work.done_second()
        return [(shard, own) for shard, own in shards if shard not in done]

    def second(
        self, shards: Sequence[tuple[int, passes.Places]], progress: Callable[[int], None] = lambda shards: None
    ) -> None:
        """Stores the selected images of shards with their activation maps (second pass).

        Args:
            shards: Some of the shards that `choose` returned.
            progress: Called with the number of shards that are finished.
        """
        state = self._joined
        numbers = {shard: np.unique(places["number"]).tolist() for shard, places in shards}
        images = self._loader.load([number for each in numbers.values() for number in each], encoded=True)
        for first in range(0, len(shards), self._together):
            portion = shards[first : first + self._together]
            places = np.concatenate([places for _, places in portion])
            own = islice(images, sum(len(numbers[shard]) for shard, _ in portion))
            kept = {each.number: each for each in passes.second_pass(self._reader, own, state.work.layers, places)}
            for shard, _ in portion:
                state.work.save_second(shard, [kept[number] for number in numbers[shard]])
            progress(first + len(portion))

    def finish(self) -> None:
        """Writes the exemplars of the layers given to `join` to the store, from the saved results of both passes.

        A call that was interrupted can be repeated.
        """
        state = self._joined
        if not self.missing(state.work.layers):
            return
        info, quantile = self._reader.info(), self._config.exemplars.quantile
        units = {layer: passes.unit_rows(info, layer, found, quantile) for layer, found in self._merged().items()}
        state.work.finish(units)

    def _merged(self) -> dict[str, Summary]:
        state = self._joined
        if state.merged is None:
            state.merged = state.work.merged(state.scales)
        return state.merged

    @property
    def _joined(self) -> _State:
        assert self._state is not None, "join or begin comes first"
        return self._state

    def _shard(self, shard: int) -> range:
        return range(shard * SHARD, min((shard + 1) * SHARD, len(self._items)))
