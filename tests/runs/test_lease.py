"""The lease: one driver per run."""

import errno
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from openmaia.core.errors import StoreError, UsageError
from openmaia.runs.files import Files
from openmaia.runs.lease import FILE, LEASE_SECONDS, is_held, take

HOLDER = """
import sys, time
from openmaia.runs.files import Files
from openmaia.runs.lease import take
while time.time() < float(sys.argv[2]):
    pass
take(Files(sys.argv[1]))
print("held", flush=True)
time.sleep(float(sys.argv[3]))
"""


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(str(tmp_path / "run"))


def driver(files: Files, start: float, seconds: float) -> "subprocess.Popen[bytes]":
    """Another process that takes the lease at a time and holds it for some seconds."""
    command = [sys.executable, "-c", HOLDER, files.root, str(start), str(seconds)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)


@pytest.fixture
def holder(files: Files) -> Iterator["subprocess.Popen[bytes]"]:
    """Another process that holds the lease."""
    process = driver(files, 0, 60)
    assert process.stdout is not None
    assert process.stdout.readline() == b"held\n"
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


def write_lease(files: Files, **changes: Any) -> None:
    """The lease of a driver on another host."""
    values = {"host": "elsewhere", "pid": 1, "started": "1", "time": time.time(), "token": "t"} | changes
    files.write(FILE, json.dumps(values).encode())


def lease(files: Files) -> dict[str, Any]:
    return json.loads(files.read(FILE) or b"{}")


def test_second_driver_is_refused_and_told_who_drives(files: Files, holder: "subprocess.Popen[bytes]"):
    assert is_held(files)
    with pytest.raises(UsageError, match=f"driven by process {holder.pid} on {socket.gethostname()}"):
        take(files)


def test_lease_of_a_killed_driver_is_taken_over_at_once(files: Files, holder: "subprocess.Popen[bytes]"):
    holder.kill()
    holder.wait()
    assert not is_held(files)
    take(files)
    assert lease(files)["pid"] == os.getpid()


def test_lease_of_a_process_whose_id_is_used_again_is_taken_over_at_once(
    files: Files, holder: "subprocess.Popen[bytes]"
):
    write_lease(files, **lease(files) | {"started": "1"})
    assert not is_held(files)
    take(files)
    assert lease(files)["pid"] == os.getpid()


def test_live_driver_on_another_host_is_refused(files: Files):
    write_lease(files)
    with pytest.raises(UsageError, match="elsewhere"):
        take(files)


def test_expired_lease_is_taken_over(files: Files):
    write_lease(files, time=time.time() - LEASE_SECONDS - 1)
    assert not is_held(files)
    take(files)
    assert lease(files)["host"] == socket.gethostname()


def test_one_of_many_simultaneous_drivers_gets_the_lease(files: Files):
    start = time.time() + 4
    drivers = [driver(files, start, 4) for _ in range(6)]
    assert sorted(process.communicate(timeout=120)[0] for process in drivers) == [b""] * 5 + [b"held\n"]


def test_renewed_lease_is_newer(files: Files):
    held = take(files)
    before = lease(files)["time"]
    held.renew()
    assert lease(files)["time"] > before


def test_released_lease_is_free(files: Files):
    take(files).release()
    assert files.read(FILE) is None


def test_driver_that_was_taken_over_is_told(files: Files):
    held = take(files)
    write_lease(files)
    with pytest.raises(UsageError, match="taken over by process 1 on elsewhere"):
        held.renew()
    held.release()
    assert lease(files)["host"] == "elsewhere"


def test_failing_lock_is_a_store_error(files: Files, monkeypatch: pytest.MonkeyPatch):
    def stale(*_: object) -> None:
        raise OSError(errno.ESTALE, "stale file handle")

    held = take(files)
    with monkeypatch.context() as patch:
        patch.setattr("fcntl.flock", stale)
        with pytest.raises(StoreError, match="could not be locked"):
            held.renew()
    held.renew()


@pytest.mark.parametrize("text", ["", "{", "[]", "{}"])
def test_damaged_lease_does_not_lock_the_run(files: Files, text: str):
    files.write(FILE, text.encode())
    take(files)
    assert lease(files)["pid"] == os.getpid()
