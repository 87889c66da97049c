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
from openmaia.evaluation.analysis.verdict import run_verdicts
from openmaia.evaluation.truth import read_truth
from openmaia.runs.run import Run
from tests.conftest import REPOSITORY
from tests.helpers.stored_figures import assert_stored
from tests.prepare import CACHE, packages

RESAMPLES = 2000


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    folder = tmp_path_factory.mktemp("demo")
    packages()
    command = [sys.executable, "-m", "openmaia.cli.main", "run", "configs/first-look.yaml"]
    done = subprocess.run(
        [*command, f"paths.runs={folder}", f"paths.exemplars={folder}/exemplars", f"paths.cache={CACHE}"],
        cwd=REPOSITORY, env=os.environ | {"RAY_AUTH_MODE": "disabled"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert (folder / "demo/report/index.html").is_file()
    return {name: Run.open(str(folder / name)) for name in ("demo", "closed-form")}


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.timeout(1800)
def test_readme_shows_the_findings_and_the_verdicts_of_the_demo(runs: dict[str, Run]):
    readme = " ".join(Path(REPOSITORY / "README.md").read_text().split())
    for name, run in runs.items():
        for sentence in findings(run, run_verdicts(run), run_scores(run, RESAMPLES)):
            assert f"{name}: {sentence}" in readme
    demo = runs["demo"]
    rows = re.findall(r"(_[\w.]+/\d+) +(undecided|supported|not supported|abstained)", readme)
    found = {f"{each.unit.layer}/{each.unit.index}": verdict for each, verdict in run_verdicts(demo).items()}
    assert rows and all(found[unit].verdict.value == verdict for unit, verdict in rows)


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.timeout(1800)
def test_verdicts_and_scores_are_the_stored_ones(runs: dict[str, Run]):
    assert_stored(runs.values(), Path(__file__).with_name("demo.csv"))


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.timeout(1800)
def test_units_of_known_truth_are_found(runs: dict[str, Run]):
    matches = read_truth(runs["closed-form"])
    assert sum(each.exact for each in matches) >= 0.9 * len(matches) > 0


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.timeout(1800)
def test_wrong_descriptions_of_real_units_are_not_supported(runs: dict[str, Run]):
    shares = supported_shares(runs["demo"])
    assert shares[SHUFFLED][0] <= 0.05 and shares[RANDOM][0] <= 0.05
