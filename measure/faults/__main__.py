"""Disturbs sweeps and writes trials.csv and RESULTS.md beside this file.

    python -m measure.faults [only="driver killed,worker killed"] [times=25] [again=yes] [minutes=60]

`times` is the number of disturbances of each kind that find what they disturb. Trials in trials.csv that are not older than the
pools count; `again=yes` measures the kinds anew in their place. No sweep begins after so many `minutes`; the same command without `again` goes on
with the kinds that have begun, and those that still have old trials alone are named at the end. A sweep is disturbed up to five
times and takes one to four minutes, more where others use the machine; two run side by side. The clock of the machine is left
alone (processes of the sweep see one that jumps), and so is its network: hosts that are cut off or switched off are namespaces
of it. Its memory is filled, for two seconds at a time.
"""

import math
import sys
import time
from collections.abc import Callable, Hashable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, fields
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pandas as pd

from measure.faults import sweep
from measure.faults.campaign import SPARE, Trial, trial, undisturbed
from measure.faults.disturbances import DISTURBANCES, on_hosts
from tests.cluster.hosts import lacking

FOLDER = Path(__file__).parent
TRIALS, RESULTS = FOLDER / "trials.csv", FOLDER / "RESULTS.md"
SIDE_BY_SIDE = 2
"""Number of sweeps at once."""
POOLS_SINCE = "2026-11-28"
"""Date since which pools, workers and driver are as they are now. Older trials are shown apart, and do not count."""


def main() -> None:
    given: dict[str, str] = {name: value for name, _, value in (text.partition("=") for text in sys.argv[1:])}
    times, minutes = int(given.pop("times", "25")), float(given.pop("minutes", "inf"))
    names = [name for name in given.pop("only", "").split(",") if name] or list(DISTURBANCES)
    again = given.pop("again", "no")
    unknown = [*given, *(set(names) - set(DISTURBANCES))]
    if unknown or again not in ("yes", "no"):
        sys.exit(
            f"unknown: {', '.join(unknown) or f'again={again}'}; expected times=25, again=yes, minutes=60 and only= with some of: "
            f"{', '.join(DISTURBANCES)}"
        )
    if any(DISTURBANCES[name].place is on_hosts for name in names) and (reason := lacking()):
        sys.exit(f"hosts cannot be made here: {reason}")
    if times < 1:
        sys.exit(f"times={times}; expected 1 or more")
    rows: list[Any] = pd.read_csv(TRIALS, keep_default_na=False).to_dict("records") if TRIALS.exists() else []
    old = [row for row in rows if again == "yes" and row["disturbance"] in names and row["date"] >= POOLS_SINCE]
    rows = [row for row in rows if row not in old]
    failed: list[str] = []
    until = time.monotonic() + 60 * minutes
    carry_out = partial(trial, expected=undisturbed())
    with ProcessPoolExecutor(SIDE_BY_SIDE, mp_context=get_context("spawn")) as processes:
        for done in further(names, times, rows, carry_out, processes, until):
            if isinstance(done, NotTried):
                failed.append(done.disturbance)
                print(f"{done.disturbance}: not tried: {done.reason}", flush=True)
                continue
            print(
                f"{done.disturbance}, seed {done.seed}: {done.problem or 'nothing lost'} ({done.seconds:.0f} s)",
                flush=True,
            )
            rows.append(done.row())
            # What is measured anew replaces the old trials of its kind, and no others.
            old = [row for row in old if row["disturbance"] != done.disturbance]
            _write(old + rows)
    if old:
        left = ",".join(dict.fromkeys(row["disturbance"] for row in old))
        print(f'not measured anew, so that their old trials count: give only="{left}" again=yes', flush=True)
    if failed:
        sys.exit(f"not tried, so that nothing is said of them: {', '.join(failed)}")


@dataclass(frozen=True, kw_only=True)
class NotTried:
    """A disturbance whose sweep could not be carried out, such as one on hosts that did not start."""

    disturbance: str
    reason: str


def further(
    names: Sequence[str],
    times: int,
    rows: Sequence[dict[Hashable, Any]],
    carry_out: Callable[[str, int], Trial],
    processes: Executor,
    until: float = math.inf,
) -> Iterator[Trial | NotTried]:
    """Runs trials until each disturbance has found something `times` times, in at most as many sweeps.

    A disturbance that could not be tried is not begun again; the others go on.

    Args:
        names: The disturbances.
        times: How often each is to find what it disturbs.
        rows: The trials that count already. The caller appends each new one.
        carry_out: Carries out the trial of a disturbance with a seed.
        processes: Where it does so.
        until: No trial begins at or after this time of the monotonic clock.
    """
    given_up: set[str] = set()
    running: dict[Future[Trial], tuple[str, int]] = {}

    def following() -> tuple[str, int] | None:
        if time.monotonic() >= until or any(DISTURBANCES[name].is_alone for name, _ in running.values()):
            return None
        for name in names:
            if name in given_up or (DISTURBANCES[name].is_alone and running):
                continue
            own = [row for row in rows if row["disturbance"] == name]
            ahead = [seed for other, seed in running.values() if other == name]
            counting = [row for row in own if row["date"] >= POOLS_SINCE]
            hits = sum(row["hit"] for row in counting) + len(ahead) * DISTURBANCES[name].times
            if hits < times and len(counting) + len(ahead) < times:
                return name, max([*(row["seed"] for row in own), *ahead], default=-1) + 1
        return None

    while True:
        while len(running) < SIDE_BY_SIDE and (wanted := following()):
            running[processes.submit(carry_out, *wanted)] = wanted
        if not running:
            return
        for done in wait(running, return_when=FIRST_COMPLETED).done:
            name, _ = running.pop(done)
            if error := done.exception():
                given_up.add(name)
                yield NotTried(disturbance=name, reason=f"{type(error).__name__}: {error}")
            else:
                yield done.result()


def _write(rows: list[Any]) -> None:
    pd.DataFrame(rows, columns=[field.name for field in fields(Trial)]).to_csv(TRIALS, index=False)
    RESULTS.write_text(summary(pd.read_csv(TRIALS, keep_default_na=False)))


def summary(trials: pd.DataFrame) -> str:
    """The table of RESULTS.md."""
    is_older = trials["date"] < POOLS_SINCE
    (table, untried), (older, _) = _table(trials[~is_older]), _table(trials[is_older])
    problems = trials[trials["problem"] != ""]
    listed = "".join(f"- {row.disturbance}, seed {row.seed}: {row.problem}\n" for row in problems.itertuples())
    lacking_kinds = f"Not tried on these pools: {untried}. " if untried else ""
    verdict = f"{lacking_kinds}{'What went wrong:' if listed else 'No trial had a problem.'}\n"
    apart = f"## On older pools\n\nTrials from before {POOLS_SINCE}. Pools, workers and driver have changed since.\n\n{older}"
    return "\n".join(filter(None, (INTRODUCTION, table, verdict, listed, apart if is_older.any() else "")))


INTRODUCTION = f"""# What `make faults` found

Sweeps of {sweep.UNITS} investigations with {sweep.EXPERIMENTS + 1} turns each, two at once, disturbed at random moments, up to five times a sweep;
then the same command, until it ends with exit code 0. `make faults` adds sweeps until a disturbance has hit often enough; two ran side by
side, those whose memory was filled alone. Each is in trials.csv, with date, machine and commit.

*hit*: there was such a process at that moment; the disk was full; Ray killed a process for want of memory. *complete and equal*: sweeps in which every unit has the record that it has in a sweep
without a disturbance, times apart, and an evaluation, and in which no turn but one in progress was carried out twice. The agent is
told that its sandbox died, so that this turn may differ, and with it the numbers of later images. *one command*: the disturbed
command itself ended with exit code 0; one that fails without a disturbance, as when Ray does not start on a busy machine, is given
again, up to {SPARE} times a sweep. *commits*: those that the sweeps ran on; `by` one that published them soon after.

Supervisors of sandboxes have been forked from a template since 8cb6021c (2026-11-30). Sandboxes and templates were disturbed
after that; the other sweeps are older or newer, as their commits are.
"""


def _table(trials: pd.DataFrame) -> tuple[str, str]:
    """A table with a line for each disturbance that was tried, and the names of the others."""
    groups = {name: trials[trials["disturbance"] == name] for name in DISTURBANCES}
    lines = "".join(_line(name, group) for name, group in groups.items() if len(group))
    return HEAD + lines, ", ".join(name for name, group in groups.items() if not len(group))


HEAD = """\
| disturbance | times | hit | sweeps | complete and equal | one command | turns repeated in a sweep, at most | commits |
|---|---|---|---|---|---|---|---|
"""


def _line(name: str, group: pd.DataFrame) -> str:
    times = sum(len(str(moments).split()) for moments in group["after_turns"])
    complete, at_once = (group["problem"] == "").sum(), (group["commands"] == 1).sum()
    figures = (name, times, group["hit"].sum(), len(group), complete, at_once, group["repeated"].max())
    return f"| {' | '.join(map(str, figures))} | {', '.join(group['commit'].unique())} |\n"


if __name__ == "__main__":
    main()
