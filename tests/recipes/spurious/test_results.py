"""The published table is that of the measured rows."""

import csv
import re

from tests.conftest import REPOSITORY

FOLDER = REPOSITORY / "openmaia/recipes/spurious"


def test_published_accuracies_are_those_of_the_rows():
    with (FOLDER / "results.csv").open() as file:
        measured = [
            (f"{float(row['units']):,.0f}", *(f"{float(row[name]):.3f}" for name in ("accuracy", "low", "high")))
            for row in csv.DictReader(file)
        ]
    table = (FOLDER / "RESULTS.md").read_text().split("## Before that")[0]
    published = re.findall(r"\| ([\d,]+) \| (0\.\d{3}) \((0\.\d{3}) to (1|0\.\d{3})\) \|", table)
    assert [(*row[:3], "1.000" if row[3] == "1" else row[3]) for row in published] == measured
