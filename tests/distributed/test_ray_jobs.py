"""The entry points of jobs: the commands' own arguments, from a clone and from a wheel."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from ray_jobs.__main__ import find_cluster_override
from tests.conftest import REPOSITORY

LEAST = ["name=x", "units=all", "target.name=t", "target.kind=closed_form"]


def job(verb: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "ray_jobs", *verb.split(), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=REPOSITORY)


@pytest.mark.parametrize("module", ["run", "exemplars"])
def test_a_relative_folder_is_refused_because_the_jobs_own_is_temporary(module: str):
    done = job(module, *LEAST, "paths.runs=/shared/runs")
    assert done.returncode == 2 and done.stderr.startswith("error: paths.exemplars='exemplars' is relative"), (
        done.stderr
    )


@pytest.mark.parametrize("module", ["run", "exemplars", "study spurious"])
def test_a_mistake_in_a_config_is_the_commands_own_message(module: str):
    done = job(module, *LEAST, "targett.name=x")
    assert done.returncode == 2 and "did you mean 'target.name'" in done.stderr and "Traceback" not in done.stderr


def test_a_run_that_is_not_there_is_the_commands_own_message():
    done = job("evaluate", "/nowhere/runs/demo")
    assert done.returncode == 2 and "/nowhere/runs/demo is not a run directory" in done.stderr


@pytest.mark.parametrize("module", ["run", "exemplars", "evaluate", "study bias"])
def test_help_is_that_of_the_command(module: str):
    done = job(module, "--help")
    assert done.returncode == 0 and f" {module} " in done.stdout.splitlines()[1]


@pytest.mark.slow
def test_a_job_joins_the_cluster_that_it_was_submitted_to_unless_told_otherwise(tmp_path: Path):
    """No cluster answers there; had it not been told, it would have looked for one itself."""
    folders = [f"paths.runs={tmp_path}", f"paths.exemplars={tmp_path}"]
    done = job("run", *LEAST, *folders, "ray.address=127.0.0.1:9")
    assert done.returncode == 2 and "ray.address='127.0.0.1:9'" in done.stderr


@pytest.mark.parametrize("given", [[], [str(REPOSITORY / "configs/machine/laptop.yaml")]])
def test_job_never_starts_a_ray_of_its_own(given: list[str], tmp_path: Path):
    """It would leave the job's nodes unused."""
    sources = [*LEAST, *given, f"paths.runs={tmp_path}", f"paths.exemplars={tmp_path}"]
    assert find_cluster_override(sources) == ["ray.address=auto"]
    assert find_cluster_override([*sources, "ray.address=head:6379"]) == []


def test_job_with_an_unknown_command_is_told_the_commands():
    done = job("study ablate")
    assert done.returncode == 2 and "'study ablate': expected one of" in done.stderr
    done = job("fly")
    assert done.returncode == 2 and "expected one of run, exemplars" in done.stderr


def test_the_wheel_brings_the_entry_points():
    built = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert {"openmaia", "ray_jobs"} <= set(built["packages"])
