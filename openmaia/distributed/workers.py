"""Manages the worker processes of a run: queues items, starts and ends processes, and detects that one has died.

A process for which the cluster has no room starts as soon as a node is added. Processes of a removed node are replaced on
other nodes.
"""

import queue
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import ray
from ray.exceptions import RayTaskError

from openmaia.config.schema import Config
from openmaia.core.errors import ServiceError
from openmaia.distributed.cluster.nodes import OwnNode, alive
from openmaia.distributed.cluster.placement import held
from openmaia.distributed.failures import DEAD, last_line, raise_cause
from openmaia.distributed.worker import SweepContext
from openmaia.runs.run import InvestigationId

_MAX_FAILED_STARTS = 5
"""The run fails when this number of workers in a row have died while they started."""

_CHECK_SECONDS = 10.0
"""Time between two checks that Ray still runs on the node of the driver."""


class WorkStep(StrEnum):
    """What is done for a unit. The value is the name of the method of `UnitWorker`."""

    INVESTIGATE = "investigate"
    TEST = "test"


@dataclass(frozen=True, slots=True)
class Item:
    """One step of an investigation."""

    sweep: int
    """Index of its sweep."""
    investigation: InvestigationId
    step: WorkStep = WorkStep.INVESTIGATE
    tries: int = 0
    """Number of earlier attempts at this step that failed."""


@dataclass(slots=True, eq=False)
class Worker:
    """The driver's state of one worker process."""

    actor: Any
    capacity: int
    """Largest number of concurrent investigations, and of concurrent tests beside them: tests mostly wait for models."""
    isolated: bool
    """Whether it runs suspects, one at a time: items that may have caused the death of a process in which they ran beside
    others."""
    is_up: bool = False
    """Whether it has started and may get items."""
    is_gone: bool = False
    """Whether it has died or was ended."""
    died_with_others: bool = False
    """Whether it died while it ran several items."""
    running: dict[str, WorkStep] = field(default_factory=dict[str, WorkStep])
    """By caller (`WorkerPool.assign`)."""

    def free(self, step: WorkStep) -> int:
        """Returns how many further items it can take now; 0 while it starts."""
        if not self.is_up:
            return 0
        if self.isolated:
            return 1 - len(self.running)
        return self.capacity - self.count(step)

    def count(self, step: WorkStep) -> int:
        """Returns the number of running items with this step."""
        return list(self.running.values()).count(step)


@dataclass(frozen=True, slots=True)
class FinishedItem:
    """An item that has ended. `item` and `caller` are the arguments of `WorkerPool.assign`."""

    item: Item
    caller: str
    future: Future[Any]
    died_with_others: bool
    """Whether the process died while it ran several items."""
    is_suspect: bool
    """Whether the item has to run alone if it is repeated, see `Worker.isolated`."""


@dataclass(frozen=True, slots=True)
class _Event:
    worker: Worker
    item: Item | None
    """What has ended; None: the worker's `start`."""
    caller: str
    future: Future[Any]


class WorkerPool:
    """Starts, monitors and ends worker processes, in which `worker_class` runs: `UnitWorker`, or one with its methods."""

    def __init__(self, config: Config, sweeps: Sequence[SweepContext], worker_class: type):
        self._ray = config.ray
        self._per_process = min(config.ray.investigations_per_process, largest_capacity(config))
        self._sweeps = list(sweeps)
        self._remote_class: Any = ray.remote(worker_class)
        self._workers: list[Worker] = []
        self._waiting: dict[WorkStep, deque[Item]] = {step: deque() for step in WorkStep}
        self._suspects: deque[Item] = deque()
        self._events: queue.SimpleQueue[_Event] = queue.SimpleQueue()
        self._failed_starts = 0
        self._checked = time.monotonic()
        self._own_node = OwnNode()

    def queued(self, step: WorkStep) -> int:
        """Returns the number of items with this step that are not assigned to a worker yet."""
        return sum(item.step is step for item in self.queue)

    def submit(self, item: Item, *, is_suspect: bool = False) -> None:
        """Queues an item. A suspect runs alone in a process."""
        (self._suspects if is_suspect else self._waiting[item.step]).append(item)

    @property
    def queue(self) -> list[Item]:
        """The items that are not assigned to a worker yet."""
        return [*self._suspects, *(item for waiting in self._waiting.values() for item in waiting)]

    def assignable(self, is_held: Callable[[Item], bool]) -> Iterator[tuple[Worker, Item]]:
        """Starts or ends workers as the queues require, then removes from the queues what they can take now, and yields
        it. Items that are held stay in their queue.

        The caller must pass each pair to `assign` before it takes the next one.
        """
        self._scale()
        for queued, isolated in ((self._suspects, True), *((waiting, False) for waiting in self._waiting.values())):
            for item in [each for each in queued if not is_held(each)]:
                if (worker := self._most_free(item.step, isolated=isolated)) is None:
                    break
                queued.remove(item)
                yield worker, item

    def assign(self, worker: Worker, item: Item, name: str, caller: str, *arguments: Any) -> None:
        """Starts an item on a worker. `name` is that of the call in Ray's dashboard, `caller` the unique one of this attempt,
        and `arguments` are further ones of the worker's method.
        """
        worker.running[caller] = item.step
        call = getattr(worker.actor, item.step).options(name=name)
        self._watch(call.remote(item.sweep, item.investigation, *arguments, caller), worker, item, caller)

    def finished(self, timeout: float = 1.0) -> Iterator[FinishedItem]:
        """Waits up to `timeout` seconds for an item to end, then yields all that have ended.

        Raises:
            OpenMaiaError: If a worker could not start, or if Ray has ended on the driver's node. Exceptions of items
                are not raised; `FinishedItem.future` holds them.
        """
        if time.monotonic() > self._checked + _CHECK_SECONDS:
            self._own_node.check()
            self._checked = time.monotonic()
        try:
            event = self._events.get(timeout=timeout)
            while True:
                if event.item is None:
                    self._on_started(event)
                else:
                    yield self._on_finished(event, event.item)
                event = self._events.get_nowait()
        except queue.Empty:
            return

    def stop(self) -> None:
        """Ends all workers."""
        for worker in self._workers:
            ray.kill(worker.actor)
        self._workers.clear()

    def _scale(self) -> None:
        """Starts as many workers as the items need within the limit, including an isolated one for each suspect."""
        # Idle workers of the kind that nothing queued needs end, so that they leave room for the other kind.
        if not self._suspects:
            self._end_idle(isolated=True)
        elif not any(self._waiting.values()):
            self._end_idle(isolated=False)
        isolated = sum(worker.isolated for worker in self._workers)
        for _ in range(min(len(self._suspects) - isolated, self._left)):
            self._start(1, isolated=True)
        shared = [worker for worker in self._workers if not worker.isolated]
        room = {step: sum(worker.capacity - worker.count(step) for worker in shared) for step in WorkStep}
        missing = min(max(len(self._waiting[step]) - room[step] for step in WorkStep), self._left)
        while missing > 0:
            self._start(min(self._per_process, missing), isolated=False)
            missing -= self._per_process

    def _most_free(self, step: WorkStep, *, isolated: bool) -> Worker | None:
        candidates = [worker for worker in self._workers if worker.isolated is isolated]
        worker = max(candidates, key=lambda one: one.free(step), default=None)
        return worker if worker is not None and worker.free(step) > 0 else None

    @property
    def _left(self) -> int:
        """How many investigations more the processes could hold within the limit."""
        return self._ray.investigations - sum(worker.capacity for worker in self._workers)

    def _start(self, capacity: int, *, isolated: bool) -> None:
        actor = self._remote_class.options(
            num_cpus=capacity * self._ray.cpus_per_investigation,
            memory=capacity * self._ray.memory_mb * 2**20,
            max_concurrency=capacity if isolated else capacity * len(WorkStep),
            max_restarts=0,
            scheduling_strategy="SPREAD",
        ).remote(self._sweeps)
        worker = Worker(actor=actor, capacity=capacity, isolated=isolated)
        self._workers.append(worker)
        self._watch(actor.start.remote(), worker, None, "")

    def _watch(self, reference: Any, worker: Worker, item: Item | None, caller: str) -> None:
        def tell(future: Future[Any]) -> None:
            self._events.put(_Event(worker, item, caller, future))

        reference.future().add_done_callback(tell)

    def _on_started(self, event: _Event) -> None:
        worker = event.worker
        try:
            event.future.result()
            worker.is_up, self._failed_starts = True, 0
        except RayTaskError as error:
            raise_cause(error, "a worker process could not start")
        except DEAD as error:
            if worker.is_gone:
                return
            self._failed_starts += 1
            self._end(worker)
            if self._failed_starts >= _MAX_FAILED_STARTS:
                raise ServiceError(
                    f"{_MAX_FAILED_STARTS} worker processes died while they started: {last_line(error)}"
                ) from error

    def _on_finished(self, event: _Event, item: Item) -> FinishedItem:
        worker = event.worker
        error = event.future.exception()
        # A RayTaskError that is one of DEAD means that another process has died, whose result this item waited for.
        if isinstance(error, DEAD) and not isinstance(error, RayTaskError) and not worker.is_gone:
            worker.died_with_others = len(worker.running) > 1
            self._end(worker)
        worker.running.pop(event.caller, None)
        is_suspect = worker.isolated or worker.died_with_others
        return FinishedItem(item, event.caller, event.future, worker.died_with_others, is_suspect)

    def _end_idle(self, *, isolated: bool) -> None:
        for worker in [one for one in self._workers if one.isolated is isolated and not one.running]:
            self._end(worker)

    def _end(self, worker: Worker) -> None:
        worker.is_gone = True
        self._workers.remove(worker)
        ray.kill(worker.actor)


def largest_capacity(config: Config) -> int:
    """Returns how many investigations fit on the node that has room for the most: 1 to `ray.investigations`.

    Only what placement groups have reserved, for example for replicas, counts as used.
    """
    taken = held()

    def room(resources: dict[str, float]) -> int:
        cpus, memory = config.ray.cpus_per_investigation, config.ray.memory_mb * 2**20
        by_cpus = resources.get("CPU", 0) / cpus if cpus else float("inf")
        return int(min(by_cpus, resources.get("memory", 0) / memory, config.ray.investigations))

    def free(node: dict[str, Any]) -> dict[str, float]:
        return {name: amount - taken[node["NodeID"]][name] for name, amount in node["Resources"].items()}

    return max([1, *(room(free(node)) for node in alive())])
