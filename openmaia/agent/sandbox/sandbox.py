"""Runs the agent's experiments in an untrusted process of their own, the child.

Threat model. A model writes the code, which may be wrong, wasteful or hostile. The parent holds the services, the
credentials and the record. It trusts nothing that comes out of the child, and every protection below is either in the
kernel or in the parent. Nothing in the child protects the parent. The child is started by a supervisor, a small process
that holds no secrets of the parent and ends with the child. Supervisors are forked from a template (17 MB), which starts
with the first sandbox of the parent and ends with the parent (see `supervisor.py`).

Protected at the levels `full` and `degraded` (Landlock, two seccomp filters, no capabilities, resource limits). Each
property is a line of docs/sandbox-checks.md, which a test checks:

- files: the child can read the interpreter, its standard library, shared libraries, numpy, Pillow and scipy, and write
  to a scratch folder; it cannot read /proc and /sys; modes, owners, times and extended attributes of files cannot be
  changed or read; no locks and no leases, which other processes would wait for;
- network and processes: no socket of any family, no pair of sockets; no signals to any process, also not by making it
  the owner of a descriptor (F_SETOWN); no ptrace, no changes of the limits or priorities of other processes, no
  descriptors but three pipes; four environment variables with constant values;
- memory: RLIMIT_DATA (a MemoryError) per process; RLIMIT_AS 1 GiB above it; no memfd, no System V memory;
- limits on the CPU time of a process, wall time, processes, open files, the size of a message, and output. Threads and
  processes that outlive their experiment are killed. Between experiments and during tool calls, the child is suspended;
- the child dies with the parent, even if the parent is killed with SIGKILL. With `processes=1` (recommended) the child
  cannot fork at all. With more, the processes that it forked survive a SIGKILL of the supervisor, still confined.

The parent checks three values 20 times a second, so that they can exceed their limits for a moment: the total size of
the scratch files (RLIMIT_FSIZE limits a single file), their number, and the number of threads.

Where user namespaces are allowed, files that the item "files" does not name do not even exist for the child. Where they
are not allowed, the child can find out with stat that such files exist, and their sizes and times.

Not protected: the layout of a supervisor's memory, which all supervisors of a parent share (the child has one of its own);
the existence of processes (stat of /proc); several processes together may use
`processes` times the memory; CPU caches and timing; bugs of the kernel; the names of packages that are installed
beside numpy in the standard library's own `site-packages`. Signals cannot be sent inside the child either, so
`Popen.kill` and `os.abort` do not work there; nor do chmod, shutil.copy, asyncio and file locks. Hash seed, entropy,
seeds, memory layout and the start of the clock are fixed; the pid, the host name, the progress of the clock, the date of
`time.gmtime()` without an argument and the path of the scratch folder are not (the path is constant within one
`Sandbox`). A parent that is killed with SIGKILL leaves its scratch folder behind.

The level `none` has only the resource limits (without that on processes), the filter of `system_calls.py` on
Linux, and the checks of the parent. Files, signals and entropy are not protected.
"""

import contextlib
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from openmaia.agent.sandbox.contract import CallHandler, SandboxLevel, SandboxLimits, SandboxResult, Status
from openmaia.agent.sandbox.experiment import ExperimentMonitor
from openmaia.agent.sandbox.frames import FrameError, Json
from openmaia.agent.sandbox.policy import choose_level
from openmaia.agent.sandbox.process import Child, ChildLost
from openmaia.core.errors import SandboxError

_START_SECONDS = 120.0
_STARTS = 3
"""Attempts to start a process. One may fail because the process, its supervisor or their template is killed, as for want
of memory."""


class Sandbox:
    """A process that runs experiments of the agent. Variables persist between experiments until it has to be replaced.
    Not thread-safe.

    It runs `api_source` as the module `openmaia_api`, whose function `build(call, manifest)` returns the names that are
    defined for the agent's code. `manifest` has the keys "tools", the docstrings of the user's own tools by name, and
    "scope", a value of `openmaia.core.units.Scope`.
    """

    def __init__(
        self,
        *,
        api_source: str,
        manifest: Json,
        limits: SandboxLimits,
        allow_none: bool = False,
        _level: SandboxLevel | None = None,
    ):
        self._api_source, self._manifest, self._limits = api_source, manifest, limits
        self._allow_none, self._forced = allow_none, _level
        self._level: SandboxLevel | None = None
        self._folder: Path | None = None
        self._child: Child | None = None
        self._is_ready = False
        self._printed = bytearray()
        """Text of the process until it is ready. It says why one does not start."""
        self._count = 0

    @property
    def level(self) -> SandboxLevel:
        """Raises SandboxError if it is NONE and `allow_none` is False."""
        if self._level is None:
            self._level = choose_level(self._forced, self._allow_none)
        return self._level

    @property
    def hides_files(self) -> bool:
        """Whether the process sees only a few paths of the file system, not the names and sizes of other files. Starts
        the process, because this is not known before.
        """
        self.start()
        assert self._child is not None
        return self._child.hides_files

    def start(self) -> None:
        """Starts the process if there is none, and returns before it is ready."""
        if self._child is None:
            level = self.level
            _repeat(lambda: self._begin(level))

    def _begin(self, level: SandboxLevel) -> Child:
        try:
            child = Child(level, self._limits, self._fresh_scratch())
        except OSError as error:  # for want of memory, descriptors or disk space
            raise SandboxError(f"the agent's process could not be started: {error}") from error
        self._child, self._is_ready, self._count = child, False, 0
        self._printed = bytearray()
        child.on_text = self._printed.extend
        try:
            child.begin(level, self._api_source, self._manifest)
        except ChildLost:
            self._fail(child)
        except BaseException:
            self._discard()
            raise
        return child

    def run(self, code: str, serve: CallHandler, write: Callable[[str], None]) -> SandboxResult:
        """Runs one experiment. Exceptions of the agent's code are part of the result.

        Raises SandboxError if the process could not be started in several attempts, and, after killing it, what `write`
        or `serve` raise, apart from ToolError and ExperimentStopped (see `CallHandler`).
        """
        child = self._ready()
        self._count += 1
        try:
            result = ExperimentMonitor(child, self._limits, serve, write).run(code, self._count)
        except FrameError as error:
            text = f"The code cannot be run: {error}\n"
            return SandboxResult(status=Status.ERROR, error=text, replaced=False, seconds=0.0)
        except BaseException:
            self._discard()
            raise
        if result.replaced:
            with contextlib.suppress(SandboxError):  # the result is valid; the next experiment tries again
                self.restart()
        return result

    def restart(self) -> None:
        """Replaces the process. All its variables and files are lost."""
        self._discard()
        self.start()

    def close(self) -> None:
        """Kills the process and removes its files."""
        self._discard()
        if self._folder is not None:
            _remove(self._folder)
            self._folder = None

    def __enter__(self) -> "Sandbox":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _ready(self) -> Child:
        if self._child is not None and self._is_ready:
            return self._child
        level = self.level
        return _repeat(lambda: self._become_ready(level))

    def _become_ready(self, level: SandboxLevel) -> Child:
        child = self._child or self._begin(level)
        try:
            message = child.receive(time.monotonic() + _START_SECONDS)
        except ChildLost:
            message = None
        if message != {"kind": "ready"}:
            self._fail(child)
        self._is_ready = True
        return child

    def _fail(self, child: Child) -> NoReturn:
        child.drain_text()
        how = child.reap()[1]
        self._discard()
        text = self._printed[-20_000:].decode(errors="replace")
        raise SandboxError(f"the agent's process did not start: {how}", detail=text)

    def _discard(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            child.reap()

    def _fresh_scratch(self) -> str:
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="openmaia-sandbox-")).resolve()
        # Every child gets the same path, so that repeated code prints the same.
        scratch = self._folder / "scratch"
        if scratch.exists():
            _remove(scratch)
        scratch.mkdir(mode=0o700)
        return str(scratch)


def _repeat(attempt: Callable[[], Child]) -> Child:
    """Repeats a start that fails. One that took long was not disturbed: it hangs."""
    until = time.monotonic() + _START_SECONDS
    for _ in range(_STARTS - 1):
        try:
            return attempt()
        except SandboxError:
            if time.monotonic() >= until:
                raise
    return attempt()


def _remove(folder: Path) -> None:
    try:
        shutil.rmtree(folder)
    except (OSError, RecursionError):  # the tree is deeper than Python can walk, or has folders that cannot be read
        for command in (["chmod", "-R", "u+rwx"], ["rm", "-rf"]):
            subprocess.run([*command, "--", str(folder)], check=False, stderr=subprocess.DEVNULL)
