"""A generator, an editor, a backbone, a judge and a target of the user, those of docs/extending.md, in one run: on a Ray of one's own
and on two nodes, of which the second knows the user's folder from its requests alone."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from openmaia.distributed import LOOPBACK_VARIABLE
from openmaia.runs.records import Stop
from openmaia.runs.run import Run
from tests.conftest import RAY, REPOSITORY, free_port
from tests.helpers import extending
from tests.helpers.sweeping import pictures

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    extending.write(tmp_path)
    pictures(tmp_path / "pictures", 24)
    return tmp_path


def sources(folder: Path, *overrides: str) -> list[str]:
    small = [
        "pictures.kind=folder",
        f"pictures.folder={folder}/pictures",
        "exemplars.k=3",
        "generator.size=32",
        "task.evidence.confirm=0",
    ]
    tested = ["evaluate.n=2", "evaluate.looks=[]", "evaluate.random_words=10"]
    places = [f"paths.{name}={folder / name}" for name in ("runs", "exemplars", "cache")]
    return [*extending.together(), *small, *tested, *places, *overrides]


def run(folder: Path, command: str, given: list[str], environment: dict[str, str]) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "openmaia.cli.main", command, *given],
        cwd=folder, env=environment, capture_output=True, text=True, timeout=500,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


def check(folder: Path) -> None:
    """Every component did its part in both investigations and their tests."""
    found = Run.open(str(folder / "runs/mine"))
    records = [found.record(each) for each in found.done()]
    assert [record.stop for record in records] == [Stop.ANSWER] * 2
    for record in records:
        assert (record.labels, record.backbone) == (("dots",), "mybackbones:Pattern")
        assert all(record.spent[service].requests for service in ("target", "generator", "editor", "backbone"))
    # This process has not imported the modules that the config names.
    assert [scores["verified_by"] for scores in found.scores().values()] == [["brightness"]] * 2


def variables(folder: Path) -> dict[str, str]:
    (folder / "token").write_text("0123456789abcdef" * 4)
    settled = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(folder / "token"), "RAY_USAGE_STATS_ENABLED": "0"}
    environment = os.environ | {"PYTHONPATH": str(REPOSITORY)} | settled
    environment.pop(LOOPBACK_VARIABLE, None)  # set by an earlier test of this process
    return environment


@pytest.mark.nightly
def test_own_components_work_together_on_a_ray_of_ones_own(folder: Path):
    environment = variables(folder)
    assert "mytargets:Colours" in run(folder, "config", sources(folder), environment)
    run(folder, "doctor", sources(folder), environment)
    run(folder, "run", sources(folder, "ray.num_cpus=2"), environment)
    check(folder)


@contextmanager
def two_nodes(environment: dict[str, str]) -> Iterator[str]:
    """A head without CPUs, and a node with some, both started in a folder that is not the user's. Yields the address."""
    port, short = free_port(), f"/tmp/ray-{os.getpid()}-own"
    address = f"127.0.0.1:{port}"
    own = ["--head", f"--port={port}", f"--temp-dir={short}", "--num-cpus=0", "--include-dashboard=false"]
    processes: list[subprocess.Popen[bytes]] = []
    try:
        for options in (own, [f"--address={address}", "--num-cpus=2"]):
            start = [RAY, "start", "--block", "--node-ip-address=127.0.0.1", "--object-store-memory=80000000", *options]
            processes.append(
                subprocess.Popen(
                    start,
                    cwd="/",
                    env=environment,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    start_new_session=True,
                )
            )
            nodes = [sys.executable, "-m", "ray_jobs.wait", f"--nodes={len(processes)}", "--timeout=120"]
            subprocess.run(nodes, env=environment | {"RAY_ADDRESS": address}, cwd="/", check=True, timeout=150)
        yield address
    finally:
        for process in processes[::-1]:
            os.killpg(process.pid, signal.SIGTERM)
        for process in processes:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        shutil.rmtree(short, ignore_errors=True)


@pytest.mark.nightly
def test_own_components_work_together_on_a_node_that_was_started_elsewhere(folder: Path):
    environment = variables(folder)
    # Replicas with a part of a CPU find room on the second node alone, as investigations do.
    pools = [f"pools.{role}.num_cpus=0.1" for role in ("target", "generator", "editor", "backbone")]
    with two_nodes(environment) as address:
        run(folder, "run", sources(folder, f"ray.address={address}", *pools), environment)
    check(folder)
