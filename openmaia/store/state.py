"""The state of a run as plain data, read from its directory alone."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

from openmaia.store import progress
from openmaia.store.run import Owed, Run

Row = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """turn: the one under way, from 1. seconds: since its investigation began, None where no driver says."""

    owed: Owed
    turn: int
    seconds: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """How a run stands, from the names of its files: quick for a run of any size. owed counts what is neither finished
    nor under way; failed units are owed again by the next command. per_second: investigations that end, None where
    nobody drives the run."""

    name: str
    owed: int
    running: tuple[Running, ...]
    done: int
    failed: int
    evaluated: int
    planned: int
    per_second: float | None

    @property
    def seconds_left(self) -> float | None:
        return (self.owed + len(self.running)) / self.per_second if self.per_second else None


def counts(run: Run) -> Counts:
    driven = progress.read(run)
    turns = run.turns_begun()
    since = driven.running if driven else {}
    failures = {owed for owed in run.failed() if owed not in since}
    now = time.time()
    begun = [o for o in {**dict.fromkeys(since), **dict.fromkeys(turns)} if o not in failures and not run.is_done(o)]
    running = tuple(
        Running(owed=owed, turn=turns.get(owed, 0) + 1, seconds=now - since[owed] if owed in since else None)
        for owed in begun
    )
    done, planned = len(run.files.names("records")), run.planned()
    return Counts(
        name=run.name,
        owed=max(planned - done - len(running) - len(failures), 0),
        running=running,
        done=done,
        failed=len(failures),
        evaluated=len(run.files.names("evaluation")),
        planned=planned,
        per_second=driven.per_second if driven else None,
    )


def rows(run: Run, found: Counts, most: int | None = None) -> Iterator[Row]:
    """What is known of each unit of the plan, of the first `most`."""
    running = {each.owed: each for each in found.running}
    failures = run.failures()
    for owed in islice(run.plan(), most):
        yield _row(owed, run.summary(owed), running.get(owed), failures.get(owed), run.score(owed))


def state(run: Run) -> dict[str, Any]:
    """Everything, for programs."""
    found = counts(run)
    return {
        "name": found.name,
        "owed": found.owed,
        "running": len(found.running),
        "done": found.done,
        "failed": found.failed,
        "evaluated": found.evaluated,
        "per_second": found.per_second,
        "seconds_left": found.seconds_left,
        "units": list(rows(run, found)),
    }


def _row(owed: Owed, header: Row | None, running: Running | None, cause: str | None, scores: Row | None) -> Row:
    found, scored = header or {}, scores or {}
    stop = found.get("stop") or ("running" if running else "failed" if cause is not None else "owed")
    return {
        "target": owed.unit.target,
        "layer": owed.unit.layer,
        "index": owed.unit.index,
        "replicate": owed.replicate,
        "stop": stop,
        "cause": found.get("cause") or cause or "",
        "turns": found.get("turns", running.turn if running else None),
        "messages": found.get("messages"),
        "converged": found.get("converged"),
        "tools": found.get("tools", {}),
        "labels": found.get("labels", []),
        "description": found.get("description", ""),
        "positive": scored.get("positive"),
        "neutral": scored.get("neutral"),
        "auc": scored.get("auc"),
        "auc_other": scored.get("auc_other"),
        "outcome": scored.get("outcome"),
        "seconds": found.get("seconds", running.seconds if running else None),
    }
