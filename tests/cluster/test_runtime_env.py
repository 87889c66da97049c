"""`openmaia submit ray` to a head whose Python has Ray and nothing of ours, and what KubeRay's submitter makes of a job's end."""

import os
import shutil
import signal
import subprocess
import sys
import time
import venv
import zipfile
from collections.abc import Iterator
from importlib.metadata import distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from openmaia.runs.run import Run
from tests.cluster.conftest import Sweeps
from tests.cluster.ray_head import ray_head
from tests.conftest import REPOSITORY

pytestmark = pytest.mark.cluster

SECRET = "hunter2-not-to-be-shown"
WHEEL = "openmaia_requirements-1.0-py3-none-any.whl"


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python that has Ray with what it requires, and nothing else: as of an administrator who runs a cluster for many."""
    folder = tmp_path_factory.mktemp("bare")
    venv.create(folder, symlinks=True, with_pip=True)
    packages = next(folder.glob("lib/python*/site-packages"))
    for name in required("ray", {"default"}):
        found = distribution(name)
        for top in {file.parts[0] for file in found.files or () if file.parts[0] not in ("..", "__pycache__")}:
            if not (packages / top).exists():
                (packages / top).symlink_to(Path(str(found.locate_file(top))))
    return folder / "bin/python"


def required(name: str, extras: set[str], seen: set[str] | None = None) -> set[str]:
    """Returns the distributions that a distribution needs, with itself."""
    seen = set() if seen is None else seen
    seen.add(canonicalize_name(name))
    for text in distribution(name).requires or ():
        wanted = Requirement(text)
        applies = not wanted.marker or any(wanted.marker.evaluate({"extra": extra}) for extra in ("", *extras))
        if applies and canonicalize_name(wanted.name) not in seen:
            required(wanted.name, set(wanted.extras), seen)
    return seen


@pytest.fixture(scope="module")
def head(tmp_path_factory: pytest.TempPathFactory, bare: Path, sweeps: Sweeps) -> Iterator[dict[str, str]]:
    environment = {
        "PATH": f"{bare.parent}:/usr/bin:/bin",
        "PYTHONPATH": "",
        "OPENMAIA_TEST": str(sweeps.meeting("bare").folder),
    }
    with ray_head(tmp_path_factory.mktemp("ray"), [str(bare), "-m", "ray.scripts.scripts"], environment) as started:
        yield started


def submit(head: dict[str, str], folder: Path, *given: str) -> subprocess.CompletedProcess[str]:
    environment = {
        **os.environ,
        **{k: v for k, v in head.items() if k.startswith("RAY_")},
        "PYTHONPATH": str(REPOSITORY),
    }
    command = [sys.executable, "-m", "openmaia.cli.main", "submit", "ray", f"--address={head['DASHBOARD']}", *given]
    until = time.monotonic() + 120
    while True:  # a head that has just started has no agent yet that takes jobs
        done = subprocess.run(
            command,
            env=environment | {"OPENMAIA_SECRET": SECRET},
            capture_output=True,
            text=True,
            timeout=120,
            cwd=folder,
        )
        if "No available agent" not in done.stderr or time.monotonic() > until:
            return done
        time.sleep(1)


def follow(head: dict[str, str], bare: Path, number: str) -> str:
    """Returns what the job wrote, when it has ended."""
    done = subprocess.run(
        [str(bare), "-m", "ray.scripts.scripts", "job", "logs", f"--address={head['DASHBOARD']}", "--follow", number],
        env=head, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    return done.stdout + done.stderr


def clone(folder: Path) -> Path:
    """A folder with our code and a wheel that brings what it requires: here, a path to this Python's packages."""
    for name in ("openmaia", "ray_jobs", "configs", "tests"):
        shutil.copytree(REPOSITORY / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    site = Path(str(distribution("ray").locate_file("")))
    with zipfile.ZipFile(folder / WHEEL, "w") as wheel:
        info = "openmaia_requirements-1.0.dist-info"
        wheel.writestr("openmaia_requirements.pth", f"{site}\n")
        wheel.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: openmaia-requirements\nVersion: 1.0\n")
        wheel.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        wheel.writestr(f"{info}/RECORD", "")
    return folder


def test_a_head_without_our_packages_runs_nothing_of_ours(
    head: dict[str, str], bare: Path, sweeps: Sweeps, tmp_path: Path
):
    done = submit(head, clone(tmp_path), "configs/closed-form.yaml", *sweeps.sources("bare", "units=mono=0")[1:])
    assert done.returncode == 0, done.stderr
    assert "No module named" in follow(head, bare, done.stdout.split()[3])


@pytest.mark.nightly
@pytest.mark.parametrize("key", ["pip", "py_executable"])
def test_a_runtime_environment_brings_our_packages(
    key: str, head: dict[str, str], bare: Path, sweeps: Sweeps, tmp_path: Path
):
    value = {"pip": f"[./{WHEEL}]", "py_executable": sys.executable}[key]
    sources = ["configs/closed-form.yaml", *sweeps.sources(f"brought-{key}", "units=mono=0")[1:]]
    wanted = [f"job.runtime_env.{key}={value}", "job.runtime_env.env_vars=[OPENMAIA_SECRET]"]
    done = submit(head, clone(tmp_path), *sources, *wanted)
    assert done.returncode == 0, done.stderr
    said = follow(head, bare, done.stdout.split()[3])
    assert "error" not in said.lower(), said
    run = Run.open(f"{sweeps.folder}/runs/brought-{key}")
    assert len(run.done()) == 1, said
    files = [path for path in Path(run.files.root).rglob("*") if path.is_file()]
    assert SECRET not in done.stdout + done.stderr + said
    assert not any(SECRET.encode() in path.read_bytes() for path in files)


@pytest.mark.parametrize("code", [pytest.param(1, marks=pytest.mark.nightly), 2])
def test_the_submitter_of_kuberay_ends_well_when_the_driver_fails(code: int, head: dict[str, str], bare: Path):
    """KubeRay retries its submitter when that fails, and its last command is `ray job logs --follow`."""
    assert _submitter(head, bare, f"exit {code}").wait(120) == 0


@pytest.mark.nightly
def test_the_submitter_of_kuberay_fails_when_the_head_is_lost(tmp_path: Path, bare: Path):
    environment = {"PATH": f"{bare.parent}:/usr/bin:/bin", "PYTHONPATH": ""}
    with ray_head(tmp_path, [str(bare), "-m", "ray.scripts.scripts"], environment) as head:
        submitter = _submitter(head, bare, "echo begun; sleep 300")
        assert submitter.stdout is not None
        while "begun" not in submitter.stdout.readline():
            assert submitter.poll() is None
        os.killpg(int(head["HEAD"]), signal.SIGKILL)
        assert submitter.wait(120) != 0


def _submitter(head: dict[str, str], bare: Path, command: str) -> subprocess.Popen[str]:
    """The shell command of KubeRay 1.5 and later, as its operator puts it together."""
    ray, address, number = (
        f"{bare} -m ray.scripts.scripts",
        f"--address {head['DASHBOARD']}",
        f"job-{time.monotonic_ns()}",
    )
    script = (
        f"until {ray} job list {address} >/dev/null 2>&1; do sleep 1; done; "
        f"if ! {ray} job status {address} {number} >/dev/null 2>&1; "
        f"then until {ray} job submit {address} --no-wait --submission-id {number} -- bash -c '{command}'; do sleep 1; done; fi; "
        f"{ray} job logs {address} --follow {number}"
    )
    return subprocess.Popen(
        ["bash", "-c", script], env=head, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
