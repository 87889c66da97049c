"""The agent's experiments, in a process of their own that is not trusted.

Threat model. The code is written by a model and may be wrong, wasteful or hostile. The parent holds the services, the
credentials and the record; it believes nothing that comes out of the child, and every protection below is either in
the kernel or in the parent. Nothing in the child protects the parent.

Covered, at levels `full` and `degraded` (Landlock, two seccomp filters, no capabilities, resource limits):
- files: opened only if they belong to the interpreter, its standard library, shared libraries, numpy, Pillow or scipy
  (reading), or to a scratch folder (writing); no /proc, no /sys; modes, owners and times of files cannot be changed;
- network: no socket of any family (socketpair works); no signals to any process, no ptrace, no limits or priorities
  of other processes, no descriptors but three pipes; an environment of four constants;
- memory: RLIMIT_DATA, a MemoryError per process; RLIMIT_AS 1 GiB above; no memfd, no System V memory;
- CPU time per process, wall time, processes, open files, one frame, output; anything that outlives its experiment is
  killed; between experiments and while a call is served, everything in the child is stopped;
- the child dies with the parent, a SIGKILLed parent included. With `processes=1`, which is what to use, the child
  cannot fork at all. With more, what it forked survives a SIGKILL of the parent (not a normal end), still confined.

Covered by the parent looking 20 times a second, so a burst gets past it before it is killed: the sum of the scratch
files (one file is bounded by the kernel, RLIMIT_FSIZE), their number, the number of threads.

Not covered: existence, size and times of files anywhere can be asked for (stat); the sum of memory over several
processes is `processes` times the limit; CPU caches and timing; bugs of the kernel; what the interpreter's folders
hold besides Python (a `site-packages` inside the standard library's folder can be read). Signals cannot be sent inside
the child either, so `Popen.kill` and `os.abort` do not work there; nor do chmod and shutil.copy. Fixed are hash seed,
entropy, seeds, memory layout and the start of the clock; not fixed are the pid, the clock's progress and the path of
the scratch folder, which stays the same only for one `Sandbox`. A parent that is SIGKILLed leaves its scratch folder.

At level `none` only the resource limits (without processes), the refusal of sockets on Linux, and everything the parent
does hold; files, signals and entropy are open.
"""

import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

from openmaia.errors import SandboxError
from openmaia.sandbox.contract import Level, Limits, Outcome, Serve, Status
from openmaia.sandbox.experiment import Experiment
from openmaia.sandbox.frames import FrameError, Json
from openmaia.sandbox.policy import choose_level
from openmaia.sandbox.process import Child, Gone

START_SECONDS = 120.0


class Sandbox:
    """One process whose variables persist from experiment to experiment, until it has to be replaced.

    `api_source` is Python text, run in the child as the module `openmaia_api`; its `build(call, manifest)` returns the
    names the agent's code starts with. Not for use from several threads at once.
    """

    def __init__(
        self, *, api_source: str, manifest: Json, limits: Limits, allow_none: bool = False, _level: Level | None = None
    ):
        self._api_source = api_source
        self._manifest = manifest
        self._limits = limits
        self._allow_none = allow_none
        self._forced = _level
        self._level: Level | None = None
        self._home: Path | None = None
        self._child: Child | None = None
        self._is_ready = False
        self._count = 0
        self._has_run = False

    @property
    def settings(self) -> tuple[str, Json, Limits, bool, Level | None]:
        """All that makes two sandboxes alike."""
        return self._api_source, self._manifest, self._limits, self._allow_none, self._forced

    @property
    def is_untouched(self) -> bool:
        """Whether there is a child that lives, and none of the agent's code was ever in it, nor in one before it."""
        return self._child is not None and not self._has_run and not self._child.has_ended()

    @property
    def level(self) -> Level:
        if self._level is None:
            self._level = choose_level(self._forced, self._allow_none)
        return self._level

    def start(self) -> None:
        """Begins starting the child and returns at once. Nothing happens if there is one."""
        if self._child is not None:
            return
        level = self.level
        child = Child(level, self._limits, self._fresh_scratch())
        self._child, self._is_ready, self._count = child, False, 0
        try:
            child.begin(level, self._api_source, self._manifest)
        except Gone:
            self._fail(child, b"")
        except BaseException:
            self._discard()
            raise

    def run(self, code: str, serve: Serve, write: Callable[[str], None]) -> Outcome:
        """Runs one experiment. Raises what `serve` or `write` raise (except ToolError), having killed the child, and
        SandboxError if there is no child to be had; never what the agent's code raises."""
        child = self._ready()
        self._count += 1
        self._has_run = True
        try:
            outcome = Experiment(child, self._limits, serve, write).run(code, self._count)
        except FrameError as error:
            return Outcome(status=Status.ERROR, error=f"The code cannot be run: {error}\n", replaced=False, seconds=0.0)
        except BaseException:
            self._discard()
            raise
        if outcome.replaced:
            self.restart()
        return outcome

    def restart(self) -> None:
        self._discard()
        self.start()

    def close(self) -> None:
        self._discard()
        if self._home is not None:
            _remove(self._home)
            self._home = None

    def __enter__(self) -> "Sandbox":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _ready(self) -> Child:
        self.start()
        assert self._child is not None
        child = self._child
        if not self._is_ready:
            text = bytearray()
            child.on_text = text.extend
            try:
                message = child.receive(time.monotonic() + START_SECONDS)
            except Gone:
                message = None
            if message != {"kind": "ready"}:
                child.drain_text()
                self._fail(child, bytes(text))
            self._is_ready = True
        return child

    def _fail(self, child: Child, text: bytes) -> None:
        how = child.reap()[1]
        self._discard()
        raise SandboxError(f"the agent's process did not start: {how}", detail=text[-20_000:].decode(errors="replace"))

    def _discard(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            child.reap()

    def _fresh_scratch(self) -> str:
        """The same path for every child, so that a replay prints the same."""
        if self._home is None:
            self._home = Path(tempfile.mkdtemp(prefix="openmaia-sandbox-")).resolve()
        scratch = self._home / "scratch"
        if scratch.exists():
            _remove(scratch)
        scratch.mkdir(mode=0o700)
        return str(scratch)


def _remove(folder: Path) -> None:
    try:
        shutil.rmtree(folder)
    except (OSError, RecursionError):  # the agent made a tree deeper than Python can walk
        subprocess.run(["rm", "-rf", "--", str(folder)], check=False)
