"""Computes the exemplars of all units of layers, in two passes over the images.

The first pass collects statistics and selects the images of each unit. The second pass stores these images and their
activation maps. Several workers may share a pass. A pass that ended is not repeated: the store holds its result.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from itertools import islice

import numpy as np

from openmaia.config.schema import Config
from openmaia.core.components import target_class
from openmaia.core.errors import UsageError
from openmaia.core.paths import user_path
from openmaia.core.services import Classifier, Effects, find_effects
from openmaia.core.units import TargetInfo
from openmaia.datasets.library import DatasetImage, ImageDataset
from openmaia.exemplars import passes
from openmaia.exemplars.drives import KeptDrives
from openmaia.exemplars.loading import PROCESSES, ImageLoader, LoadedImage
from openmaia.exemplars.shared import PORTION_GPU, ProgressCallback, attributing, compute_alone
from openmaia.exemplars.store import ExemplarStore
from openmaia.exemplars.summary import Summaries
from openmaia.exemplars.work import Work

_PORTION = 256
"""Number of images that the second pass holds until it writes them."""

_EXCITING = 95
"""Percentile of the activations on all images below which the weakest of a unit's top exemplars are said to excite it
little. With 15 exemplars, 300 images reach it."""


def list_images(config: Config, dataset: ImageDataset) -> list[DatasetImage]:
    """Returns the images from which exemplars are chosen, without duplicates and sorted by digest.

    They are the images of `exemplars.folder`, or else of the dataset's explore split, at most `pictures.limit`.

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
    """Opens the store for exemplars of a target on these images.

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
    """Computes, in this process, the exemplars of those layers that the worker's store lacks, and returns the store."""

    def compute(missing: list[str]) -> None:
        images = worker.count()
        total = 2 * images
        places = worker.resume(missing)
        if places is None:
            numbers = range(images)
            found = worker.first(worker.scales(missing), numbers, lambda done: progress(done, total))
            places = worker.choose(found)
        each = images / max(len(np.unique(places["number"])), 1)
        parts = worker.second(missing, places, lambda done: progress(round(images + each * done), total))
        worker.finish(missing, parts)

    compute_alone(worker.store, lambda: worker.missing(layers), compute, say)
    return worker.store


def compute_drives(
    worker: "ExemplarWorker",
    layers: Sequence[str],
    progress: ProgressCallback = lambda done, total: None,
    say: Callable[[str], None] = lambda line: None,
) -> Effects:
    """Computes, in this process, what the units of those layers raise of which the worker's store does not have it, after their
    exemplars. Returns the effects of the target with what is stored then."""

    def keep(missing: list[str]) -> None:
        say(attributing(missing))
        for sentence in worker.keep_drives(missing, progress):
            say(sentence)

    compute_alone(worker.store, lambda: worker.without_drives(layers), keep, say)
    return worker.effects_with_drives(layers)


class ExemplarWorker:
    """Computes exemplars with a target. Several workers can share the calls of `first`, and those of `second`.

    The images are those of `list_images`, numbered in their order.
    """

    def __init__(self, config: Config, target: passes.Readable, dataset: ImageDataset):
        self._config = config
        self._reader = target
        self._dataset = dataset
        self._items = list_images(config, dataset)
        self._order = passes.Order([item.digest for item in self._items])
        # A GPU is faster than threads that share one interpreter lock. A network on a CPU needs the cores itself.
        self._loader = ImageLoader(self._items, target.view, PROCESSES if target.batch > 1 else 0)
        self._portion = PORTION_GPU if target.batch > 1 else _PORTION
        self.store = open_store(config, self._reader.info(), self._items)

    def dataset_remarks(self) -> list[str]:
        """Returns `ImageDataset.remarks` of the dataset and of the images of exemplars."""
        source = _source(self._config, self._dataset)
        return list(dict.fromkeys([*self._dataset.remarks, *source.remarks]))

    def remark(self) -> str:
        """Returns a sentence on how many images exemplars come from, which warns if they are few."""
        k, images = self._config.exemplars.k, len(self._items)
        reached = max(100 * (1 - k / images), 0)
        if reached >= _EXCITING:
            return f"exemplars: the {k} most exciting of {images:,} images"
        return (
            f"exemplars: the {k} most exciting of only {images} images, down to percentile {reached:.0f} of them: even images "
            f"that excite a unit little are shown as its exemplars; give {k * 100 // (100 - _EXCITING)} images or more for "
            "exemplars (half of the pictures), or a smaller exemplars.k"
        )

    def info(self) -> TargetInfo:
        """Returns the properties of the target."""
        return self._reader.info()

    def effects(self) -> Effects:
        """Returns which effects of the target's units can be measured: none unless it is a classifier."""
        return find_effects(self._reader)

    def without_drives(self, layers: Sequence[str]) -> list[str]:
        """As `KeptDrives.missing`."""
        return self._drives.missing(layers)

    def keep_drives(self, layers: Sequence[str], progress: ProgressCallback = lambda done, total: None) -> list[str]:
        """As `KeptDrives.keep`."""
        return self._drives.keep(layers, progress)

    def effects_with_drives(self, layers: Sequence[str]) -> Effects:
        """As `KeptDrives.effects`."""
        return self._drives.effects(layers)

    @cached_property
    def _drives(self) -> KeptDrives:
        assert isinstance(self._reader, Classifier), "asked only of a target that has effects"
        return KeptDrives(self.store, self._reader, self._reader.info())

    def open_store(self) -> ExemplarStore:
        """Returns the store, for callers in other processes."""
        return self.store

    def count(self) -> int:
        """Returns the number of images."""
        return len(self._items)

    def missing(self, layers: Sequence[str]) -> list[str]:
        """Returns the given layers that have no exemplars in the store, without duplicates."""
        return [layer for layer in dict.fromkeys(layers) if not self.store.units(layer)]

    def resume(self, layers: Sequence[str]) -> passes.Places | None:
        """Returns what an earlier first pass over these layers chose, or None if none ended.

        Deletes what an interrupted second pass has left.
        """
        work = self._work(layers)
        work.delete_parts()
        return work.places()

    def scales(self, layers: Sequence[str]) -> passes.Scales:
        """Measures the histogram scales of all units on a sample of the images. All shares of a pass need the same."""
        return passes.measure_scales(self._reader, layers, self._loader.load(self._order.sample(passes.SCALED_ON)))

    def first(
        self, scales: passes.Scales, numbers: Sequence[int], progress: Callable[[int], None] = lambda images: None
    ) -> Summaries:
        """Makes the first pass over the images with these numbers, and returns the statistics of the layers of `scales`.

        `progress` is called with the number of images so far.
        """
        first = passes.FirstPass(self._reader, self._order, scales, self._config.exemplars.k)
        # One pipeline for all portions: a new one for each would leave the network without images at first.
        images = _counted(self._loader.load(numbers), progress)
        for _ in range(0, len(numbers), self._portion):
            first.take(islice(images, self._portion))
        progress(len(numbers))
        return first.summaries()

    def choose(self, summaries: Summaries) -> passes.Places:
        """Selects the images of each unit from the statistics over all images. This ends the first pass."""
        places = passes.list_places({layer: passes.choose(found, self._order) for layer, found in summaries.items()})
        info, quantile = self._reader.info(), self._config.exemplars.quantile
        units = {layer: passes.describe_units(info, layer, found, quantile) for layer, found in summaries.items()}
        self._work(list(summaries)).save_first(units, places)
        return places

    def second(
        self, layers: Sequence[str], places: passes.Places, progress: Callable[[int], None] = lambda images: None
    ) -> list[str]:
        """Stores images with the activation maps of their exemplars, and returns the names of the files.

        Args:
            layers: The layers, in the order in which they were given to `scales`.
            places: All chosen exemplars of some of the images.
            progress: Called with the number of images so far.
        """
        work, parts = self._work(layers), list[str]()
        numbers = np.unique(places["number"]).tolist()
        images = _counted(self._loader.load(numbers, encoded=True), progress)
        for _ in range(0, len(numbers), self._portion):
            kept = list(passes.second_pass(self._reader, islice(images, self._portion), layers, places))
            parts.append(work.save_part(kept))
        progress(len(numbers))
        return parts

    def finish(self, layers: Sequence[str], parts: Sequence[str]) -> None:
        """Writes the exemplars to the store, which ends the second pass. Can be repeated.

        Args:
            layers: The layers, in the order in which they were given to `scales`.
            parts: The results of all calls of `second`.
        """
        if self.missing(layers):
            self._work(layers).finish(parts)

    def _work(self, layers: Sequence[str]) -> Work:
        return Work(self.store, tuple(layers))


def _counted(images: Iterable[LoadedImage], progress: Callable[[int], None]) -> Iterator[LoadedImage]:
    for done, image in enumerate(images, 1):
        yield image
        progress(done)
