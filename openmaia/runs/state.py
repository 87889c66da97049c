"""The state of a run and of each of its investigations, from the run directory alone."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from typing import Any

from openmaia.runs import progress
from openmaia.runs.control import RETRIED, RunOrder, read_orders
from openmaia.runs.ids import InvestigationId
from openmaia.runs.records import Stop
from openmaia.runs.results import EVALUATION, TRIALS
from openmaia.runs.run import Run


class Unfinished(StrEnum):
    """The state of an investigation without a readable record."""

    FAILED = "failed"
    RUNNING = "running"
    """It has begun. It may also have been interrupted."""
    PENDING = "pending"
    DAMAGED = "damaged"
    """It has a record that cannot be read."""


STATES = (*Stop, *Unfinished)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningInvestigation:
    """An investigation that has begun and not ended."""

    investigation: InvestigationId
    turn: int
    """From 1."""
    seconds: float | None
    """Time since it began. None if no driver reports it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InvestigationState:
    """The state of an investigation."""

    state: Stop | Unfinished
    cause: str = ""
    """The limit that ended it, or why it failed or its record cannot be read; empty if there is none."""
    summary: dict[str, Any] = field(default_factory=dict[str, Any])
    """The summary of its record (`openmaia.runs.summary.summary`); empty for an `Unfinished` state."""
    running: RunningInvestigation | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunCounts:
    """The number of investigations in each state, from file names, which is fast even for large runs."""

    name: str
    pending: int
    running: tuple[RunningInvestigation, ...]
    done: int
    """Number of records, also damaged ones."""
    failed: int
    evaluated: int
    """Number of tests, also of those whose scores are computed when the last one has ended."""
    planned: int
    per_second: float | None
    """Number of investigations that end per second. None without a driver."""
    repeated: int
    """Number of times that an investigation was repeated because an order asked for it."""
    paused: RunOrder | None
    """None if it is not paused, or has no driver."""

    @property
    def seconds_left(self) -> float | None:
        """Estimated time until all investigations have ended, without evaluation. None if unknown, or while it is paused."""
        if self.paused:
            return None
        return (self.pending + len(self.running)) / self.per_second if self.per_second else None

    @property
    def is_finished(self) -> bool:
        """Whether none is running, waiting or failed."""
        return self.done >= self.planned and not self.running

    @property
    def text(self) -> str:
        """The counts in words, such as "12 of 18 done, 2 running, 4 waiting, 9 tested; about 0:03:10 left"."""
        parts = [f"{self.done} of {self.planned} done", f"{len(self.running)} running", f"{self.pending} waiting"]
        parts += [f"{self.failed} failed"] if self.failed else []
        left = "" if self.is_finished or self.seconds_left is None else f"; {time_left(self.seconds_left)}"
        paused = f"; paused since {self.paused.words}" if self.paused else ""
        return ", ".join([*parts, f"{self.evaluated} tested"]) + left + paused


def time_left(seconds: float) -> str:
    """Returns an estimate in words, rounded to what such an estimate is good for: "about 0:03:10 left"."""
    return f"about {timedelta(seconds=round(seconds / 10) * 10)} left"


def counts(run: Run) -> RunCounts:
    """Counts the investigations of a run by state."""
    driver = progress.read(run)
    running, failed = _begun(run, driver)
    done, planned = len(run.investigations.names("records")), run.planned()
    return RunCounts(
        name=run.name,
        pending=max(planned - done - len(running) - failed, 0),
        running=running,
        done=done,
        failed=failed,
        evaluated=len({name.partition("/")[2] for folder in (EVALUATION, TRIALS) for name in run.files.names(folder)}),
        planned=planned,
        per_second=driver.per_second if driver else None,
        repeated=len(run.investigations.folders(RETRIED)),
        paused=read_orders(run).pause if run.is_driven() else None,
    )


def _begun(run: Run, driver: progress.DriverProgress | None) -> tuple[tuple[RunningInvestigation, ...], int]:
    """Returns the running investigations, and the number of failed ones."""
    turns, since = run.turns_begun(), driver.running if driver else {}
    # A failure stays until its investigation, which the driver repeats, has a record.
    failed = run.failed() - since.keys()
    running = tuple(
        RunningInvestigation(
            investigation=each,
            turn=turns.get(each, 0) + 1,
            seconds=max(driver.now - since[each], 0.0) if driver and each in since else None,
        )
        for each in {**dict.fromkeys(since), **dict.fromkeys(turns)}
        if each not in failed and not run.is_done(each)
    )
    return running, len(failed)


def states(
    run: Run, investigations: Sequence[InvestigationId] | None = None
) -> dict[InvestigationId, InvestigationState]:
    """Returns the state of investigations. Every view of a run takes it from here.

    Args:
        run: The run.
        investigations: None: those of the plan in its order, then unplanned ones that are finished or failed.
    """
    # Records before their summaries: one that is written meanwhile would count as damaged otherwise.
    done = run.done() if investigations is None else set(filter(run.is_done, investigations))
    if investigations is None:
        summaries = {InvestigationId.of_row(row): row for row in run.headers()}
    else:
        summaries = {each: row for each in investigations if (row := run.summary(each))}
    running = {each.investigation: each for each in _begun(run, progress.read(run))[0]}
    failures = run.failures()

    def state_of(each: InvestigationId) -> InvestigationState:
        if summary := summaries.get(each):
            return InvestigationState(state=Stop(summary["stop"]), cause=summary["cause"], summary=summary)
        if each in done:
            return InvestigationState(state=Unfinished.DAMAGED, cause="its record cannot be read")
        if each in running:
            return InvestigationState(state=Unfinished.RUNNING, running=running[each])
        if each in failures:
            return InvestigationState(state=Unfinished.FAILED, cause=failures[each])
        return InvestigationState(state=Unfinished.PENDING)

    if investigations is None:
        investigations = [*run.plan(), *sorted(summaries), *sorted(failures.keys() | done)]
    return {each: state_of(each) for each in dict.fromkeys(investigations)}


def state(run: Run, scores: Sequence[str] = ()) -> dict[str, Any]:
    """Returns the state of a run as JSON types: its investigations, counted by state, and in `units` a row for each.

    The key `stop` of a row holds its state, one of STATES. `scores` are further keys, of scores; None where one is
    unknown.
    """
    current, stored = counts(run), run.scores()
    return {
        "name": current.name,
        "pending": current.pending,
        "running": len(current.running),
        "done": current.done,
        "failed": current.failed,
        "evaluated": len(run.evaluated()),
        "per_second": current.per_second,
        "seconds_left": current.seconds_left,
        "paused": None if current.paused is None else {"since": current.paused.time, "by": current.paused.by},
        "units": [
            _row(each, one) | {name: stored.get(each, {}).get(name) for name in scores}
            for each, one in states(run).items()
        ],
    }


def _row(investigation: InvestigationId, state: InvestigationState) -> dict[str, Any]:
    summary, running = state.summary, state.running
    return {
        "target": investigation.unit.target,
        "layer": investigation.unit.layer,
        "index": investigation.unit.index,
        "replicate": investigation.replicate,
        "stop": state.state.value,
        "cause": state.cause,
        "turns": summary.get("turns", running.turn if running else None),
        "messages": summary.get("messages"),
        "converged": summary.get("converged"),
        "tools": summary.get("tools", {}),
        "labels": summary.get("labels", []),
        "description": summary.get("description", ""),
        "seconds": summary.get("seconds", running.seconds if running else None),
    }
