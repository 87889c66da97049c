"""The lease: one driver per run."""

import errno
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from openmaia.core.errors import StoreError, UsageError
from openmaia.runs.files import Files
from openmaia.runs.lease import LEASE_FILE, is_held, take

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


NO_LOCKS = """
import errno, fcntl
def missing(*_):
    raise OSError(errno.ENOSYS, "Function not implemented")
fcntl.flock = missing
"""


def driver(files: Files, start: float, seconds: float, before: str = "") -> "subprocess.Popen[bytes]":
    """Another process that takes the lease at a time and holds it for some seconds."""
    command = [sys.executable, "-c", before + HOLDER, files.root, str(start), str(seconds)]
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
    values = {"host": "elsewhere", "machine": "m", "pid": 1, "started": "1", "beat": 1, "token": "t"} | changes
    files.write(LEASE_FILE, json.dumps(values).encode())


@contextmanager
def beating(files: Files, **changes: Any) -> Generator[None]:
    """A living driver on another host, which renews its lease five times a second."""
    ended = threading.Event()
    write_lease(files, **changes)

    def beat() -> None:
        count = 1
        while not ended.wait(0.2):
            count += 1
            write_lease(files, **changes | {"beat": count})

    thread = threading.Thread(target=beat)
    thread.start()
    yield
    ended.set()
    thread.join()


def lease(files: Files) -> dict[str, Any]:
    return json.loads(files.read(LEASE_FILE) or b"{}")


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


CLOCKS = {"none": {}, "ahead": {"time": time.time() + 1e6}, "behind": {"time": 0.0}, "nonsense": {"time": "noon"}}


@pytest.mark.parametrize("clock", CLOCKS)
def test_living_driver_on_another_host_is_refused_whatever_its_clock_says(files: Files, clock: str):
    with beating(files, **CLOCKS[clock]):
        assert is_held(files)
        with pytest.raises(UsageError, match="elsewhere"):
            take(files, 10.0)


@pytest.mark.parametrize("clock", CLOCKS)
def test_silent_lease_is_taken_over_in_time_whatever_its_clock_says(files: Files, clock: str):
    write_lease(files, **CLOCKS[clock])
    began = time.monotonic()
    take(files, 0.5)
    assert time.monotonic() - began >= 0.5
    assert lease(files)["host"] == socket.gethostname()


def test_lease_that_was_seen_silent_is_taken_over_without_another_watch(files: Files, caplog: pytest.LogCaptureFixture):
    write_lease(files, token="silent")  # of its own: a watch is told once for each token
    assert is_held(files)
    time.sleep(0.6)
    take(files, 0.5)
    assert lease(files)["pid"] == os.getpid() and "watching" not in caplog.text


def test_lease_of_another_machine_with_this_name_is_not_taken_for_dead(files: Files):
    """Its process has an id that no process has here."""
    with beating(files, host=socket.gethostname(), pid=2**22 + 1), pytest.raises(UsageError, match="driven by process"):
        take(files, 10.0)


def test_lease_in_the_format_of_an_older_version_is_watched(files: Files):
    holder = {"host": socket.gethostname(), "pid": 2**22 + 1, "started": "1", "token": "t"}
    with beating(files, **holder, machine=None), pytest.raises(UsageError, match="driven by process"):
        take(files, 10.0)


def test_stopped_driver_of_this_machine_is_taken_over_when_it_was_silent(
    files: Files, holder: "subprocess.Popen[bytes]"
):
    holder.send_signal(signal.SIGSTOP)
    os.waitpid(holder.pid, os.WUNTRACED)
    take(files, 0.5)
    assert lease(files)["pid"] == os.getpid()


@pytest.mark.parametrize("code", [errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL])
def test_file_system_without_locks_is_used_with_one_warning(
    files: Files, code: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    def missing(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr("fcntl.flock", missing)
    held = take(files)
    held.renew()
    assert is_held(files)
    assert [each.getMessage().count("has no locks") for each in caplog.records] == [1]


def test_one_of_many_simultaneous_drivers_gets_a_lease_without_locks(files: Files):
    start = time.time() + 4
    drivers = [driver(files, start, 3, NO_LOCKS) for _ in range(4)]
    assert sorted(process.communicate(timeout=120)[0] for process in drivers) == [b""] * 3 + [b"held\n"]


def test_one_of_many_simultaneous_drivers_gets_the_lease(files: Files):
    start = time.time() + 4
    drivers = [driver(files, start, 4) for _ in range(6)]
    assert sorted(process.communicate(timeout=120)[0] for process in drivers) == [b""] * 5 + [b"held\n"]


def test_renewed_lease_has_another_content(files: Files):
    held = take(files)
    before = files.read(LEASE_FILE)
    held.renew()
    assert files.read(LEASE_FILE) != before


def test_released_lease_is_free(files: Files):
    take(files).release()
    assert files.read(LEASE_FILE) is None


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


WRONG = [
    {key: value} for key in ("host", "pid", "token") for value in (None, [], {"a": 1}, 1e400, float("nan"), 10**400)
]
HELD = {"host": "h", "pid": 1, "started": "1", "token": "t"}


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", "[" * 100_000, *(json.dumps(HELD | each) for each in WRONG)])
def test_damaged_lease_does_not_lock_the_run(files: Files, text: str):
    files.write(LEASE_FILE, text.encode())
    take(files)
    assert lease(files)["pid"] == os.getpid()
