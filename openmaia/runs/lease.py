"""Leases, which ensure that only one process works on a run directory or computes the exemplars of an exemplar store.

A lease is a file in the folder that a thread of its holder writes again regularly. Who wants the lease of another host
watches the file. If it stays the same for LEASE_SECONDS, by the watching process's own clock, the holder is dead.
Clocks of two hosts are never compared.

On a local file system, a lock makes reading and writing the file atomic. Object stores and some network file systems
have no locks. There, a process reads its lease again a moment after it wrote it: of two that wrote it, the last one
keeps it.
"""

import errno
import fcntl
import logging
import os
import socket
import threading
import time
import uuid
from _thread import interrupt_main
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, cast

from openmaia.core.documents import parse_json
from openmaia.core.errors import StoreError, UsageError
from openmaia.core.typed import find_mistyped
from openmaia.runs.files import Files
from openmaia.runs.records import dumps

LEASE_SECONDS = 60.0
"""A lease whose file was seen unchanged for this long has expired."""

_SETTLE = 1.0
"""Time in seconds after which a process on a file system without locks looks whether its lease was overwritten."""

LEASE_FILE = "driver.json"

_LOG = logging.getLogger(__name__)

_NO_LOCKS = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS, errno.EINVAL)
"""What systems say of a file system that has no `flock`, such as Lustre without the mount option `flock`."""

_mentioned: set[str] = set()
"""The folders without locks, and the tokens of watched holders, that a warning has named already."""
_seen: dict[str, tuple[bytes, float]] = {}
"""For each lease file its latest content, and since when this process has seen it, by its monotonic clock."""


@dataclass(frozen=True, slots=True)
class Lease:
    """The right of one driver to work on a folder, until it is released or expires."""

    files: Files
    token: str
    """A random value that identifies the holder."""

    def renew(self) -> None:
        """Extends the lease. Raises UsageError if another process has taken it."""
        with _locked(self.files):
            holder = _holder(self.files)
            if holder is not None and holder.token != self.token:
                raise UsageError(
                    f"{self.files.root} was taken over by process {holder.pid} on {holder.host}, because this process "
                    f"had not renewed its lease for {LEASE_SECONDS:.0f} s; let the other process finish"
                )
            _write(self.files, self.token)

    def release(self) -> None:
        """Gives up the lease, unless another process has taken it over."""
        with _locked(self.files):
            holder = _holder(self.files)
            if holder is None or holder.token == self.token:
                self.files.delete(LEASE_FILE)


@contextmanager
def held(files: Files, waiting: Callable[[str], None] | None = None) -> Generator[None]:
    """Context manager that holds the lease of a folder and renews it in a thread.

    With `waiting`, it waits until the lease is free, and calls `waiting` once with a message that names the other
    process.

    Raises UsageError if another process holds the lease and `waiting` is None, or takes it over while the block runs.
    In the second case the block is interrupted.
    """
    lease = take(files) if waiting is None else _waited_for(files, waiting)
    ended = threading.Event()
    lost: list[UsageError] = []

    def renew() -> None:
        while not ended.wait(LEASE_SECONDS / 4):
            try:
                lease.renew()
            except StoreError:
                continue  # a short failure of the file system; the lease lasts for four beats
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


def take(files: Files, seconds: float = LEASE_SECONDS) -> Lease:
    """Takes the lease of a folder. Raises UsageError if another process holds it.

    The lease of a dead process on this machine is replaced at once. That of a process elsewhere, or of a stopped one,
    is replaced if its file stays unchanged for `seconds`.
    """
    while True:
        with _locked(files) as is_locked:
            holder = _holder(files)
            if holder is None or not _may_live(files, holder, seconds):
                lease = Lease(files, uuid.uuid4().hex)
                _write(files, lease.token)
                break
        if not _is_quiet(files, holder, seconds):
            raise UsageError(
                f"{files.root} is being driven by process {holder.pid} on {holder.host}. Wait for it, or stop it; "
                f"{seconds:.0f} s after it died, the same command takes over"
            )
    if not is_locked:
        time.sleep(_SETTLE)
        other = _holder(files)
        if other is not None and other.token != lease.token:
            raise UsageError(
                f"{files.root} is being driven by process {other.pid} on {other.host}, which began at the same moment. Wait "
                "for it, or stop it"
            )
    return lease


def is_held(files: Files, *, wait: bool = False) -> bool:
    """Returns whether a folder has a lease whose holder is not known to be dead.

    With `wait`, the lease of a process elsewhere is watched until it is renewed or has expired. Otherwise only what
    this process has seen earlier counts.
    """
    holder = _holder(files)
    if holder is None:
        return False
    if holder.is_here and holder.pid == os.getpid():
        return True
    return _may_live(files, holder, LEASE_SECONDS) and not (wait and _is_quiet(files, holder, LEASE_SECONDS))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Holder:
    """The content of a lease file."""

    host: str
    pid: int
    started: str
    token: str
    machine: str
    """The boot and the namespace of process ids in which `pid` is the holder, see `_machine`."""
    data: bytes
    """The file as it is. Another content of the same holder is a beat."""

    @property
    def is_here(self) -> bool:
        """Whether processes of the holder's machine have the same ids here. Hosts may share their name."""
        return self.host == socket.gethostname() and self.machine == _machine()

    @property
    def is_dead(self) -> bool:
        """Whether the holder ran on this machine and has ended, or is this process, which would then not ask.

        A process with its id that was started at another time is another one: ids are used again.
        """
        if not self.is_here:
            return False
        return self.pid == os.getpid() or _is_gone(self.pid) or _started(self.pid) != self.started

    @property
    def is_running(self) -> bool:
        return self.is_here and not self.is_dead and _status(self.pid)[:1] not in (["T"], ["t"])


def _may_live(files: Files, holder: _Holder, seconds: float) -> bool:
    return not holder.is_dead and (holder.is_running or _silence(files, holder) < seconds)


def _silence(files: Files, holder: _Holder) -> float:
    path, now = files.path(LEASE_FILE), time.monotonic()
    data, since = _seen.get(path, (b"", now))
    if data != holder.data:
        _seen[path] = holder.data, now
        return 0.0
    return now - since


def _is_quiet(files: Files, holder: _Holder, seconds: float) -> bool:
    """Watches a lease until it is renewed (returns False), or has been given up or not renewed for `seconds`."""
    if holder.is_running:
        return False
    if holder.token not in _mentioned:
        _mentioned.add(holder.token)
        text = "%s has the lease of process %s on %s; watching for up to %.0f s whether it is renewed"
        _LOG.warning(text, files.root, holder.pid, holder.host, seconds)
    while _silence(files, holder) < seconds:
        time.sleep(min(1.0, seconds / 10))
        now = _holder(files)
        if now is None:
            return True
        if now.data != holder.data:
            return False
    return True


def _write(files: Files, token: str) -> None:
    pid = os.getpid()
    holder = {"host": socket.gethostname(), "machine": _machine(), "pid": pid, "started": _started(pid), "token": token}
    files.write(LEASE_FILE, dumps(holder | {"beat": time.monotonic_ns()}).encode())


@contextmanager
def _locked(files: Files) -> Generator[bool]:
    """Holds a lock that excludes other processes on a local file system. The system releases it when a process ends.

    Yields False if the file system has no locks.
    """
    path = files.lock_file(".driver.lock")
    if path is None:
        yield False
        return
    with ExitStack() as stack:
        is_locked = True
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            lock = stack.enter_context(open(path, "w"))
            fcntl.flock(lock, fcntl.LOCK_EX)
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise StoreError(f"{path} could not be locked: {error}") from error
            is_locked = False
            if files.root not in _mentioned:
                _mentioned.add(files.root)
                _LOG.warning("the file system of %s has no locks (%s); going on without", files.root, error.strerror)
        yield is_locked


_KINDS: dict[str, Any] = {"host": str, "pid": int, "started": str, "token": str}


def _holder(files: Files) -> _Holder | None:
    """Returns the content of the lease file, or None if it is missing or damaged: the driver will soon write it again."""
    data = files.read(LEASE_FILE)
    try:
        held: Any = parse_json(data or b"null")
    except ValueError:
        return None
    if data is None or not isinstance(held, dict):
        return None
    values: dict[str, Any] = {key: cast(dict[str, Any], held).get(key) for key in _KINDS}
    if (
        any(find_mistyped(values[key], kind) is not None for key, kind in _KINDS.items())
        or not 0 < values["pid"] < 2**31
    ):
        return None
    machine: Any = cast(dict[str, Any], held).get("machine")
    return _Holder(**values, machine=machine if isinstance(machine, str) else "?", data=data)


@cache
def _machine() -> str:
    """Returns what tells machines with the same host name apart: the boot, and the container's view of processes."""
    with suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip() + os.readlink("/proc/self/ns/pid")
    return ""


def _is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return _status(pid)[:1] == ["Z"]  # it has ended, and its parent has not noticed yet


def _status(pid: int) -> list[str]:
    """Returns the fields of /proc/PID/stat from the state on; empty if there is no such process."""
    with suppress(OSError):
        # The name of the program, in parentheses, may contain anything.
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    return []


def _started(pid: int) -> str:
    """Returns when a process was started, in clock ticks since the start of the host; "" if unknown."""
    return (_status(pid)[19:20] or [""])[0]
