"""Computes the exemplars of units, selected dataset images with the units' activations, on a Ray cluster.

The computation makes two passes over the images, see `openmaia.exemplars.compute`. The images of each pass are divided
into groups, the shards, which several workers process in parallel.
"""

import math
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import ray
from ray.exceptions import RayTaskError

from openmaia.config.schema import Config
from openmaia.core.errors import OpenMaiaError, ServiceError
from openmaia.core.units import TargetInfo
from openmaia.distributed.assembly import Assembly
from openmaia.distributed.cluster.resources import of_exemplars
from openmaia.distributed.failures import DEAD
from openmaia.distributed.pools import kept
from openmaia.exemplars.compute import GPU_SHARDS, SHARD, ExemplarWorker, ProgressCallback, compute_alone
from openmaia.exemplars.store import ExemplarStore

MAX_CPU_WORKERS = 8
"""Largest number of workers without GPUs if `ray.exemplar_workers` is 0. Each worker holds a copy of the network."""

GPU_SECONDS = 30.0
"""Longest wait in seconds for a GPU if persistent pools run on the cluster, after which CPUs are used. The pools may
hold all GPUs until `openmaia pools down`."""

GPU_TASKS = 16
"""Number of tasks into which the work of a worker with a GPU is divided in each pass if there is much of it. What one worker
finishes early, another one can then do."""

MAX_DEATHS = 5
"""A computation with one worker fails when this number of worker processes have died with no task finished in between.
Each further worker raises the number by one, because the loss of a node may end all workers at once."""

_DIED = object()
"""Returned in place of a result if the worker died."""


@contextmanager
def team(
    config: Config, assembly: Assembly, say: Callable[[str], None] = lambda line: None
) -> Generator["ExemplarTeam"]:
    """Context manager that yields workers which compute exemplars. It ends them afterwards, which frees their GPUs.

    Exemplars are selected dataset images with the activations of units. The arguments are those of `ExemplarTeam`.
    """
    workers = ExemplarTeam(config, assembly, say)
    try:
        yield workers
    finally:
        workers.end()


class ExemplarTeam:
    """Workers that together compute exemplars: selected dataset images with the activations of the units.

    A dead worker is replaced, and its unsaved shards (groups of images) are computed again. The first worker loads the
    target network on a CPU to read its properties. GPUs are requested only if exemplars are missing.

    Args:
        config: The config of the run.
        assembly: Builds the target and the dataset.
        say: Receives messages for the user.
    """

    def __init__(self, config: Config, assembly: Assembly, say: Callable[[str], None] = lambda line: None):
        self._config, self._assembly, self._say = config, assembly, say
        self._gpus = 0.0
        """Number of GPUs of each worker."""
        self._layers: list[str] = []
        self._deaths = 0
        self._used: set[int] = set()
        """Positions of the workers that have begun a task in the last call of `_share` and are alive."""
        self._workers = [self._start()]

    def info(self) -> TargetInfo:
        """Returns the name, the layers and other properties of the target network."""
        return self._lead("info")

    def compute(self, layers: Sequence[str], progress: ProgressCallback) -> ExemplarStore:
        """Computes the exemplars of the units of these layers, unless they are stored already, and returns the store.

        Exemplars are dataset images that are selected for each unit.

        Args:
            layers: The names of the layers.
            progress: Called with the number of processed images and the total. Each image counts twice, because there
                are two passes over the dataset.
        """
        store: ExemplarStore = self._lead("open_store")
        for remark in (*self._lead("dataset_remarks"), self._lead("remark")):
            self._say(remark)
        missing = partial(self._lead, "missing", layers)
        compute_alone(store, missing, lambda left: self._compute(left, progress), self._say)
        return store

    def end(self) -> None:
        """Ends all workers."""
        for worker in self._workers:
            ray.kill(worker)

    def _compute(self, layers: list[str], progress: ProgressCallback) -> None:
        self._use_gpus()
        job = self._lead("begin", layers)
        self._grow(layers, len(job.first))
        total = 2 * job.images
        while left := self._lead("begin", layers).first:
            before = max(job.images - len(left) * SHARD, 0)
            tasks = self._tasks(left)
            each = SHARD * len(left) / len(tasks)
            self._share("first", tasks, partial(_report, progress, total, before, each))
            self._save()
        while second := self._lead("choose"):
            tasks = self._tasks(second)
            self._share("second", tasks, partial(_report, progress, total, job.images, job.images / len(tasks)))
        self._lead("finish")

    def _tasks(self, shards: Sequence[Any]) -> list[tuple[Sequence[Any]]]:
        """Divides shards into the arguments of tasks: one shard each, or many for workers with GPUs.

        A worker with a GPU processes a shard in a fraction of a second, and at the beginning of a task it waits for the
        first images.
        """
        size = 1
        if self._gpus:
            fair = math.ceil(len(shards) / len(self._workers))
            size = max(math.ceil(fair / GPU_TASKS), min(GPU_SHARDS, fair))
        return [(shards[first : first + size],) for first in range(0, len(shards), size)]

    def _use_gpus(self) -> None:
        """Replaces the first worker by one with GPUs.

        It waits until GPUs are free. If persistent pools may hold them all, it falls back to CPUs after GPU_SECONDS.
        """
        self._gpus = of_exemplars(self._config).gpus
        if not self._gpus:
            return
        worker = self._start()
        patience = GPU_SECONDS if kept.names() and not self._config.ray.autoscaling else None
        if ray.wait([worker.is_up.remote()], timeout=patience)[0]:
            worker, self._workers[0] = self._workers[0], worker
        else:
            self._gpus = 0.0
            self._say("pools that are kept up hold the GPUs: exemplars are computed on CPUs (see openmaia pools down)")
        ray.kill(worker)

    def _grow(self, layers: list[str], shards: int) -> None:
        """Starts the workers besides the first one. There are at most as many workers as shards.

        All workers must count activations in histograms with the same bounds. The first worker has saved these bounds
        before this call.

        Args:
            layers: The layers whose exemplars are computed.
            shards: Number of shards of the first pass that are not finished.
        """
        self._layers = layers
        count = min(self._config.ray.exemplar_workers or self._capacity(), shards)
        self._workers += [self._start() for _ in range(count - 1)]

    def _lead(self, method: str, *arguments: Any) -> Any:
        """Calls a method of the first worker and returns its result. If the worker dies, another one is called.

        Once there are others, the replacement of a first worker does not lead: it may have to wait for a GPU until they
        have ended.
        """
        while True:
            if self._used and 0 not in self._used:
                at = self._used.pop()
                self._workers[0], self._workers[at] = self._workers[at], self._workers[0]
                self._used.add(0)
            answer = self._wait(self._workers[0].call.remote(method, *arguments), 0)
            if answer is not _DIED:
                return answer

    def _share(self, method: str, tasks: Sequence[tuple[Any, ...]], progress: Callable[[int], None]) -> None:
        """Distributes calls of a method over the workers: each idle worker gets the next task.

        A task whose worker died is not repeated here; the caller finds out which tasks are left. A worker that still
        waits for a GPU gets no task, because other runs may hold the GPUs until they end.

        Args:
            method: The method of `ExemplarWorker`.
            tasks: The arguments of each call.
            progress: Called with the number of tasks that have ended.
        """
        waiting = list(tasks)[::-1]
        done = 0
        self._used.clear()
        running: dict[Any, int] = {}
        starting = {self._workers[at].is_up.remote(): at for at in range(len(self._workers))}
        while waiting or running:
            for reference in ray.wait([*running, *starting], num_returns=1, timeout=1)[0]:
                is_task = reference in running
                at = (running if is_task else starting).pop(reference)
                done += is_task
                if self._wait(reference, at) is _DIED:
                    starting[self._workers[at].is_up.remote()] = at
                    continue
                if is_task:
                    self._deaths = 0
                if waiting:
                    self._used.add(at)
                    running[self._workers[at].call.remote(method, *waiting.pop())] = at
                progress(done)

    def _save(self) -> None:
        saving = {at: self._workers[at].call.remote("save") for at in sorted(self._used)}
        for at, reference in saving.items():
            self._wait(reference, at)

    def _wait(self, reference: Any, at: int) -> Any:
        """Waits for the result of a call of worker number `at`. If the worker died, replaces it and returns `_DIED`.

        Raises:
            OpenMaiaError: If the worker raised it.
            ServiceError: If the worker raised another exception, or if MAX_DEATHS workers have died.
        """
        try:
            return ray.get(reference)
        except RayTaskError as error:
            if isinstance(error.cause, OpenMaiaError):
                raise error.cause from None
            raise ServiceError(f"exemplars could not be computed: {error.cause!r}") from error
        except DEAD as error:
            self._deaths += 1
            if self._deaths >= MAX_DEATHS + len(self._workers) - 1:
                raise ServiceError(f"{self._deaths} processes died while they computed exemplars") from error
            self._workers[at] = self._start()
            self._used.discard(at)
            return _DIED

    def _capacity(self) -> int:
        resources = ray.cluster_resources()
        if self._gpus:
            return int(resources.get("GPU", 0) / self._gpus)
        return min(int(resources.get("CPU", 1)), MAX_CPU_WORKERS)

    def _start(self) -> Any:
        # A worker without GPUs of its own would otherwise see all GPUs of its node.
        is_kept_off = self._config.pools.target.num_gpus and not self._gpus
        environment = {"env_vars": {"CUDA_VISIBLE_DEVICES": ""}} if is_kept_off else None
        options = _RemoteTeamMember.options(
            num_cpus=0, num_gpus=self._gpus, scheduling_strategy="SPREAD", runtime_env=environment
        )
        return options.remote(self._config, self._assembly, self._layers)


def _report(progress: ProgressCallback, total: int, before: float, each: float, done: int) -> None:
    progress(min(round(before + each * done), total), total)


@dataclass(slots=True)
class _TeamMember:
    """Ray actor around `ExemplarWorker`. It loads the network at the first call, so that callers see the exceptions."""

    config: Config
    assembly: Assembly
    layers: Sequence[str]
    _worker: ExemplarWorker | None = field(default=None)

    def __repr__(self) -> str:
        return "exemplars"

    def is_up(self) -> None:
        """Does nothing. A call returns when Ray has started this worker with the resources that it requested."""

    def call(self, method: str, *arguments: Any) -> Any:
        """Calls a method of the `ExemplarWorker` and returns its result."""
        if self._worker is None:
            target = self.assembly.host("target", self.config)
            dataset = self.assembly.dataset(self.config, lambda line: None)
            self._worker = ExemplarWorker(self.config, target, dataset)
            if self.layers:
                self._worker.join(self.layers)
        return getattr(self._worker, method)(*arguments)


_RemoteTeamMember: Any = ray.remote(_TeamMember)
