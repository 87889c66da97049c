"""Disturbs sweeps and writes trials.csv and RESULTS.md beside this file.

    python -m tests.faults [only="driver killed,worker killed"] [times=25]

`times` is the number of disturbances of each kind. A sweep is disturbed up to five times and takes one to four minutes; two
run side by side. Disturbances that were not asked for keep their trials. The clock of the machine is left alone (processes of the
sweep see one that jumps), and so is its network: hosts that are cut off or switched off are namespaces of it.
"""

import sys
from concurrent.futures import ProcessPoolExecutor
from dataclasses import fields
from itertools import repeat
from math import ceil
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pandas as pd

from tests.cluster.hosts import lacking
from tests.faults import sweep
from tests.faults.campaign import Trial, trial, undisturbed
from tests.faults.disturbances import DISTURBANCES, on_hosts

FOLDER = Path(__file__).parent
TRIALS, RESULTS = FOLDER / "trials.csv", FOLDER / "RESULTS.md"
SIDE_BY_SIDE = 2
"""Number of sweeps at once."""


def main() -> None:
    given: dict[str, str] = {name: value for name, _, value in (text.partition("=") for text in sys.argv[1:])}
    times = int(given.pop("times", "25"))
    names = [name for name in given.pop("only", "").split(",") if name] or list(DISTURBANCES)
    unknown = [*given, *(set(names) - set(DISTURBANCES))]
    if unknown:
        sys.exit(f"unknown: {', '.join(unknown)}; expected times=25 and only= with some of: {', '.join(DISTURBANCES)}")
    if any(DISTURBANCES[name].place is on_hosts for name in names) and (reason := lacking()):
        sys.exit(f"hosts cannot be made here: {reason}")
    if times < 1:
        sys.exit(f"times={times}; expected 1 or more")
    kept = pd.read_csv(TRIALS, keep_default_na=False) if TRIALS.exists() else pd.DataFrame()
    rows: list[Any] = [] if kept.empty else kept[~kept["disturbance"].isin(names)].to_dict("records")
    expected = undisturbed()
    with ProcessPoolExecutor(SIDE_BY_SIDE, mp_context=get_context("spawn")) as processes:
        wanted = [(name, seed) for name in names for seed in range(ceil(times / DISTURBANCES[name].times))]
        for done in processes.map(trial, *zip(*wanted, strict=True), repeat(expected)):
            print(
                f"{done.disturbance}, seed {done.seed}: {done.problem or 'nothing lost'} ({done.seconds:.0f} s)",
                flush=True,
            )
            rows.append(done.row())
            _write(rows)


def _write(rows: list[Any]) -> None:
    pd.DataFrame(rows, columns=[field.name for field in fields(Trial)]).to_csv(TRIALS, index=False)
    RESULTS.write_text(summary(pd.read_csv(TRIALS, keep_default_na=False)))


def summary(trials: pd.DataFrame) -> str:
    """The table of RESULTS.md."""
    table = "".join(_line(name, group) for name, group in trials.groupby("disturbance", sort=False))
    problems = trials[trials["problem"] != ""]
    listed = "".join(f"- {row.disturbance}, seed {row.seed}: {row.problem}\n" for row in problems.itertuples())
    return f"""# What `make faults` found

Sweeps of {sweep.UNITS} investigations with {sweep.EXPERIMENTS + 1} turns each, two at once, disturbed at random moments, up to five times a sweep;
then the same command, until it ends with exit code 0. Several sweeps ran side by side. Each is in trials.csv, with date and machine.

*hit*: there was such a process at that moment. *complete and equal*: sweeps in which every unit has the record that it has in a sweep
without a disturbance, times apart, and an evaluation, and in which no turn but one in progress was carried out twice. The agent is
told that its sandbox died, so that this turn may differ, and with it the numbers of later images. *one command*: the disturbed
command itself ended with exit code 0.

| disturbance | times | hit | sweeps | complete and equal | one command | turns repeated in a sweep, at most |
|---|---|---|---|---|---|---|
{table}
{"What went wrong:" if listed else "No trial had a problem."}

{listed}"""


def _line(name: object, group: pd.DataFrame) -> str:
    times = sum(len(str(moments).split()) for moments in group["after_turns"])
    complete, at_once = (group["problem"] == "").sum(), (group["commands"] == 1).sum()
    return f"| {name} | {times} | {group['hit'].sum()} | {len(group)} | {complete} | {at_once} | {group['repeated'].max()} |\n"


if __name__ == "__main__":
    main()
