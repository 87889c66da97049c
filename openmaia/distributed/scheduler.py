"""Schedules investigations: submits a bounded number of them to worker processes and retries those that failed.

Its memory does not grow with the number of units: it reads the plan as workers have room, and keeps no results.
"""

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from uuid import uuid4

from ray.exceptions import RayTaskError

from openmaia.agent.loop import InvestigationResult
from openmaia.config.schema import Config
from openmaia.core.errors import OpenMaiaError, ServiceError
from openmaia.distributed.failures import DEAD, last_line
from openmaia.distributed.worker import InvestigationWorker, SweepContext
from openmaia.distributed.worker_limits import WorkerLimits
from openmaia.distributed.workers import FinishedWork, Worker, WorkerPool
from openmaia.runs.run import InvestigationId

# So many probably have a common cause, such as a model that can no longer be loaded, which would fail all others, too.
_FAILURES_IN_A_ROW = 20
"""The scheduler gives up when this number of investigations in a row, or `ray.investigations` if larger, have failed."""

_LOOK_SECONDS = 1.0
"""Shortest time between two calls of the observer."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt at an investigation."""

    sweep: int
    """Index of its sweep."""
    investigation: InvestigationId
    tries: int = 0
    """Number of earlier attempts that failed."""


@dataclass(frozen=True, slots=True)
class ActiveInvestigation:
    """An investigation that is running."""

    sweep: int
    """Index of its sweep."""
    investigation: InvestigationId
    since: float
    """Start of this attempt, in seconds since the epoch."""


Observer = Callable[[Sequence[ActiveInvestigation]], None]


class Scheduler:
    """Runs the pending investigations of several sweeps in worker processes, round-robin between the sweeps.

    Args:
        config: Sets the number of concurrent investigations (`ray.*`) and of retries (`retries`).
        sweeps: The sweeps whose pending investigations are run.
        observer: Called about once a second with the investigations that are running.
        worker_class: The class that runs in the worker processes.
    """

    def __init__(
        self,
        config: Config,
        sweeps: Sequence[SweepContext],
        observer: Observer = lambda running: None,
        worker_class: type = InvestigationWorker,
    ):
        self._retries, self._width = config.retries, config.ray.investigations
        self._sweeps, self._observer = sweeps, observer
        self._fresh = _take_turns(sweeps)
        self._running: dict[str, ActiveInvestigation] = {}
        self._observed = 0.0
        self._failures = 0
        """Since the last success."""
        self._workers = WorkerPool(WorkerLimits.of_investigations(config), sweeps, worker_class)

    def results(self) -> Iterator[tuple[int, InvestigationResult]]:
        """Runs all pending investigations.

        Yields:
            For each investigation that has ended, the index of its sweep and its result. A failed attempt is not
            yielded if the investigation is tried again.

        Raises:
            UsageError: If the workers cannot start because of a mistake in the config.
            ServiceError: If the workers cannot start for another reason, if Ray has ended on this node, or if
                _FAILURES_IN_A_ROW investigations have failed. Unfinished investigations stay pending.
        """
        try:
            while self._fill():
                for worker, attempt in self._workers.assignable():
                    self._assign(worker, attempt)
                self._observe()
                for finished in self._workers.finished():
                    yield from self._settle(finished)
        finally:
            self._workers.stop()
            for caller, active in self._running.items():  # else a pool that lives on keeps their leases
                self._sweeps[active.sweep].pools.leave(caller)

    def _fill(self) -> bool:
        """Queues pending investigations up to the limit of running ones. Returns whether any is queued or running."""
        room = self._width - len(self._running) - self._workers.queued
        for attempt in islice(self._fresh, max(room, 0)):
            self._workers.submit(attempt)
        return bool(self._running or self._workers.queued)

    def _assign(self, worker: Worker, attempt: Attempt) -> None:
        unit, replicate = attempt.investigation.unit, attempt.investigation.replicate
        # Unique, so that a late `leave` for one attempt does not affect the next one, in this or another driver.
        caller = f"{self._sweeps[attempt.sweep].run.name}/{unit}/{replicate}/{uuid4().hex[:12]}"
        self._running[caller] = ActiveInvestigation(attempt.sweep, attempt.investigation, time.time())
        name = f"{unit.layer}/{unit.index}"
        self._workers.assign(worker, attempt, name, caller, attempt.sweep, attempt.investigation)

    def _observe(self) -> None:
        if time.monotonic() >= self._observed + _LOOK_SECONDS:
            self._observer(list(self._running.values()))
            self._observed = time.monotonic()

    def _settle(self, finished: FinishedWork) -> Iterator[tuple[int, InvestigationResult]]:
        attempt: Attempt = finished.work
        del self._running[finished.caller]
        sweep = self._sweeps[attempt.sweep]
        result = _result(sweep, attempt, finished)
        sweep.pools.leave(finished.caller)
        if result is None:
            self._workers.submit(attempt, is_suspect=True)
        elif result.summary is None and attempt.tries < self._retries:
            self._workers.submit(replace(attempt, tries=attempt.tries + 1), is_suspect=finished.is_suspect)
        else:
            yield attempt.sweep, result
            self._failures = self._failures + 1 if result.summary is None else 0
            if self._failures >= max(_FAILURES_IN_A_ROW, self._width):
                raise ServiceError(
                    f"{self._failures} investigations in a row failed, the last with: {result.cause}. The same command "
                    "continues with all that are left"
                )


def _result(sweep: SweepContext, attempt: Attempt, finished: FinishedWork) -> InvestigationResult | None:
    """Returns the result of an attempt, and stores a failure in the run.

    Returns None if the process died while it ran several investigations, because any of them may have caused the death.
    """
    investigation = attempt.investigation
    try:
        return finished.future.result()
    except RayTaskError as error:
        cause = error.cause
        message = f"{type(cause).__name__}: {cause.message}" if isinstance(cause, OpenMaiaError) else last_line(error)
    except DEAD:
        message = "ServiceError: the worker process died"
        summary = sweep.run.summary(investigation)
        if summary is not None:  # the process died after the record was published
            return InvestigationResult(investigation=investigation, summary=summary)
        if finished.died_with_others:
            return None
    sweep.run.fail(investigation, message)
    return InvestigationResult(investigation=investigation, summary=None, cause=message)


def _take_turns(sweeps: Sequence[SweepContext]) -> Iterator[Attempt]:
    # Round-robin, so that the pools of all targets stay busy.
    left = deque((number, sweep.run.iter_pending()) for number, sweep in enumerate(sweeps))
    while left:
        number, pending = left.popleft()
        investigation = next(pending, None)
        if investigation is not None:
            yield Attempt(number, investigation)
            left.append((number, pending))
