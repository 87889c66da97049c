"""Table 2: intervals, published figures, CSV and page."""

import json
from pathlib import Path

import pytest
from PIL import Image

from openmaia.config.loading import load
from openmaia.recipes.spurious.page import PUBLISHED, table, to_data_table, write
from openmaia.recipes.spurious.rows import SelectionScore
from openmaia.recipes.spurious.study import StudyResult, UnitVerdicts
from openmaia.runs.files import Files
from tests.conftest import REPOSITORY

SMALL = REPOSITORY / "configs/spurious-small.yaml"


def _outcome(seed: int, agent: float) -> StudyResult:
    rows = {
        "original": SelectionScore(units=(9,), accuracies=(0.5,)),
        "l1": SelectionScore(units=(5,), accuracies=(0.6,)),
        "random": SelectionScore(units=(2, 2), accuracies=(0.4, 0.6)),
        "l1_n": SelectionScore(units=(2,), accuracies=(0.6,)),
        "agent": SelectionScore(units=(2,), accuracies=(agent,)),
    }
    judged = UnitVerdicts(selective=(1, 2), spurious=(3,), undecided=(4,), failed=())
    return StudyResult(
        seed=seed, seen=0.9, shifted=0.5, candidates=(1, 2, 3, 4), verdicts=judged, probe=(1,), rows=rows
    )


def test_interval_is_students_over_seeds():
    row = next(
        row for row in table([_outcome(0, 0.7), _outcome(1, 0.8), _outcome(2, 0.9)], 4).rows if row.name == "agent"
    )
    assert row.accuracy is not None and row.accuracy.low is not None
    assert (row.accuracy.mean, row.accuracy.low) == pytest.approx((0.8, 0.8 - 4.3027 * 0.1 / 3**0.5), abs=1e-4)


def test_published_figures_have_own_columns():
    made = table([_outcome(0, 0.7)], 4)
    lines = to_data_table(made).csv().decode().splitlines()
    names = lines[0].split(",")
    agent = dict(zip(names, next(line for line in lines if line.startswith("agent")).split(","), strict=True))
    assert (agent["accuracy"], agent["published_accuracy"]) == ("0.7", str(PUBLISHED["agent"].accuracy))


def test_published_figures_are_those_of_the_paper():
    assert {name: (one.units, one.accuracy) for name, one in PUBLISHED.items()} == {
        "original": (512, 0.731), "l1": (50, 0.779), "random": (22, 0.705), "l1_n": (22, 0.757), "agent": (22, 0.837),
        "balanced": (147, 0.830), "balanced_n": (22, 0.865),
    }  # fmt: skip


def test_page_escapes_the_config(tmp_path: Path):
    config = load([str(SMALL), 'name="<script>alert(1)<|script>"'])
    made = [_outcome(0, 0.7), _outcome(1, 0.8)]
    page = write(Files(str(tmp_path)), config, table(made, 4), made, "scripted <b>").read_text()
    assert "<script>alert" not in page and "scripted &lt;b&gt;" in page
    assert "Accuracy, published" in page and "no results of ours" in page
    assert Image.open(tmp_path / "report/spurious.png").width > 1000
    assert json.loads((tmp_path / "table.json").read_text())["differences"]["l1_n"]["mean"] == pytest.approx(0.15)
