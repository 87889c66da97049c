"""Starts a sandboxed process by a supervisor of its own (see `supervisor.py` for the reasons)."""

import contextlib
import functools
import json
import marshal
import os
import select
import signal
import socket
import subprocess
import tempfile
import threading
import time
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

from openmaia.agent.sandbox import policy, template
from openmaia.agent.sandbox.contract import SandboxLevel, SandboxLimits
from openmaia.core.errors import SandboxError

_PACKAGE = "openmaia.agent.sandbox"
_SUPERVISOR = ("view", "supervisor")
_PROGRAM = ("packing", "frames", "system_calls", "confine", "executor", "child")
"""In the order in which they import each other, as _SUPERVISOR."""
_START_SECONDS = 60.0
_END_SECONDS = 15.0
_TEXT_SECONDS = 5.0


def _sources(*modules: str) -> dict[str, str]:
    """Returns the sources of modules of this package by their whole names. The processes that run them cannot read the
    files of this package.
    """
    sources = {"openmaia": "", "openmaia.agent": "", _PACKAGE: ""}
    return sources | {f"{_PACKAGE}.{n}": (resources.files(_PACKAGE) / f"{n}.py").read_text("utf-8") for n in modules}


@functools.cache
def _make_script(*modules: str) -> str:
    """Returns the source of modules of this package, in the order in which they import each other, as one script, which
    calls `main` of the last one.
    """
    return f"""import sys
for name, source in {_sources(*modules)!a}.items():
    sys.modules[name] = type(sys)(name)
    exec(compile(source, name, "exec", dont_inherit=True), sys.modules[name].__dict__)
del source, sys.orig_argv[:]
sys.modules["{_PACKAGE}.{modules[-1]}"].main()
"""


_PACKING = threading.Lock()


def pack() -> bytes:
    """Returns the modules that the program of the sandboxed process needs, as the script of `make_unpacking` reads them.

    Raises SandboxError if they cannot be imported.
    """
    with _PACKING:  # investigations that start together in threads would each pack
        return _packed()


@functools.cache
def _packed() -> bytes:
    request = marshal.dumps((_sources(*_PROGRAM), policy.find_packages()))
    command = [policy.find_python(), *policy.FLAGS, "-c", _make_script("packing")]
    try:
        done = subprocess.run(
            command, input=request, capture_output=True, env=policy.ENVIRONMENT, timeout=_START_SECONDS, check=True
        )
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        text = (error.stderr or b"")[-20_000:].decode(errors="replace")
        raise SandboxError("the modules of the agent's process could not be imported", detail=text) from None
    return done.stdout


def make_unpacking(size: int) -> str:
    """Returns the script that reads a pack of `size` bytes from stdin and runs the program in it."""
    return f"""import gc, marshal, os, sys
gc.disable()  # imports leave hardly any garbage
data, read = bytearray({size}), 0
while read < {size}:
    read += os.readv(0, [memoryview(data)[read:]]) or os._exit(1)
own, *rest = marshal.loads(data)
del data, sys.orig_argv[:]
packing = sys.modules["{_PACKAGE}.packing"] = type(sys)("{_PACKAGE}.packing")
exec(own.pop(packing.__name__), packing.__dict__)
packing.run(own, *rest)
"""


class ProcessEnd(NamedTuple):
    """How a sandboxed process ended."""

    code: int
    """-1 if there is none, or if it is unknown."""
    signal: int
    """-1 if there was none, or if it is unknown."""
    cpu_seconds: float
    """0 if it is unknown."""


class Launched:
    """A sandboxed process, a child of its supervisor `parent`, and the parent's ends of the pipes: `to_child` and
    `from_child` for messages, and `text` for what it prints. The constructor returns as soon as the process exists.

    `hides_files` says whether the process sees only a few paths of the file system (see `view.py`). Otherwise it can
    also see the names and sizes of other files.

    Raises SandboxError if the process could not be started.
    """

    def __init__(self, level: SandboxLevel, limits: SandboxLimits, scratch: str, code: str):
        self._socket, theirs = socket.socketpair()
        self._answers = self._socket.makefile("rb")
        pipes = list[int]()
        try:
            for _ in range(3):
                pipes += os.pipe()
        except OSError:
            for descriptor in pipes:
                os.close(descriptor)
            raise
        stdin, self.to_child, self.from_child, stdout, self.text, stderr = pipes
        handed = theirs.fileno(), stdin, stdout, stderr
        self.pid = self.parent = 0
        self._supervisor = -1
        request = {
            "command": [policy.find_python(), *policy.FLAGS, "-c", code],
            "folder": scratch,
            "options": policy.make_options(level, limits, scratch),
        }
        self._socket.settimeout(_START_SECONDS)
        try:
            try:
                used = template.hand_over(_make_script(*_SUPERVISOR), handed)
            finally:
                for descriptor in (theirs.detach(), *handed[1:]):
                    os.close(descriptor)
            begun = self._answer()
            self.parent = int(begun.get("supervisor", 0))
            if self.parent and hasattr(os, "pidfd_open"):
                with contextlib.suppress(ProcessLookupError):  # it ended already
                    self._supervisor = os.pidfd_open(self.parent)
            with contextlib.suppress(OSError):  # what follows says more
                self._socket.sendall(json.dumps(request).encode() + b"\n")
            answer = self._answer() if self.parent else begun
        except BaseException:
            self.reap()
            raise
        if "pid" not in answer:
            self._kill_supervisor()
            text = self._rest_of_text() if answer or self.parent else template.leave(used)
            self.reap()
            why = answer.get("error") or f"its supervisor ended, or did not answer within {_START_SECONDS:.0f} s"
            raise SandboxError(
                f"the agent's process could not be started at level {level}: {why}",
                detail=text[-20_000:],
            )
        self.pid, self.hides_files = int(answer["pid"]), bool(answer["hidden"])

    def _answer(self) -> dict[str, Any]:
        """Returns the supervisor's next message; empty if it sends none in time or has ended."""
        with contextlib.suppress(OSError):  # too late, or the connection is lost
            if line := self._answers.readline():
                return json.loads(line)
        return {}

    def _kill_supervisor(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            if self._supervisor >= 0:
                signal.pidfd_send_signal(self._supervisor, signal.SIGKILL)

    def _rest_of_text(self) -> str:
        """Returns what the process printed, until all that hold its stderr have ended, or for a few seconds."""
        text, deadline = b"", time.monotonic() + _TEXT_SECONDS
        while is_ready(self.text, max(0.0, deadline - time.monotonic())):
            if not (data := os.read(self.text, 1 << 16)):
                break
            text += data
        return text.decode(errors="replace")

    def reap(self) -> ProcessEnd:
        """Kills the process and the processes that it started, and closes the pipes. May be called only once."""
        self._socket.settimeout(_END_SECONDS)
        with contextlib.suppress(OSError):  # the supervisor has ended
            self._socket.shutdown(socket.SHUT_WR)
        answer = self._answer()
        if "code" not in answer and self.pid:  # the supervisor has died or hangs
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)
        self._kill_supervisor()
        if self._supervisor >= 0:
            is_ready(self._supervisor, _END_SECONDS)  # until it has ended
            os.close(self._supervisor)
        self._answers.close()
        self._socket.close()
        for descriptor in (self.to_child, self.from_child, self.text):
            os.close(descriptor)
        return ProcessEnd(answer.get("code", -1), answer.get("signal", -1), answer.get("cpu", 0.0))


def is_ready(descriptor: int, seconds: float) -> bool:
    """Waits until a descriptor can be read, or a process that it stands for has ended. Returns whether that is so."""
    poller = select.poll()  # `select` takes no descriptor above 1,023
    poller.register(descriptor, select.POLLIN)
    return bool(poller.poll(seconds * 1000))


def can_hide_files(level: SandboxLevel) -> bool:
    """Returns whether a sandboxed process, which it starts, sees only a few paths of the file system (see `view.py`)."""
    mebibytes = {"memory_mb": 1, "scratch_mb": 1, "frame_mb": 1}
    limits = SandboxLimits(seconds=1, cpu_seconds=1, processes=1, output_bytes=1, **mebibytes)
    with tempfile.TemporaryDirectory(prefix="openmaia-sandbox-") as folder:
        scratch = Path(folder).resolve() / "scratch"
        scratch.mkdir()
        process = Launched(level, limits, str(scratch), "pass")
        process.reap()
        return process.hides_files
