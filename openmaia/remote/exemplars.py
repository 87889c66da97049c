"""Exemplars on the cluster: several workers share the shards of each pass."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import ray
from ray.exceptions import RayTaskError

from openmaia.errors import OpenMaiaError, ServiceError
from openmaia.exemplars import SHARD, Progress, Worker
from openmaia.remote.failures import DEAD
from openmaia.schema import Config
from openmaia.store.exemplars import ExemplarStore
from openmaia.units import TargetInfo

MOST_WORKERS = 8
"""On CPUs, where nobody asked for a number: each takes the memory of a network."""

DEATHS = 5
"""So many workers may die before the job is given up."""


def make(config: Config, layers: Callable[[TargetInfo], Sequence[str]], progress: Progress) -> ExemplarStore:
    """Computes what the store lacks of the layers that are chosen once the target is known. What a worker that died had
    not saved is done again by the others. No worker is left behind: what GPUs they had is free for the pools."""
    team = _Team(config)
    try:
        owed: list[str] = team.lead("owed", layers(team.lead("info")))
        if owed:
            _compute(team, owed, progress)
        return team.lead("found")
    finally:
        team.end()


def _compute(team: "_Team", layers: list[str], progress: Progress) -> None:
    job = team.lead("begin", layers)
    team.hire(layers, len(job.first))
    total = 2 * job.pictures
    while left := team.lead("begin", layers).first:
        before = max(job.pictures - len(left) * SHARD, 0)
        team.share("first", [(shard,) for shard in left], partial(_said, progress, total, before, SHARD))
        team.each("save")
    while second := team.lead("choose"):
        each = job.pictures / len(second)
        team.share("second", second, partial(_said, progress, total, job.pictures, each))
    team.lead("finish")


def _said(progress: Progress, total: int, before: float, each: float, done: int) -> None:
    progress(min(round(before + each * done), total), total)


class _Team:
    """Workers, and who of them does what. One that dies is replaced; what it was at stays owed."""

    def __init__(self, config: Config):
        self._config = config
        self._layers: list[str] = []
        self._deaths = 0
        self._there: set[int] = set()
        self._workers = [self._start()]

    def hire(self, layers: list[str], shards: int) -> None:
        """As many as there is work for. The leader has fixed the histograms' bounds by now."""
        self._layers = layers
        count = min(self._config.ray.exemplar_workers or self._room(), shards)
        self._workers += [self._start() for _ in range(count - 1)]

    def lead(self, method: str, *given: Any) -> Any:
        """The answer of the first worker, or of whoever takes its place."""
        while True:
            answer = self._settled(self._workers[0].do.remote(method, *given), 0)
            if answer is not _DIED:
                return answer

    def share(self, method: str, tasks: Sequence[tuple[Any, ...]], progress: Callable[[int], None]) -> None:
        """Whoever is idle takes the next task. What a worker was at when it died is left undone. One that still waits for
        a GPU gets none: others may hold it until they are done, and they may wait for ours."""
        waiting = list(tasks)[::-1]
        done = 0
        under_way: dict[Any, int] = {}
        coming = {self._workers[at].awake.remote(): at for at in range(len(self._workers))}
        while waiting or under_way:
            for reference in ray.wait([*under_way, *coming], num_returns=1, timeout=1)[0]:
                is_task = reference in under_way
                at = (under_way if is_task else coming).pop(reference)
                done += is_task
                if self._settled(reference, at) is _DIED:
                    self._there.discard(at)
                    coming[self._workers[at].awake.remote()] = at
                elif waiting:
                    self._there.add(at)
                    under_way[self._workers[at].do.remote(method, *waiting.pop())] = at
                progress(done)

    def each(self, method: str) -> None:
        """Of those that have ever had a task."""
        asked = {at: self._workers[at].do.remote(method) for at in sorted(self._there)}
        for at, reference in asked.items():
            self._settled(reference, at)

    def end(self) -> None:
        for worker in self._workers:
            ray.kill(worker)

    def _settled(self, reference: Any, at: int) -> Any:
        """The answer; raises what the worker raised. One that died makes room for another."""
        try:
            return ray.get(reference)
        except RayTaskError as error:
            if isinstance(error.cause, OpenMaiaError):
                raise error.cause from None
            raise ServiceError(f"exemplars could not be computed: {error.cause!r}") from error
        except DEAD as error:
            self._deaths += 1
            if self._deaths >= DEATHS:
                raise ServiceError(f"{DEATHS} processes died while they computed exemplars") from error
            self._workers[at] = self._start()
            return _DIED

    def _room(self) -> int:
        there = ray.cluster_resources()
        gpus = self._config.pools.target.num_gpus
        return int(there.get("GPU", 0) / gpus) if gpus else min(int(there.get("CPU", 1)), MOST_WORKERS)

    def _start(self) -> Any:
        gpus = self._config.pools.target.num_gpus
        return _RemoteMember.options(num_cpus=0, num_gpus=gpus, scheduling_strategy="SPREAD").remote(
            self._config, self._layers
        )


class _Member:
    """Loads the network at the first call: its errors then are results of a call and not the death of an actor."""

    def __init__(self, config: Config, layers: Sequence[str]):
        self._config, self._layers = config, layers
        self._worker: Worker | None = None

    def awake(self) -> None:
        """Returns: this worker has what it asked for."""

    def do(self, method: str, *given: Any) -> Any:
        if self._worker is None:
            self._worker = Worker(self._config)
            if self._layers:
                self._worker.join(self._layers)
        return getattr(self._worker, method)(*given)


_DIED = object()
_RemoteMember: Any = ray.remote(_Member)
