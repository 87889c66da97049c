"""Verdicts and scores of runs, stored beside tests that make the same runs again.

`python -m tests.helpers.stored_figures FILE RUN …` stores those of other runs, for a change that is meant to change them.
"""

import csv
import io
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from openmaia.evaluation.analysis.verdict import write_summary
from openmaia.runs.run import SUMMARY, Run

TEXTS = ("verdict", "labels")
NUMBERS = ("worst_auc", "worst_low", "auc", "auc_all", "auc_other", "auc_unrelated", "auc_words", "z_positive", "q")
DIGITS = 4
Figures = dict[tuple[str, str], dict[str, str]]
"""By run and unit. A figure that a unit lacks is empty."""


def measured(runs: Iterable[Run]) -> Figures:
    found: Figures = {}
    for run in runs:
        write_summary(run)
        for row in pq.read_table(io.BytesIO(run.files.read(SUMMARY) or b"")).to_pylist():
            texts = {key: row[key] or "" for key in TEXTS} | {"labels": "; ".join(row["labels"])}
            numbers = {key: "" if row[key] is None else f"{row[key]:.{DIGITS}f}" for key in NUMBERS}
            found[str(run.config()["name"]), f"{row['layer']}/{row['index']}"] = texts | numbers
    return found


def assert_stored(runs: Iterable[Run], path: Path) -> None:
    """Compares the figures of runs with those of a file. Activations are rounded, so the last digit may differ."""
    with path.open(newline="") as file:
        stored = {(row.pop("run"), row.pop("unit")): row for row in csv.DictReader(file)}
    found = measured(runs)
    assert found.keys() == stored.keys()
    for unit, row in stored.items():
        assert {key: found[unit][key] for key in TEXTS} == {key: row[key] for key in TEXTS}, unit
        assert _numbers(found[unit]) == pytest.approx(
            _numbers(row), rel=10**-DIGITS, abs=2 * 10**-DIGITS, nan_ok=True
        ), unit


def _numbers(row: Mapping[str, str]) -> dict[str, float]:
    return {key: float(row[key] or "nan") for key in NUMBERS}


def store(runs: Iterable[Run], path: Path) -> None:
    with path.open("w", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(["run", "unit", *TEXTS, *NUMBERS])
        table.writerows([*unit, *row.values()] for unit, row in sorted(measured(runs).items()))


if __name__ == "__main__":
    store([Run.open(each) for each in sys.argv[2:]], Path(sys.argv[1]))
