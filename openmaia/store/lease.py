"""One driver per run: a heartbeat in the run directory.

On a file system looking and writing are one step, behind a lock; an object store has no such thing, and two drivers that
start within the same moment there can both believe that they hold the lease, until the first of them renews it.
"""

import fcntl
import json
import os
import socket
import time
import uuid
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from openmaia.errors import StoreError, UsageError
from openmaia.store.files import Files
from openmaia.store.records import dumps

LEASE_SECONDS = 60.0
"""A driver that was not heard of for so long is taken for dead."""

FILE = "driver.json"


@dataclass(frozen=True, slots=True)
class Lease:
    files: Files
    token: str

    def renew(self) -> None:
        """Raises UsageError where another driver has taken over."""
        with _alone(self.files):
            other = _holder(self.files)
            if other is not None and other["token"] != self.token:
                raise UsageError(
                    f"{self.files.root} was taken over by process {other['pid']} on {other['host']}, which did not hear of "
                    f"this one for {LEASE_SECONDS:.0f} s; let that one finish"
                )
            _write(self.files, self.token)

    def release(self) -> None:
        """Leaves the lease of a driver that took over meanwhile."""
        with _alone(self.files):
            holder = _holder(self.files)
            if holder is None or holder["token"] == self.token:
                self.files.delete(FILE)


def take(files: Files) -> Lease:
    """Raises UsageError while another driver is alive."""
    with _alone(files):
        other = _holder(files)
        if other is not None:
            age = time.time() - other["time"]
            if age < LEASE_SECONDS and not _is_dead_here(other):
                raise UsageError(
                    f"{files.root} is being driven by process {other['pid']} on {other['host']} (seen {age:.0f} s ago). Wait "
                    f"for it, stop it, or try again {LEASE_SECONDS:.0f} s after it died"
                )
        lease = Lease(files, uuid.uuid4().hex)
        _write(files, lease.token)
        return lease


def is_held(files: Files) -> bool:
    """Whether a driver was heard of a moment ago and is not known to be dead."""
    holder = _holder(files)
    return holder is not None and time.time() - holder["time"] < LEASE_SECONDS and not _is_gone(holder)


def _is_gone(holder: dict[str, Any]) -> bool:
    return holder["pid"] != os.getpid() and _is_dead_here(holder)


def _write(files: Files, token: str) -> None:
    holder = {"host": socket.gethostname(), "pid": os.getpid(), "time": time.time(), "token": token}
    files.write(FILE, dumps(holder).encode())


@contextmanager
def _alone(files: Files) -> Generator[None]:
    """While it is held nobody else looks at or writes the lease. The lock ends with the process that holds it."""
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
    """Who drives. None where nobody does, or where what stands there cannot be read: it is renewed every few seconds."""
    try:
        held: Any = json.loads(files.read(FILE) or b"null")
        return {
            "host": str(held["host"]),
            "pid": int(held["pid"]),
            "time": float(held["time"]),
            "token": str(held["token"]),
        }
    except (ValueError, TypeError, KeyError):
        return None


def _is_dead_here(holder: dict[str, Any]) -> bool:
    """Whether the holder ran on this host and its process is gone (or is this one, after a restart in place)."""
    if holder["host"] != socket.gethostname():
        return False
    if holder["pid"] == os.getpid():
        return True
    try:
        os.kill(holder["pid"], 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return False
