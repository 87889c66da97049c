"""Makes the exemplars that a run needs and its store lacks: all units of the layers, in two passes over the pictures."""

import hashlib
import os
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

import numpy as np

from openmaia import build
from openmaia.dissection import passes
from openmaia.dissection.summary import Summary
from openmaia.dissection.work import Work
from openmaia.errors import UsageError
from openmaia.images import Pixels, flatten
from openmaia.pictures.library import Item, Library
from openmaia.schema import Config
from openmaia.store.exemplars import ExemplarStore
from openmaia.units import TargetInfo

LARGEST = 640
"""Pixels of a dataset picture's longer side: more than any network here looks at."""

DECODERS = min(os.cpu_count() or 1, 8)
"""Threads that decode pictures; decoding leaves the interpreter to others."""

AHEAD = 64
"""Decoded pictures that may wait for the network."""

SHARD = 64
"""Pictures that one worker takes at a time."""

Progress = Callable[[int, int], None]


def dataset(config: Config, pictures: Library) -> list[Item]:
    """The pictures that exemplars come from: everything of the explore half, each once, in the order of the digests; or all
    of exemplars.folder, where there is one."""
    if config.exemplars.folder:
        pictures = Library.open(Path(config.exemplars.folder).expanduser())
        items = list(pictures.items)
    else:
        items = [*pictures.photos("explore"), *pictures.cutouts("explore"), *pictures.textures("explore")]
    unique = {item.digest: item for item in items}
    chosen = [unique[digest] for digest in sorted(unique)][: config.pictures.limit or None]
    if not chosen:
        left_out = f" (left out: {pictures.left_out})" if pictures.left_out else ""
        raise UsageError(
            f"{pictures.root} has no picture to take exemplars from{left_out}; descriptions are tested on one half of the "
            "pictures, and exemplars come from the other: give a folder with more pictures"
        )
    return chosen


def store_of(config: Config, info: TargetInfo, items: Sequence[Item]) -> ExemplarStore:
    """Where exemplars of this target on these pictures are kept. Raises UsageError where something else is."""
    store = ExemplarStore.at(config.paths.exemplars, info.name, config.exemplars.dataset or config.pictures.kind)
    store.claim(
        {
            "target": info.name,
            "network": info.digest,
            "preprocess": config.target.preprocess,
            "shuffled": config.target.shuffled,
            "pictures": hashlib.sha256("".join(item.digest for item in items).encode()).hexdigest(),
            "k": config.exemplars.k,
            "quantile": config.exemplars.quantile,
        }
    )
    return store


def make(
    config: Config,
    layers: Sequence[str],
    say: build.Say = lambda line: None,
    progress: Progress = lambda done, total: None,
) -> ExemplarStore:
    """Computes what the store lacks, in this process."""
    worker = Worker(config, say)
    owed = worker.owed(layers)
    if owed:
        job = worker.begin(owed)
        for shard in job.first:
            worker.first(shard)
            progress(min((shard + 1) * SHARD, job.pictures), 2 * job.pictures)
        worker.save()
        second = worker.choose()
        for done, (shard, places) in enumerate(second, start=1):
            worker.second(shard, places)
            progress(job.pictures + done * job.pictures // len(second), 2 * job.pictures)
        worker.finish()
    return worker.store


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """first: the shards of the first pass that are owed."""

    pictures: int
    first: list[int]


Places = dict[int, list[passes.Wanted]]


@dataclass(slots=True)
class _State:
    """Of one worker in the first pass."""

    work: Work
    scales: passes.Scales
    first: passes.FirstPass
    name: str = field(default_factory=lambda: uuid.uuid4().hex[:12])
    shards: list[int] = field(default_factory=list[int])
    merged: dict[str, Summary] | None = None
    """What all workers have found, once the first pass has ended."""
    saved: float = field(default_factory=time.monotonic)


class Worker:
    """Holds the network and the pictures. Several of them share one job; what they write adds up."""

    def __init__(self, config: Config, say: build.Say = lambda line: None):
        self._config = config
        self._reader = build.target(config)
        self._items = dataset(config, build.library(config, say))
        self._order = passes.Order([item.digest for item in self._items])
        self._state: _State | None = None
        self.store = store_of(config, self._reader.info(), self._items)

    def info(self) -> TargetInfo:
        return self._reader.info()

    def found(self) -> ExemplarStore:
        return self.store

    def owed(self, layers: Sequence[str]) -> list[str]:
        return [layer for layer in dict.fromkeys(layers) if not self.store.units(layer)]

    def begin(self, layers: Sequence[str]) -> Job:
        """Fixes the histograms' bounds, where nobody has yet, and says what is owed."""
        self.join(layers)
        state = self._joined
        shards = range(-(-len(self._items) // SHARD))
        done = state.work.done_first()
        owed = [shard for shard in shards if shard not in done]
        return Job(pictures=len(self._items), first=owed)

    def join(self, layers: Sequence[str]) -> None:
        if self._state is None:
            work = Work(self.store, tuple(layers), self._config.exemplars.k)
            scales = work.scales()
            if scales is None:
                sample = self._order.sample(passes.SCALED_ON)
                scales = passes.scales(self._reader, layers, (picture for _, picture in self._pictures(sample)))
                work.save_scales(scales)
            first = passes.FirstPass(self._reader, self._order, scales, work.k)
            self._state = _State(work, scales, first)

    def first(self, shard: int) -> bool:
        """Takes in one shard. Whether everything taken in so far is saved."""
        state = self._joined
        state.first.take(self._pictures(self._shard(shard)))
        state.shards.append(shard)
        if time.monotonic() - state.saved < self._config.ray.save_seconds:
            return False
        self.save()
        return True

    def save(self) -> None:
        state = self._joined
        if state.shards:
            state.work.save_first(state.name, state.shards, state.first.summaries())
        state.saved = time.monotonic()

    def choose(self) -> list[tuple[int, Places]]:
        """After the first pass: the shards of the second that are owed, with what each picture is kept for."""
        state = self._joined
        merged = self._merged()
        places = passes.wanted({layer: passes.choose(summary, self._order) for layer, summary in merged.items()})
        numbers = sorted(places)
        shards = [numbers[at : at + SHARD] for at in range(0, len(numbers), SHARD)]
        done = state.work.done_second()
        return [(i, {n: places[n] for n in shard}) for i, shard in enumerate(shards) if i not in done]

    def second(self, shard: int, places: Places) -> None:
        kept = passes.second_pass(self._reader, self._pictures(sorted(places)), self._order.digests, places)
        self._joined.work.save_second(shard, kept)

    def finish(self) -> None:
        """Again after a finish that was cut short, too."""
        state = self._joined
        if not self.owed(state.work.layers):
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

    def _pictures(self, numbers: Sequence[int]) -> Iterator[tuple[int, Pixels]]:
        """Decoded by threads of their own, a little ahead of whoever looks at them."""
        ahead: deque[Future[Pixels]] = deque()
        with ThreadPoolExecutor(DECODERS) as threads:
            left = iter(numbers)
            for number in numbers:
                ahead.extend(threads.submit(self._decoded, n) for n in islice(left, AHEAD - len(ahead)))
                yield number, ahead.popleft().result()

    def _decoded(self, number: int) -> Pixels:
        try:
            image = self._items[number].load()
        except ValueError as error:
            raise UsageError(f"a picture was changed while exemplars were computed ({error}); start again") from error
        image.thumbnail((LARGEST, LARGEST))
        return np.asarray(flatten(image))
