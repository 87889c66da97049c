"""The main job, as the README shows it: its figures, and that wrong descriptions do not pass as supported."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from openmaia.evaluation.analysis.findings import findings
from openmaia.evaluation.analysis.significance import RANDOM, SHUFFLED, supported_shares
from openmaia.evaluation.analysis.summary import run_scores
from openmaia.evaluation.analysis.verdict import Verdict, run_verdicts
from openmaia.runs.run import Run
from tests.conftest import REPOSITORY
from tests.helpers.stored_figures import assert_stored

RESAMPLES = 2000


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("demo")
    command = [sys.executable, "-m", "openmaia.cli.main", "run", "configs/demo.yaml"]
    done = subprocess.run(
        [*command, *(f"paths.{key}={folder / key}" for key in ("runs", "exemplars", "cache"))],
        cwd=REPOSITORY, env=os.environ | {"RAY_AUTH_MODE": "disabled"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert (folder / "runs/demo/report/index.html").is_file()
    return Run.open(str(folder / "runs/demo"))


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.timeout(1800)
def test_readme_shows_the_findings_and_the_verdicts_of_the_demo(demo: Run):
    readme = " ".join(Path(REPOSITORY / "README.md").read_text().split())
    for each in findings(demo, run_verdicts(demo), run_scores(demo, RESAMPLES)):
        assert each.sentence[0].upper() + each.sentence[1:] in readme
    rows = re.findall(r"((?:stage|output)[\d/]+) +(undecided|supported|not supported|abstained)", readme)
    found = {f"{each.unit.layer}/{each.unit.index}": verdict for each, verdict in run_verdicts(demo).items()}
    assert rows and all(found[unit].verdict.value == verdict for unit, verdict in rows)


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.timeout(1800)
def test_verdicts_and_scores_are_the_stored_ones(demo: Run):
    assert_stored([demo], Path(__file__).with_name("demo.csv"))


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.timeout(1800)
def test_most_descriptions_hold_and_wrong_ones_do_not(demo: Run):
    verdicts = [each.verdict for each in run_verdicts(demo).values()]
    described = [each for each in verdicts if each is not Verdict.ABSTAINED]
    shares = supported_shares(demo)
    assert sum(each is Verdict.SUPPORTED for each in described) > len(described) / 2 > 0
    assert shares[SHUFFLED][0] <= 0.05 and shares[RANDOM][0] <= 0.05
