"""Computes exemplars on a Ray cluster: several workers share each of the two passes (see `openmaia.exemplars.compute`)."""

import math
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import ray
from ray.exceptions import ObjectLostError, RayTaskError

from openmaia.config.schema import Config
from openmaia.core.errors import ServiceError
from openmaia.core.services import Effects
from openmaia.core.units import TargetInfo
from openmaia.distributed.assembly import Assembly
from openmaia.distributed.cluster.resources import of_exemplars
from openmaia.distributed.failures import DEAD, raise_cause
from openmaia.distributed.pools import kept
from openmaia.distributed.pools.replica import hide_gpus
from openmaia.exemplars.shared import PORTION_GPU, ProgressCallback, attributing, compute_alone
from openmaia.exemplars.store import ExemplarStore
from openmaia.exemplars.summary import Summaries, add

if TYPE_CHECKING:
    from openmaia.exemplars.compute import ExemplarWorker

_MAX_CPU_WORKERS = 8
"""Largest number of workers without GPUs if `ray.exemplar_workers` is 0. Each holds a copy of the network."""

_GPU_SECONDS = 30.0
"""Longest wait for a GPU while pools that are kept up may hold them all, after which CPUs are used."""

_LEAST = 64
"""Smallest number of images for which another worker is started."""

_TASKS = 16
"""Number of tasks into which the share of a worker in a pass is divided if it is large. What one worker finishes early,
another one can then do."""

_MAX_DEATHS = 5
"""A computation with one worker fails when this number of workers have died with no task finished in between. Each further
worker raises the number by one, because the loss of a node may end all workers at once."""

_DIED = object()


@contextmanager
def team(
    config: Config, assembly: Assembly, say: Callable[[str], None] = lambda line: None
) -> Generator["ExemplarTeam"]:
    """Yields an `ExemplarTeam`, whose arguments are the same, and ends its workers afterwards, which frees their GPUs."""
    workers = ExemplarTeam(config, assembly, say)
    try:
        yield workers
    finally:
        workers.end()


class ExemplarTeam:
    """Workers that compute exemplars together.

    A dead worker is replaced, and another one repeats its task. GPUs are requested only if exemplars are missing.
    """

    def __init__(self, config: Config, assembly: Assembly, say: Callable[[str], None] = lambda line: None):
        self._config, self._assembly, self._say = config, assembly, say
        self._gpus = 0.0
        """Number of GPUs of each worker."""
        self._deaths = 0
        self._used: set[int] = set()
        """Positions of the workers that have begun a task in the last pass and are alive."""
        # It loads the target on a CPU, to read its properties before it is known whether exemplars are missing.
        self._workers = [self._start()]

    def info(self) -> TargetInfo:
        """Returns the properties of the target."""
        return self._lead("info")

    def effects(self) -> Effects:
        """Returns which effects of the target's units can be measured."""
        return self._lead("effects")

    def remarks(self) -> list[str]:
        """Returns what a user should know of the images, one sentence each."""
        return [*self._lead("dataset_remarks"), self._lead("remark")]

    def compute(self, layers: Sequence[str], progress: ProgressCallback) -> ExemplarStore:
        """Computes the exemplars of the layers that the store lacks, and returns the store."""
        store: ExemplarStore = self._lead("open_store")
        missing = partial(self._lead, "missing", layers)
        compute_alone(store, missing, lambda left: self._compute(left, progress), self._say)
        return store

    def drives(self, layers: Sequence[str]) -> Effects:
        """As `compute_drives` of `openmaia.exemplars.compute`, by one worker."""

        def keep(missing: list[str]) -> None:
            self._say(attributing(missing))
            if not self._gpus:
                self._use_gpus()
            for sentence in self._lead("keep_drives", missing):
                self._say(sentence)

        compute_alone(self._lead("open_store"), partial(self._lead, "without_drives", layers), keep, self._say)
        return self._lead("effects_with_drives", layers)

    def end(self) -> None:
        """Ends all workers."""
        for worker in self._workers:
            ray.kill(worker)

    def _compute(self, layers: list[str], progress: ProgressCallback) -> None:
        self._use_gpus()
        images: int = self._lead("count")
        self._grow(images)
        places = self._lead("resume", layers)
        if places is None:
            places = self._lead("choose", self._first(layers, range(images), progress))
        numbers = np.unique(places["number"])
        starts = np.searchsorted(places["number"], [numbers[own[0]] for own in self._divided(range(len(numbers)))])
        tasks = [(layers, own) for own in np.split(places, starts[1:])]
        parts = list[str]()
        for done, own in enumerate(self._share("second", tasks), 1):
            parts += own
            progress(images + images * done // len(tasks), 2 * images)
        self._lead("finish", layers, parts)

    def _first(self, layers: list[str], numbers: range, progress: ProgressCallback) -> Summaries:
        scales = self._lead("scales", layers)
        tasks = [(scales, own) for own in self._divided(numbers)]
        total: Summaries = {}
        for done, found in enumerate(self._share("first", tasks), 1):
            total = add(total, found) if total else found
            progress(len(numbers) * done // len(tasks), 2 * len(numbers))
        return total

    def _divided(self, numbers: range) -> list[range]:
        # At the beginning of a task, a GPU waits for the first images: its tasks are large.
        fair = math.ceil(len(numbers) / len(self._workers))
        size = max(math.ceil(fair / _TASKS), min(PORTION_GPU if self._gpus else _LEAST, fair))
        return [numbers[first : first + size] for first in range(0, len(numbers), size)]

    def _use_gpus(self) -> None:
        """Replaces the first worker by one with GPUs, once these are free."""
        self._gpus = of_exemplars(self._config).gpus
        if not self._gpus:
            return
        worker = self._start()
        patience = _GPU_SECONDS if kept.names() and not self._config.ray.autoscaling else None
        if ray.wait([worker.is_up.remote()], timeout=patience)[0]:
            worker, self._workers[0] = self._workers[0], worker
        else:
            self._gpus = 0.0
            self._say("pools that are kept up hold the GPUs: exemplars are computed on CPUs (see openmaia pools down)")
        ray.kill(worker)

    def _grow(self, images: int) -> None:
        count = min(self._config.ray.exemplar_workers or self._capacity(), math.ceil(images / _LEAST))
        self._workers += [self._start() for _ in range(count - 1)]

    def _lead(self, method: str, *arguments: Any) -> Any:
        """Calls a method of the first worker. If the worker dies, another one is called."""
        while True:
            # The replacement of a first worker does not lead: it may wait for a GPU until the others have ended.
            if self._used and 0 not in self._used:
                at = self._used.pop()
                self._workers[0], self._workers[at] = self._workers[at], self._workers[0]
                self._used.add(0)
            answer = self._wait(self._workers[0].call.remote(method, *arguments), 0)
            if answer is not _DIED:
                return answer

    def _share(self, method: str, tasks: Sequence[tuple[Any, ...]]) -> Iterator[Any]:
        """Distributes calls of a method of `ExemplarWorker` over the workers, and yields the results in any order."""
        waiting, left = deque(tasks), len(tasks)
        self._used.clear()
        idle: list[int] = []
        # A worker that waits for a GPU gets no task, because other runs may hold the GPUs until they end.
        running: dict[Any, tuple[int, tuple[Any, ...] | None]] = {}
        for at, worker in enumerate(self._workers):
            running[worker.is_up.remote()] = at, None
        while left:
            for reference in ray.wait(list(running), num_returns=1, timeout=1)[0]:
                at, task = running.pop(reference)
                result = self._wait(reference, at)
                if result is not _DIED:
                    idle.append(at)
                else:
                    running[self._workers[at].is_up.remote()] = at, None
                    if task:
                        # Behind the others, because it may be the task that kills.
                        waiting.append(task)
                while waiting and idle:
                    free, new = idle.pop(), waiting.popleft()
                    self._used.add(free)
                    running[self._workers[free].call.remote(method, *new)] = free, new
                if task and result is not _DIED:
                    self._deaths, left = 0, left - 1
                    yield result

    def _wait(self, reference: Any, at: int) -> Any:
        """Waits for the result of a call of worker number `at`. If the worker died, replaces it and returns `_DIED`.

        Raises:
            OpenMaiaError: If the worker raised it.
            ServiceError: If the worker raised another exception, or if _MAX_DEATHS workers have died.
        """
        try:
            return ray.get(reference)
        except RayTaskError as error:
            raise_cause(error, "exemplars could not be computed")
        except (*DEAD, ObjectLostError) as error:  # a result is lost if its node dies before it is fetched
            self._deaths += 1
            if self._deaths >= _MAX_DEATHS + len(self._workers) - 1:
                raise ServiceError(f"{self._deaths} processes died while they computed exemplars") from error
            self._workers[at] = self._start()
            self._used.discard(at)
            return _DIED

    def _capacity(self) -> int:
        resources = ray.cluster_resources()
        if self._gpus:
            return int(resources.get("GPU", 0) / self._gpus)
        return min(int(resources.get("CPU", 1)), _MAX_CPU_WORKERS)

    def _start(self) -> Any:
        options = _RemoteTeamMember.options(num_cpus=0, num_gpus=self._gpus, scheduling_strategy="SPREAD")
        return options.remote(self._config, self._assembly, self._gpus)


@dataclass(slots=True)
class _TeamMember:
    """Ray actor around `ExemplarWorker`. It loads the target at the first call, so that callers see the exceptions."""

    config: Config
    assembly: Assembly
    gpus: float
    _worker: "ExemplarWorker | None" = field(default=None)

    def __repr__(self) -> str:
        return "exemplars"

    def is_up(self) -> None:
        """Does nothing. A call returns when Ray has started this worker with the resources that it requested."""

    def call(self, method: str, *arguments: Any) -> Any:
        """Calls a method of the `ExemplarWorker` and returns its result."""
        if self._worker is None:
            # The driver, which has this class as well, does without torch.
            from openmaia.exemplars.compute import ExemplarWorker

            if not self.gpus:
                hide_gpus()
            target = self.assembly.host("target", self.config)
            dataset = self.assembly.dataset(self.config, lambda line: None)
            self._worker = ExemplarWorker(self.config, target, dataset)
        return getattr(self._worker, method)(*arguments)


_RemoteTeamMember: Any = ray.remote(_TeamMember)
