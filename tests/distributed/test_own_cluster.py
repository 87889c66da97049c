"""A Ray of one's own is not to be reached from the network, nor by other users of the machine."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from openmaia.core.errors import UsageError
from openmaia.distributed.cluster.connection import private_folder
from tests.conftest import REPOSITORY

DRIVER = """
import json, os
import psutil
from openmaia import distributed
from openmaia.config.loading import load
distributed.prepare("local")
from openmaia.distributed.cluster.connection import cluster
import ray

with cluster(load(["configs/closed-form.yaml", "name=own"])):
    ray.get(ray.remote(lambda: None).remote(), timeout=60)
    family = psutil.Process().children(recursive=True)
    heard = {(one.name(), each.laddr.ip) for one in family for each in one.net_connections("tcp") if each.status == "LISTEN"}
    session = os.path.realpath(f"{os.environ['RAY_TMPDIR']}/ray-{os.getuid()}/r/session_latest")
    modes = [os.stat(path).st_mode & 0o777 for path in (session, os.path.dirname(os.path.dirname(session)))]
    others = [one.path for child in family for one in child.open_files() if session not in one.path and "/session_" in one.path]
print(json.dumps({"heard": sorted(heard), "modes": modes, "elsewhere": others}))
"""


@pytest.fixture
def short_folder() -> Iterator[Path]:
    with TemporaryDirectory(dir="/tmp", prefix="own") as folder:
        yield Path(folder)


@pytest.mark.slow
def test_own_cluster_is_reached_by_this_user_on_this_machine_only(short_folder: Path):
    done = subprocess.run(
        [sys.executable, "-c", DRIVER], env=os.environ | {"RAY_AUTH_MODE": "token", "RAY_TMPDIR": str(short_folder)}, cwd=REPOSITORY,
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert "raylet" in {name for name, _ in found["heard"]}
    assert {address for _, address in found["heard"]} <= {"127.0.0.1", "::1", "::ffff:127.0.0.1"}
    assert found["modes"] == [0o700, 0o700]
    assert found["elsewhere"] == []


def test_folder_of_ray_is_closed_to_others_whatever_it_was(short_folder: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("RAY_TMPDIR", str(short_folder))
    folder = private_folder()
    assert folder.parent == short_folder and folder.stat().st_mode & 0o777 == 0o700
    folder.chmod(0o777)
    assert private_folder() == folder and folder.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("kind", ["link", "file", "folder of another user"])
def test_folder_of_ray_that_somebody_else_made_is_refused(
    short_folder: Path, monkeypatch: pytest.MonkeyPatch, kind: str
):
    monkeypatch.setenv("RAY_TMPDIR", str(short_folder))
    folder = short_folder / f"ray-{os.getuid()}"
    if kind == "link":
        folder.symlink_to(short_folder)
    elif kind == "file":
        folder.write_text("")
    elif os.getuid():
        pytest.skip("only root can give a folder away")
    else:
        folder.mkdir()
        os.chown(folder, 65534, 65534)
    with pytest.raises(UsageError, match="is not a folder of yours"):
        private_folder()


def test_folder_of_ray_has_a_short_path(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("RAY_TMPDIR", raising=False)
    monkeypatch.setenv("TMPDIR", "/tmp/" + "x" * 60)
    assert private_folder() == Path(f"/tmp/ray-{os.getuid()}")


def test_ray_that_does_not_start_is_named_in_one_sentence(short_folder: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("RAY_TMPDIR", str(short_folder))
    (private_folder() / "r").write_text("")
    # A process of its own: this one may be connected.
    done = subprocess.run(
        [sys.executable, "-c", DRIVER], capture_output=True, text=True, timeout=300, cwd=REPOSITORY, env=os.environ
    )
    error = done.stderr.strip().splitlines()[-1]
    assert done.returncode == 1, "it started"
    said = r"^openmaia\.core\.errors\.ServiceError: Ray did not start on this machine \(.*r'\)\. .* the same command may succeed later$"
    assert re.match(said, error), error


@pytest.mark.parametrize("name", ["x" * 60, "é" * 25])
def test_folder_of_ray_that_is_too_long_for_sockets_is_refused(
    short_folder: Path, monkeypatch: pytest.MonkeyPatch, name: str
):
    monkeypatch.setenv("RAY_TMPDIR", str(short_folder / name))
    with pytest.raises(UsageError, match="too long for the sockets of Ray"):
        private_folder()
    assert not list(short_folder.iterdir())


def test_folder_of_ray_that_cannot_be_made_is_refused(short_folder: Path, monkeypatch: pytest.MonkeyPatch):
    (short_folder / "file").write_text("")
    monkeypatch.setenv("RAY_TMPDIR", str(short_folder / "file"))
    with pytest.raises(UsageError, match="cannot be made for the files of Ray"):
        private_folder()
