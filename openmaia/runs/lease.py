"""Leases, which ensure that only one process works on a run directory or computes the exemplars of an exemplar store.

A lease is a file in the folder that its holder renews regularly, in a thread. On a local file system, a lock makes reading
and writing it atomic. An object store has no locks: two drivers that start at the same moment can both believe that
they hold the lease, until one of them renews it.
"""

import fcntl
import json
import os
import socket
import threading
import time
import uuid
from _thread import interrupt_main
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from openmaia.core.errors import StoreError, UsageError
from openmaia.runs.files import Files
from openmaia.runs.records import dumps

LEASE_SECONDS = 60.0
"""A lease (the right of one process to work on a run) that has not been renewed for this long has expired."""

FILE = "driver.json"


@dataclass(frozen=True, slots=True)
class Lease:
    """The right of one driver (process that executes a run) to work on the run, until it is released or expires."""

    files: Files
    """The run directory."""
    token: str
    """A random value that identifies the process that holds the lease."""

    def renew(self) -> None:
        """Extends the lease.

        Raises:
            UsageError: Another process has taken the lease.
        """
        with _locked(self.files):
            holder = _holder(self.files)
            if holder is not None and holder["token"] != self.token:
                raise UsageError(
                    f"{self.files.root} was taken over by process {holder['pid']} on {holder['host']}, because this "
                    f"process had not renewed its lease for {LEASE_SECONDS:.0f} s; let the other process finish"
                )
            _write(self.files, self.token)

    def release(self) -> None:
        """Gives up the lease. Has no effect if another process has taken the lease over."""
        with _locked(self.files):
            holder = _holder(self.files)
            if holder is None or holder["token"] == self.token:
                self.files.delete(FILE)


@contextmanager
def held(files: Files, waiting: Callable[[str], None] | None = None) -> Generator[None]:
    """Context manager that holds the lease of a folder and renews it in a thread.

    Args:
        files: The folder.
        waiting: Says what to do if another process holds the lease. If it is None, an error is raised. Otherwise the
            call waits until the lease is free, and calls `waiting` once with a message that names the other process.

    Raises:
        UsageError: Another process holds the lease at the start and `waiting` is None, or another process takes over
            the lease while the block runs. In the second case the block is interrupted.
    """
    lease = take(files) if waiting is None else _waited_for(files, waiting)
    ended = threading.Event()
    lost: list[UsageError] = []

    def renew() -> None:
        while not ended.wait(LEASE_SECONDS / 4):
            try:
                lease.renew()
            except StoreError:
                continue  # a short failure of the file system; the lease lasts for four renewal intervals
            except UsageError as error:
                lost.append(error)
                interrupt_main()
                return

    thread = threading.Thread(target=renew, daemon=True)
    thread.start()
    try:
        yield
    except KeyboardInterrupt:
        if lost:
            raise lost[0] from None
        raise
    finally:
        ended.set()
        thread.join()
        with suppress(StoreError):  # the lease also expires by itself
            lease.release()


def _waited_for(files: Files, waiting: Callable[[str], None]) -> Lease:
    said = False
    while True:
        try:
            return take(files)
        except UsageError as error:
            if not said:
                waiting(error.message)
            said = True
        time.sleep(1.0)


def take(files: Files) -> Lease:
    """Takes the lease of a folder, the exclusive right to work on it.

    An expired lease, or that of a dead process on this machine, is replaced.

    Args:
        files: The folder.

    Raises:
        UsageError: Another process holds the lease.
    """
    with _locked(files):
        holder = _holder(files)
        if holder is not None:
            age = time.time() - holder["time"]
            if age < LEASE_SECONDS and not _is_dead_here(holder):
                raise UsageError(
                    f"{files.root} is being driven by process {holder['pid']} on {holder['host']} (seen {age:.0f} s ago). "
                    f"Wait for it, stop it, or try again {LEASE_SECONDS:.0f} s after it died"
                )
        lease = Lease(files, uuid.uuid4().hex)
        _write(files, lease.token)
        return lease


def is_held(files: Files) -> bool:
    """Returns whether a run has a lease that has not expired and whose holder is not known to be dead.

    Args:
        files: The run directory.
    """
    holder = _holder(files)
    if holder is None or time.time() - holder["time"] >= LEASE_SECONDS:
        return False
    return holder["pid"] == os.getpid() or not _is_dead_here(holder)


def _write(files: Files, token: str) -> None:
    pid = os.getpid()
    holder = {"host": socket.gethostname(), "pid": pid, "started": _started(pid), "time": time.time(), "token": token}
    files.write(FILE, dumps(holder).encode())


@contextmanager
def _locked(files: Files) -> Generator[None]:
    """Holds a lock that excludes other processes on a local file system. The system releases it when a process ends."""
    if files.local is None:
        yield
        return
    path = files.local / ".driver.lock"
    with ExitStack() as stack:
        try:
            files.local.mkdir(parents=True, exist_ok=True)
            lock = stack.enter_context(open(path, "w"))
            fcntl.flock(lock, fcntl.LOCK_EX)
        except OSError as error:
            raise StoreError(f"{path} could not be locked: {error}") from error
        yield


def _holder(files: Files) -> dict[str, Any] | None:
    """Returns the content of the lease file, or None if it is missing or damaged.

    A damaged file is no error, because the driver will soon write it again.
    """
    try:
        held: Any = json.loads(files.read(FILE) or b"null")
        kinds: dict[str, Any] = {"host": str, "pid": int, "started": str, "time": float, "token": str}
        return {key: kind(held[key]) for key, kind in kinds.items()}
    except (ValueError, TypeError, KeyError):
        return None


def _is_dead_here(holder: dict[str, Any]) -> bool:
    """Returns whether the holder ran on this host and has ended.

    A process with its id is another one if it is this process or was started at another time: ids are used again after
    a restart of the host or container.
    """
    if holder["host"] != socket.gethostname():
        return False
    if holder["pid"] == os.getpid():
        return True
    try:
        os.kill(holder["pid"], 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        pass
    started = _started(holder["pid"])
    return bool(started) and started != holder["started"]


def _started(pid: int) -> str:
    """Returns when a process of this host was started, in clock ticks since the start of the host.

    Returns "" if the system does not say so.
    """
    with suppress(OSError):
        # The name of the program, in parentheses, may contain anything. The 20th field after it is the time.
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[19]
    return ""
