"""Manages the worker processes of a run: queues work, starts and ends processes, and detects that one has died.

A process for which the cluster has no room starts as soon as a node is added. Processes of a removed node are replaced on
other nodes.
"""

import queue
import time
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

import ray
from ray.exceptions import RayTaskError

from openmaia.core.errors import OpenMaiaError, ServiceError
from openmaia.distributed.cluster.nodes import OwnNode
from openmaia.distributed.failures import DEAD, last_line, resolve
from openmaia.distributed.worker import SweepContext
from openmaia.distributed.worker_limits import WorkerLimits

_MAX_FAILED_STARTS = 5
"""The run fails when this number of workers in a row have died while they started."""

_CHECK_SECONDS = 10.0
"""Time between two checks that Ray still runs on the node of the driver."""


@dataclass(slots=True, eq=False)
class Worker:
    """The driver's state of one worker process. A piece of work is an investigation or an evaluation."""

    actor: Any
    capacity: int
    """Largest number of concurrent pieces of work."""
    isolated: bool
    """Whether it runs suspects, one at a time: work that may have caused the death of a process in which it ran beside
    other work."""
    is_up: bool = False
    """Whether it has started and may get work."""
    is_gone: bool = False
    """Whether it has died or was ended."""
    died_with_others: bool = False
    """Whether it died while it ran several pieces of work."""
    running: set[str] = field(default_factory=set[str])
    """The callers (`WorkerPool.assign`) of what it runs."""

    @property
    def free(self) -> int:
        """Number of further pieces of work that the worker can take now; 0 while it starts."""
        return self.capacity - len(self.running) if self.is_up else 0


@dataclass(frozen=True, slots=True)
class FinishedWork:
    """A piece of work that has ended. `work` and `caller` are the arguments of `WorkerPool.assign`."""

    work: Any
    caller: str
    future: Future[Any]
    died_with_others: bool
    """Whether the process died while it ran several pieces of work."""
    is_suspect: bool
    """Whether it has to run alone if it is repeated, see `Worker.isolated`."""


@dataclass(frozen=True, slots=True)
class _Event:
    worker: Worker
    work: Any
    """What has ended; None: the worker's `start`."""
    caller: str
    future: Future[Any]


class WorkerPool:
    """Starts, monitors and ends worker processes.

    Args:
        limits: How many pieces of work run at the same time, and the resources of each.
        sweeps: The sweeps to which the work belongs.
        worker_class: The class that runs in the processes. Its constructor takes `sweeps`, and it has the methods `start`
            and `run`.
    """

    def __init__(self, limits: WorkerLimits, sweeps: Sequence[SweepContext], worker_class: type):
        self._limits, self._sweeps = limits, list(sweeps)
        self._remote_class: Any = ray.remote(worker_class)
        self._workers: list[Worker] = []
        self._waiting: deque[Any] = deque()
        self._suspects: deque[Any] = deque()
        self._events: queue.SimpleQueue[_Event] = queue.SimpleQueue()
        self._failed_starts = 0
        self._checked = time.monotonic()
        self._own_node = OwnNode()

    @property
    def queued(self) -> int:
        """Number of pieces of work that are not assigned to a worker yet."""
        return len(self._waiting) + len(self._suspects)

    def submit(self, work: Any, *, is_suspect: bool = False) -> None:
        """Queues a piece of work, given as any object that identifies it. A suspect runs alone in a process."""
        (self._suspects if is_suspect else self._waiting).append(work)

    def assignable(self) -> Iterator[tuple[Worker, Any]]:
        """Starts or ends workers as the queue requires, then removes from the queue the work that they can take now.

        Yields:
            A worker and a piece of work. The caller must pass both to `assign` before it takes the next pair.
        """
        self._scale()
        for queued, isolated in ((self._suspects, True), (self._waiting, False)):
            while queued and (worker := self._most_free(isolated=isolated)):
                yield worker, queued.popleft()

    def assign(self, worker: Worker, work: Any, name: str, caller: str, *arguments: Any) -> None:
        """Starts a piece of work: calls `run(*arguments, caller)` of a worker.

        Args:
            worker: The worker.
            work: Is returned as `FinishedWork.work`.
            name: The name of the call in Ray's dashboard.
            caller: The unique name of this attempt.
            arguments: The other arguments of `run`.
        """
        worker.running.add(caller)
        self._watch(worker.actor.run.options(name=name).remote(*arguments, caller), worker, work, caller)

    def finished(self, timeout: float = 1.0) -> Iterator[FinishedWork]:
        """Waits for work to end, then yields all work that has ended. Yields nothing if none ends in time.

        Args:
            timeout: Longest wait in seconds.

        Raises:
            OpenMaiaError: If a worker could not start, or if Ray has ended on the driver's node. Exceptions of the work
                itself are not raised; `FinishedWork.future` holds them.
        """
        if time.monotonic() > self._checked + _CHECK_SECONDS:
            self._own_node.check()
            self._checked = time.monotonic()
        try:
            event = self._events.get(timeout=timeout)
            while True:
                if event.work is None:
                    self._on_started(event)
                else:
                    yield self._on_finished(event)
                event = self._events.get_nowait()
        except queue.Empty:
            return

    def call(self, method: str, *arguments: Any) -> Any:
        """Calls a method of any worker, which is started if there is none, and of another one if that dies.

        Raises:
            OpenMaiaError: If the method raised it.
            ServiceError: If the method raised another exception, or if _MAX_FAILED_STARTS processes died.
        """
        for _ in range(_MAX_FAILED_STARTS):
            if not self._workers:
                self._start(1, isolated=False)
            worker = self._workers[0]
            try:
                return resolve(getattr(worker.actor, method).remote(*arguments))
            except ServiceError as error:
                if not isinstance(error.__cause__, DEAD) or isinstance(error.__cause__, RayTaskError):
                    raise
                self._end(worker)
        raise ServiceError(f"{_MAX_FAILED_STARTS} worker processes died over {method}")

    def stop(self) -> None:
        """Ends all workers."""
        for worker in self._workers:
            ray.kill(worker.actor)
        self._workers.clear()

    def _scale(self) -> None:
        """Starts as many workers as the work needs within the limits, including an isolated one for each suspect."""
        # Idle workers of the kind that nothing queued needs end, so that they leave room for the other kind.
        if not self._suspects:
            self._end_idle(isolated=True)
        elif not self._waiting:
            self._end_idle(isolated=False)
        suspects = min(len(self._suspects), self._limits.max_isolated or self._limits.total)
        isolated = sum(worker.isolated for worker in self._workers)
        for _ in range(min(suspects - isolated, self._left)):
            self._start(1, isolated=True)
        needed = sum(len(worker.running) for worker in self._workers) + len(self._waiting) + suspects
        while (missing := min(needed - self._total(), self._left)) > 0:
            # Evaluations reserve nothing. They come one by one, and each process loads data of its own.
            wanted = missing if self._limits.cpus or self._limits.memory_mb else self._left
            self._start(min(self._limits.per_process, wanted), isolated=False)

    def _most_free(self, *, isolated: bool) -> Worker | None:
        candidates = [worker for worker in self._workers if worker.isolated is isolated]
        worker = max(candidates, key=lambda one: one.free, default=None)
        return worker if worker is not None and worker.free > 0 else None

    @property
    def _left(self) -> int:
        return self._limits.total - self._total()

    def _total(self) -> int:
        return sum(worker.capacity for worker in self._workers)

    def _start(self, capacity: int, *, isolated: bool) -> None:
        actor = self._remote_class.options(
            num_cpus=capacity * self._limits.cpus,
            memory=capacity * self._limits.memory_mb * 2**20,
            max_concurrency=capacity,
            max_restarts=0,
            scheduling_strategy="SPREAD",
        ).remote(self._sweeps)
        worker = Worker(actor=actor, capacity=capacity, isolated=isolated)
        self._workers.append(worker)
        self._watch(actor.start.remote(), worker, None, "")

    def _watch(self, reference: Any, worker: Worker, work: Any, caller: str) -> None:
        def tell(future: Future[Any]) -> None:
            self._events.put(_Event(worker, work, caller, future))

        reference.future().add_done_callback(tell)

    def _on_started(self, event: _Event) -> None:
        worker = event.worker
        try:
            event.future.result()
            worker.is_up, self._failed_starts = True, 0
        except RayTaskError as error:
            if isinstance(error.cause, OpenMaiaError):
                raise error.cause from None
            raise ServiceError(f"a worker process could not start: {last_line(error)}") from error
        except DEAD as error:
            if worker.is_gone:
                return
            self._failed_starts += 1
            self._end(worker)
            if self._failed_starts >= _MAX_FAILED_STARTS:
                raise ServiceError(
                    f"{_MAX_FAILED_STARTS} worker processes died while they started: {last_line(error)}"
                ) from error

    def _on_finished(self, event: _Event) -> FinishedWork:
        worker = event.worker
        error = event.future.exception()
        # A RayTaskError that is one of DEAD means that another process has died, whose result this work waited for.
        if isinstance(error, DEAD) and not isinstance(error, RayTaskError) and not worker.is_gone:
            worker.died_with_others = len(worker.running) > 1
            self._end(worker)
        worker.running.discard(event.caller)
        is_suspect = worker.isolated or worker.died_with_others
        return FinishedWork(event.work, event.caller, event.future, worker.died_with_others, is_suspect)

    def _end_idle(self, *, isolated: bool) -> None:
        for worker in [one for one in self._workers if one.isolated is isolated and not one.running]:
            self._end(worker)

    def _end(self, worker: Worker) -> None:
        worker.is_gone = True
        self._workers.remove(worker)
        ray.kill(worker.actor)
