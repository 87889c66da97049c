"""A cluster that somebody else started: joined, and left as it was."""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from openmaia.runs.run import Run
from tests.cluster.conftest import Sweeps
from tests.cluster.ray_head import ray_head
from tests.conftest import RAY, REPOSITORY

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def head(tmp_path_factory: pytest.TempPathFactory, sweeps: Sweeps) -> Iterator[dict[str, str]]:
    """The environment is active where Ray is started: jobs say `python`."""
    environment = {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "OPENMAIA_TEST": str(sweeps.meeting("jobs").folder),
        "PYTHONPATH": str(REPOSITORY),
    }
    with ray_head(tmp_path_factory.mktemp("ray"), [RAY], environment) as started:
        yield started


def check(run: Run) -> None:
    assert len(run.done()) == 1
    assert run.pending() == []
    assert all(scores["auc"] is not None for scores in run.scores().values())


@pytest.mark.nightly
def test_run_joins_a_cluster_by_its_address(head: dict[str, str], sweeps: Sweeps):
    sources = sweeps.sources("joined", "units=mono=0", f"ray.address={head['ADDRESS']}")
    done = subprocess.run(
        [sys.executable, "-m", "openmaia.cli.main", "run", *sources],
        env=head,
        capture_output=True,
        text=True,
        timeout=300,
        cwd=REPOSITORY,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    check(Run.open(f"{sweeps.folder}/runs/joined"))


def submit(head: dict[str, str], *command: str, folder: Path = REPOSITORY) -> subprocess.CompletedProcess[str]:
    """`ray job submit` with a folder as the job's own; ends with the job. A head that has just started has no agent yet
    that takes jobs, and says so."""
    until = time.monotonic() + 120
    while True:
        done = subprocess.run(
            [RAY, "job", "submit", f"--address={head['DASHBOARD']}", "--working-dir", str(folder), "--", *command],
            env=head | {"RAY_RUNTIME_ENV_IGNORE_GITIGNORE": "0"},
            capture_output=True,
            text=True,
            timeout=400,
            cwd=folder,
        )
        if "No available agent to submit job" not in done.stdout + done.stderr or time.monotonic() > until:
            return done
        time.sleep(1)


@pytest.fixture(scope="module")
def submitted(head: dict[str, str], sweeps: Sweeps) -> tuple[list[str], Path]:
    """The sources and the directory of a run that was submitted as a job."""
    sources = ["configs/closed-form.yaml", *sweeps.sources("submitted", "units=mono=0")[1:]]
    done = submit(head, sys.executable, "-m", "ray_jobs", "run", *sources)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-2000:]
    return sources, sweeps.folder / "runs/submitted"


def test_a_submitted_job_runs_on_the_cluster(submitted: tuple[list[str], Path]):
    check(Run.open(str(submitted[1])))


def test_a_finished_run_is_evaluated_by_a_job(head: dict[str, str], submitted: tuple[list[str], Path]):
    done = submit(head, sys.executable, "-m", "ray_jobs", "evaluate", str(submitted[1]))
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-2000:]
    assert "mono/0" in done.stdout


@pytest.mark.nightly
def test_exemplars_are_computed_by_a_job(head: dict[str, str], sweeps: Sweeps, tmp_path: Path):
    given = sweeps.sources("exemplars", f"paths.exemplars={tmp_path}")[1:]
    done = submit(head, sys.executable, "-m", "ray_jobs", "exemplars", "configs/closed-form.yaml", *given)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-2000:]
    assert list(tmp_path.rglob("*.units.parquet"))


def test_openmaia_submit_hands_the_same_run_over_and_says_how_to_follow_it(
    head: dict[str, str], submitted: tuple[list[str], Path]
):
    sources, run = submitted
    done = subprocess.run(
        [sys.executable, "-m", "openmaia.cli.main", "submit", "ray", f"--address={head['DASHBOARD']}", *sources],
        env=head, capture_output=True, text=True, timeout=120, cwd=REPOSITORY,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-2000:]
    logs, show = (next(line for line in done.stdout.splitlines() if word in line).split() for word in ("logs", "show"))
    followed = subprocess.run([RAY, *logs[1:]], env=head, capture_output=True, text=True, timeout=120)
    assert "everything was done already" in followed.stdout, followed.stdout[-2000:] + followed.stderr[-2000:]
    assert show == ["openmaia", "show", str(run)]


def test_a_job_with_a_mistake_fails_with_its_message_and_its_exit_code(head: dict[str, str]):
    done = submit(head, sys.executable, "-m", "ray_jobs", "run", "configs/demo.yaml")
    assert done.returncode != 0
    assert "paths.runs='runs' is relative" in done.stdout and "exit code 2" in done.stdout + done.stderr


def test_a_job_does_not_carry_runs_exemplars_and_environments(head: dict[str, str], tmp_path: Path):
    shutil.copy(REPOSITORY / ".gitignore", tmp_path)
    for name in ("runs/demo/a", "exemplars/t/a", "exemplars/README.md", ".venv/a", ".git/a", "configs/a", "openmaia/a"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    look = "import os; print('carried', sorted(os.path.join(*at) for d, _, fs in os.walk('.') for at in [(d, f) for f in fs]))"
    done = submit(head, sys.executable, "-c", look, folder=tmp_path)
    carried = next(line for line in done.stdout.splitlines() if line.startswith("carried"))
    assert carried == "carried ['./.gitignore', './configs/a', './exemplars/README.md', './openmaia/a']"
