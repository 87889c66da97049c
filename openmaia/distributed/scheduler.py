"""Schedules the units of all sweeps: investigates each and then tests its description, in one kind of worker process.

Its memory does not grow with the number of units: it reads the plan as workers have room, and keeps no results.
"""

import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from itertools import islice
from uuid import uuid4

from ray.exceptions import RayTaskError

from openmaia.agent.loop import InvestigationResult
from openmaia.config.schema import Config, prompt_writer
from openmaia.core.components import BackboneConfig
from openmaia.core.errors import OpenMaiaError, OutOfBudget, ServiceError, ServiceUnavailable, StoreError, UsageError
from openmaia.distributed.examiner import CALLER, Examiner, Examiners
from openmaia.distributed.failures import DEAD, last_line
from openmaia.distributed.worker import SweepContext, UnitWorker
from openmaia.distributed.workers import FinishedItem, Item, Worker, WorkerPool, WorkStep
from openmaia.evaluation.analysis.agreement import Agreement
from openmaia.runs.control import EVERY, RunOrder, read_orders, take_retry
from openmaia.runs.run import InvestigationId

_LOG = logging.getLogger(__name__)

# So many probably have a common cause, such as a model that can no longer be loaded, which would fail all others, too.
_FAILURES_IN_A_ROW = 20
"""The scheduler gives up when this number of investigations in a row, or `ray.investigations` if larger, have failed."""

_LOOK_SECONDS = 1.0
"""Shortest time between two calls of the observer."""


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
    """Investigates and tests the units of several sweeps in worker processes, round-robin between the sweeps.

    Args:
        config: Sets the number of concurrent investigations, and of concurrent tests beside them (`ray.investigations`),
            and of retries (`retries`).
        sweeps: All sweeps.
        observer: Called about once a second with the investigations that are running.
        untested: The sweeps whose descriptions are tested, by index, each with the finished investigations that have no
            test yet.
        on_tested: Called after each test with the index of its sweep, the investigation and, if the test failed, the reason.
        on_retried: Called with the index of its sweep when an investigation that has ended is done again, as ordered.
        investigates: Whether pending investigations are run.
        worker_class: The class that runs in the worker processes.
        examiner_class: The class that runs in the processes of the examiners.
    """

    def __init__(
        self,
        config: Config,
        sweeps: Sequence[SweepContext],
        observer: Observer = lambda running: None,
        untested: Mapping[int, Iterable[InvestigationId]] | None = None,
        on_tested: Callable[[int, InvestigationId, str], None] = lambda number, investigation, problem: None,
        on_retried: Callable[[int], None] = lambda number: None,
        *,
        investigates: bool = True,
        worker_class: type = UnitWorker,
        examiner_class: type = Examiner,
    ):
        self._retries, self._width = config.retries, config.ray.investigations
        self._sweeps, self._observer, self._on_tested, self._on_retried = sweeps, observer, on_tested, on_retried
        self._tested = frozenset(untested or ())
        pending = {number: sweep.run.iter_pending() for number, sweep in enumerate(sweeps) if investigates}
        self._fresh = {
            WorkStep.TEST: _FreshItems(
                {number: iter(left) for number, left in (untested or {}).items()}, WorkStep.TEST
            ),
            WorkStep.INVESTIGATE: _FreshItems(pending, WorkStep.INVESTIGATE),
        }
        self._investigates, self._looked = investigates, float("-inf")
        self._paused: frozenset[int] = frozenset()
        """The sweeps of which nothing may begin, by index."""
        self._retried: set[tuple[int, InvestigationId]] = set()
        """What was queued because an order asked for it, and must not be queued as pending too."""
        self._refused: set[tuple[int, InvestigationId, RunOrder]] = set()
        """Orders that could not be obeyed; the next driver tries again."""
        self._given_up: set[tuple[int, InvestigationId]] = set()
        """Failed investigations that are not repeated, unless an order asks for it."""
        self._running: dict[str, tuple[Item, float]] = {}
        """By caller, with the start in seconds since the epoch."""
        self._observed = 0.0
        self._failures = 0
        """Failed investigations since the last success."""
        self._errors: list[tuple[int, OpenMaiaError]] = []
        """Of failed tests and comparisons, with the index of the sweep."""
        self.unpaid: set[int] = set()
        """The sweeps whose budget is spent, by index, with investigations or tests that are left."""
        self._workers = WorkerPool(config, sweeps, worker_class)
        self._examiners = Examiners(sweeps, self._width, examiner_class)

    def results(self) -> Iterator[tuple[int, InvestigationResult]]:
        """Carries out all investigations and tests. Tests that fail do not end it: `errors` has their errors.

        Yields:
            For each investigation that has ended, the index of its sweep and its result, before its description is
            tested. A failed attempt is not yielded if the investigation is tried again.

        Raises:
            UsageError: If the workers cannot start, or no description can be tested, because of a mistake in the config.
            ServiceUnavailable: If a server that the tests need cannot be reached.
            ServiceError: If the workers cannot start for another reason, if what all tests share could not be computed,
                if Ray has ended on this node, or if _FAILURES_IN_A_ROW investigations have failed. Unfinished
                investigations stay pending.
        """
        try:
            self._obey()
            while self._fill() or self._is_asked_for_more():
                for worker, item in self._workers.assignable(self._is_paused):
                    self._assign(worker, item)
                self._observe()
                for finished in self._workers.finished():
                    yield from self._settle(finished)
                self._obey()
        finally:
            self._workers.stop()
            for caller, (item, _) in self._running.items():  # else a pool that lives on keeps their leases
                self._sweeps[item.sweep].pools.leave(caller)

    def compare(self, numbers: Iterable[int]) -> dict[int, tuple[Agreement, ...]]:
        """Compares the claims of the sweeps with these indices, except those with a failed test (`Examiner.compare`).

        The result lacks sweeps for which it failed; `errors` has their errors.
        """
        failed, found = {number for number, _ in self._errors}, dict[int, tuple[Agreement, ...]]()
        for number in numbers:
            if number not in failed:
                try:
                    found[number] = self._examiners.compare(number)
                except OpenMaiaError as error:
                    self._errors.append((number, error))
                    if isinstance(error, OutOfBudget):
                        self.unpaid.add(number)
        return found

    @property
    def errors(self) -> list[OpenMaiaError]:
        """Those of failed tests and comparisons."""
        return [error for _, error in self._errors]

    def stop(self) -> None:
        """Ends the examiners."""
        self._examiners.stop()

    def _is_asked_for_more(self) -> bool:
        """Returns whether an order that came since the last look asks for more, now that all else is done."""
        self._looked = float("-inf")
        self._obey()
        return self._fill()

    def _obey(self) -> None:
        """Reads the orders of all runs, unless that was done a moment ago, and queues again what they ask for."""
        if time.monotonic() < self._looked + EVERY:
            return
        orders = [read_orders(sweep.run) for sweep in self._sweeps]
        self._paused = frozenset(
            number
            for number, one in enumerate(orders)
            if one.pause is not None or (number in self._paused and not one.is_known)
        )
        for number, one in enumerate(orders if self._investigates else ()):
            for investigation, order in one.retries.items():
                if (number, investigation, order) in self._refused:
                    continue
                if not self._is_under_way(number, investigation):  # else it is done when that has ended
                    self._retry(number, investigation, order)
        self._looked = time.monotonic()

    def _retry(self, number: int, investigation: InvestigationId, order: RunOrder) -> None:
        run, key = self._sweeps[number].run, (number, investigation)
        had_ended = run.is_done(investigation) or key in self._given_up
        try:
            is_pending = take_retry(run, investigation, order)
        except StoreError as error:  # such as files of another user; the other investigations go on
            self._refused.add((number, investigation, order))
            _LOG.warning("%s is not investigated again: %s", investigation.name, error.message)
            return
        if is_pending and had_ended:  # else it is still in the plan's turn
            self._given_up.discard(key)
            self._retried.add(key)
            self._workers.submit(Item(number, investigation))
            self._on_retried(number)

    def _is_under_way(self, number: int, investigation: InvestigationId) -> bool:
        items = [*(item for item, _ in self._running.values()), *self._workers.queue]
        return any((item.sweep, item.investigation) == (number, investigation) for item in items)

    def _is_paused(self, item: Item) -> bool:
        return item.sweep in self._paused

    def _fill(self) -> bool:
        """Queues new items up to the limits of concurrent ones. Returns whether any is queued or running, or waits for
        the end of a pause.
        """
        for step, fresh in self._fresh.items():
            room = self._width - self._count(step)
            if step is WorkStep.INVESTIGATE:  # else descriptions would pile up if tests take longer
                room = min(room, 2 * self._width - self._count(WorkStep.TEST))
            for item in islice(filter(self._is_due, fresh.take(self._paused)), max(room, 0)):
                self._workers.submit(item)
        is_waiting = any(fresh.has(self._paused) for fresh in self._fresh.values())
        return is_waiting or any(self._count(step) for step in WorkStep)

    def _is_due(self, item: Item) -> bool:
        """Returns whether an item was not queued by an order, and the budget permits it. If not, it stays pending."""
        if (item.sweep, item.investigation) in self._retried:
            return False
        purse = self._sweeps[item.sweep].pools.purse
        if item.step is WorkStep.TEST or purse is None or (item.sweep not in self.unpaid and purse.may_begin()):
            return True
        self.unpaid.add(item.sweep)
        return False

    def _count(self, step: WorkStep) -> int:
        return self._count_running(step) + self._workers.queued(step)

    def _count_running(self, step: WorkStep) -> int:
        return sum(item.step is step for item, _ in self._running.values())

    def _assign(self, worker: Worker, item: Item) -> None:
        unit, replicate, run = item.investigation.unit, item.investigation.replicate, self._sweeps[item.sweep].run
        # Unique, so that a late `leave` for one attempt does not affect the next one, in this or another driver.
        attempt = uuid4().hex[:12]
        if item.step is WorkStep.INVESTIGATE:
            caller, name, arguments = f"{run.name}/{unit}/{replicate}/{attempt}", f"{unit.layer}/{unit.index}", ()
        else:
            caller, name = f"{run.name}/{CALLER}/{unit}/{attempt}", f"{CALLER} {unit.layer}/{unit.index}"
            arguments = self._examiners.assign(item.sweep, self._count_running(WorkStep.TEST))
        # Beside the first investigations, which take longer. A language model answers the agents first.
        if item.sweep in self._tested and not isinstance(
            prompt_writer(self._sweeps[item.sweep].config), BackboneConfig
        ):
            self._examiners.prepare(item.sweep)
        self._running[caller] = item, time.time()
        self._workers.assign(worker, item, name, caller, *arguments)

    def _observe(self) -> None:
        if time.monotonic() >= self._observed + _LOOK_SECONDS:
            self._observer(
                [
                    ActiveInvestigation(item.sweep, item.investigation, since)
                    for item, since in self._running.values()
                    if item.step is WorkStep.INVESTIGATE
                ]
            )
            self._observed = time.monotonic()

    def _settle(self, finished: FinishedItem) -> Iterator[tuple[int, InvestigationResult]]:
        item = finished.item
        del self._running[finished.caller]
        self._sweeps[item.sweep].pools.leave(finished.caller)
        if item.step is WorkStep.INVESTIGATE:
            yield from self._settle_investigation(finished)
        else:
            self._settle_test(finished)

    def _settle_investigation(self, finished: FinishedItem) -> Iterator[tuple[int, InvestigationResult]]:
        item = finished.item
        result = _result(self._sweeps[item.sweep], finished)
        if result is None:
            self._workers.submit(item, is_suspect=True)
        elif result.is_unpaid:
            self.unpaid.add(item.sweep)
        elif result.summary is None and item.tries < self._retries:
            self._repeat(finished)
        else:
            if result.summary is None:
                self._given_up.add((item.sweep, item.investigation))
            yield item.sweep, result
            if result.summary is not None and item.sweep in self._tested:
                self._workers.submit(replace(item, step=WorkStep.TEST, tries=0))
            self._failures = self._failures + 1 if result.summary is None else 0
            if self._failures >= max(_FAILURES_IN_A_ROW, self._width):
                raise ServiceError(
                    f"{self._failures} investigations in a row failed, the last with: {result.cause}. The same command "
                    "continues with all that are left"
                )

    def _settle_test(self, finished: FinishedItem) -> None:
        item, unit = finished.item, finished.item.investigation.unit
        try:
            finished.future.result()
            self._on_tested(item.sweep, item.investigation, "")
        except RayTaskError as error:
            cause = error.cause
            if not isinstance(cause, OpenMaiaError):
                cause = ServiceError(f"{unit} could not be evaluated: {last_line(error)}")
            self._fail_test(item, cause)
        except DEAD:
            if finished.died_with_others:
                self._workers.submit(item, is_suspect=True)
            elif item.tries < self._retries:
                self._repeat(finished)
            else:
                text = f"{unit} could not be evaluated: its process died {item.tries + 1} times"
                self._fail_test(item, ServiceError(text))

    def _repeat(self, finished: FinishedItem) -> None:
        item = finished.item
        self._workers.submit(replace(item, tries=item.tries + 1), is_suspect=finished.is_suspect)

    def _fail_test(self, item: Item, error: OpenMaiaError) -> None:
        """Keeps the error of one test for `errors`, or raises it if it concerns all tests."""
        if isinstance(error, OutOfBudget):
            self.unpaid.add(item.sweep)
            return
        self._examiners.check(item.sweep)
        if isinstance(error, (UsageError, ServiceUnavailable)):
            raise error
        self._errors.append((item.sweep, error))
        self._on_tested(item.sweep, item.investigation, f"{item.investigation.unit}: {error.message}")


def _result(sweep: SweepContext, finished: FinishedItem) -> InvestigationResult | None:
    """Returns the result of an attempt at an investigation, and stores a failure in the run.

    Returns None if the process died while it ran several items, because any of them may have caused the death.
    """
    investigation = finished.item.investigation
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


class _FreshItems:
    """Items that were not queued yet, round-robin between the sweeps, so that the pools of all targets stay busy."""

    def __init__(self, sources: Mapping[int, Iterator[InvestigationId]], step: WorkStep):
        self._left, self._step = deque(sources.items()), step

    def has(self, sweeps: Set[int]) -> bool:
        """Returns whether one of these sweeps is not known to have no more items."""
        return any(number in sweeps for number, _ in self._left)

    def take(self, paused: Set[int]) -> Iterator[Item]:
        """Yields the items of the sweeps that are not paused."""
        skipped = 0
        while skipped < len(self._left):
            number, source = self._left.popleft()
            if number in paused:
                self._left.append((number, source))
                skipped += 1
                continue
            investigation, skipped = next(source, None), 0
            if investigation is not None:
                self._left.append((number, source))
                yield Item(number, investigation, self._step)
