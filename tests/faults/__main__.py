"""Disturbs sweeps and writes trials.csv and RESULTS.md beside this file.

    python -m tests.faults [only="driver killed,worker killed"] [trials=25]

A trial takes half a minute to two minutes. Disturbances that were not asked for keep their trials. The clock of the machine is left
alone (processes of the sweep see one that jumps), and so are networks: hosts that are cut off or switched off are in
tests/cluster.
"""

import csv
import sys
from dataclasses import fields
from datetime import date
from pathlib import Path

import pandas as pd

from tests.faults.campaign import Trial, trial, undisturbed
from tests.faults.disturbances import DISTURBANCES
from tests.helpers.measuring import machine

FOLDER = Path(__file__).parent
TRIALS, RESULTS = FOLDER / "trials.csv", FOLDER / "RESULTS.md"


def main() -> None:
    given = dict(argument.partition("=")[::2] for argument in sys.argv[1:])
    count = int(given.pop("trials", "25"))
    names = [name for name in given.pop("only", "").split(",") if name] or list(DISTURBANCES)
    unknown = [*given, *(set(names) - set(DISTURBANCES))]
    if unknown:
        sys.exit(f"unknown: {', '.join(unknown)}; expected trials=25 and only= with some of: {', '.join(DISTURBANCES)}")
    kept = pd.read_csv(TRIALS, keep_default_na=False) if TRIALS.exists() else pd.DataFrame()
    rows = [] if kept.empty else kept[~kept["disturbance"].isin(names)].to_dict("records")
    expected = undisturbed()
    for name in names:
        for seed in range(count):
            done = trial(name, DISTURBANCES[name], seed, expected)
            print(f"{name}, seed {seed}: {done.problem or 'nothing lost'} ({done.seconds:.0f} s)", flush=True)
            rows.append(done.row())
            _write(rows)


def _write(rows: list[dict[str, object]]) -> None:
    with TRIALS.open("w", newline="") as file:
        writer = csv.DictWriter(file, [field.name for field in fields(Trial)], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    RESULTS.write_text(summary(pd.read_csv(TRIALS, keep_default_na=False)))


def summary(trials: pd.DataFrame) -> str:
    """The table of RESULTS.md."""
    table = "".join(_line(name, group) for name, group in trials.groupby("disturbance", sort=False))
    problems = trials[trials["problem"] != ""]
    listed = "".join(f"- {row.disturbance}, seed {row.seed}: {row.problem}\n" for row in problems.itertuples())
    return f"""# What `make faults` found

Sweeps of four investigations with four turns each, two at once, disturbed at a random moment while they investigate; then the
same command, until it ends with exit code 0. Each trial is in trials.csv. On {machine()}, {date.today().isoformat()}.

*complete and equal*: every unit has the record that it has in a sweep without a disturbance, times apart, and an evaluation, and no
turn but the one in progress was carried out twice. A sandbox that dies is told to the agent, so that one record may differ.
*hit*: there was such a process at that moment. *one command*: the disturbed command itself ended with exit code 0.

| disturbance | trials | hit | complete and equal | one command | turns repeated, at most |
|---|---|---|---|---|---|
{table}
{"What went wrong:" if listed else "No trial had a problem."}

{listed}"""


def _line(name: object, group: pd.DataFrame) -> str:
    return (
        f"| {name} | {len(group)} | {int((group['was_there'].astype(str) == 'True').sum())} | {int((group['problem'] == '').sum())} "
        f"| {int((group['commands'] == 1).sum())} | {int(group['repeated'].max())} |\n"
    )


if __name__ == "__main__":
    main()
