"""Determines the state of a run, that is, of its investigations, from the run directory alone."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from openmaia.runs import progress
from openmaia.runs.ids import InvestigationId
from openmaia.runs.run import Run


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningInvestigation:
    """An investigation that has begun and not ended."""

    investigation: InvestigationId
    turn: int
    """The current turn, from 1."""
    seconds: float | None
    """Time since the investigation began, in seconds. None if no driver (process that executes the run) reports it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunCounts:
    """The number of a run's investigations in each state.

    It is derived from file names, which is fast even for large runs.
    """

    name: str
    pending: int
    """Number of investigations that are neither finished, failed nor running."""
    running: tuple[RunningInvestigation, ...]
    """The investigations that have begun and not ended, including those that were interrupted."""
    done: int
    """Number of investigations with a record."""
    failed: int
    """Number of failed investigations. The next command that executes the run repeats them."""
    evaluated: int
    """Number of investigations whose descriptions were evaluated."""
    planned: int
    """Number of all investigations of the run."""
    per_second: float | None
    """Number of investigations that end per second. None if no driver (process) executes the run."""

    @property
    def seconds_left(self) -> float | None:
        """Estimated time in seconds until all investigations have ended. None if unknown.

        The evaluation of their descriptions is not included.
        """
        return (self.pending + len(self.running)) / self.per_second if self.per_second else None

    @property
    def is_finished(self) -> bool:
        """Whether all investigations are done: none is running, waiting or failed."""
        return self.done >= self.planned and not self.running

    @property
    def text(self) -> str:
        """The counts in words, such as "12 of 18 done, 2 running, 4 waiting, 9 tested; about 0:03:10 left"."""
        parts = [f"{self.done} of {self.planned} done", f"{len(self.running)} running", f"{self.pending} waiting"]
        parts += [f"{self.failed} failed"] if self.failed else []
        left = "" if self.is_finished or self.seconds_left is None else f"; {time_left(self.seconds_left)}"
        return ", ".join([*parts, f"{self.evaluated} tested"]) + left


def time_left(seconds: float) -> str:
    """Returns an estimate in words, rounded to what such an estimate is good for: "about 0:03:10 left"."""
    return f"about {timedelta(seconds=round(seconds / 10) * 10)} left"


def counts(run: Run) -> RunCounts:
    """Counts the investigations of a run by state."""
    driver = progress.read(run)
    turns = run.turns_begun()
    since = driver.running if driver else {}
    failures = {each for each in run.failed() if each not in since}
    running = tuple(
        RunningInvestigation(
            investigation=each,
            turn=turns.get(each, 0) + 1,
            seconds=max(driver.now - since[each], 0.0) if driver and each in since else None,
        )
        for each in {**dict.fromkeys(since), **dict.fromkeys(turns)}
        if each not in failures and not run.is_done(each)
    )
    done, planned = len(run.investigations.names("records")), run.planned()
    return RunCounts(
        name=run.name,
        pending=max(planned - done - len(running) - len(failures), 0),
        running=running,
        done=done,
        failed=len(failures),
        evaluated=len(run.files.names("evaluation")),
        planned=planned,
        per_second=driver.per_second if driver else None,
    )


def rows(
    run: Run, state_counts: RunCounts, investigations: Sequence[InvestigationId] | None = None
) -> Iterator[dict[str, Any]]:
    """Yields a row for each investigation: its unit, its state, its answer and its scores, as a dict.

    The key `stop` holds the state: how the investigation ended (a value of `openmaia.runs.records.Stop`), or "pending",
    "running", "failed", or "damaged" if the record cannot be read.

    Args:
        run: The run.
        state_counts: The result of `counts` for this run.
        investigations: The investigations, None for all of the run.
    """
    running = {each.investigation: each for each in state_counts.running}
    failures = run.failures()
    shown = run.plan() if investigations is None else investigations
    scores = run.scores(shown)
    for each in shown:
        summary = run.summary(each)
        if summary is None and run.is_done(each):
            summary = {"stop": "damaged", "cause": "its record cannot be read"}
        yield _row(each, summary or {}, running.get(each), failures.get(each), scores.get(each, {}))


def state(run: Run) -> dict[str, Any]:
    """Returns the state of a run as JSON types: its investigations, counted by state, and in `units` a row for each."""
    current = counts(run)
    return {
        "name": current.name,
        "pending": current.pending,
        "running": len(current.running),
        "done": current.done,
        "failed": current.failed,
        "evaluated": len(run.evaluated()),
        "per_second": current.per_second,
        "seconds_left": current.seconds_left,
        "units": list(rows(run, current)),
    }


def _row(
    investigation: InvestigationId,
    summary: dict[str, Any],
    running: RunningInvestigation | None,
    cause: str | None,
    scores: dict[str, Any],
) -> dict[str, Any]:
    unfinished = "running" if running else "failed" if cause is not None else "pending"
    return {
        "target": investigation.unit.target,
        "layer": investigation.unit.layer,
        "index": investigation.unit.index,
        "replicate": investigation.replicate,
        "stop": summary.get("stop") or unfinished,
        "cause": summary.get("cause") or cause or "",
        "turns": summary.get("turns", running.turn if running else None),
        "messages": summary.get("messages"),
        "converged": summary.get("converged"),
        "tools": summary.get("tools", {}),
        "labels": summary.get("labels", []),
        "description": summary.get("description", ""),
        **{
            name: scores.get(name)
            for name in (
                "z_positive",
                "z_neutral",
                "z_exemplars",
                "positive",
                "neutral",
                "auc",
                "auc_all",
                "auc_other",
                "outcome",
            )
        },
        "seconds": summary.get("seconds", running.seconds if running else None),
    }
