"""The driver's side of tracking: a bounded queue and one thread that empties it into the process that talks to W&B.

A configured tracker starts, or the run does not begin. After that nothing about it can fail or hold up a sweep: whoever
reports something puts it into the queue and goes on; what finds the queue full is dropped and counted; the other process
may hang, be killed or run out of disk, and is ended by force when it does not end in time. What went wrong is said in one
line, once.
"""

import os
import queue
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Protocol

from openmaia.agent.attempt import Result
from openmaia.config import to_dict
from openmaia.errors import UsageError
from openmaia.schema import POOLS, Config, TrackingConfig
from openmaia.store.run import Run
from openmaia.tracking.follow import Given
from openmaia.tracking.messages import Ended, Message, Progress, Sample

ROOM = 10_000
"""Messages that wait at most."""
INTERRUPTED = 5.0
"""Seconds for W&B when the run is being stopped: all of it has to end within 15."""
ENDING = 3.0
ENDED = "the process that talks to W&B has ended; the run goes on without it"
FORBIDDEN = "/\\#?%:"
"""In the names of W&B's projects."""

Say = Callable[[str], None]


class Tracker(Protocol):
    """Whoever is told about a run. No method blocks or raises."""

    def progress(self, stage: str, done: int, total: int) -> None: ...

    def ended(self, result: Result) -> None: ...

    def sample(self, counters: Mapping[str, Mapping[str, float]]) -> None:
        """counters: pool -> counter -> its value since the pool started."""
        ...


class Nobody:
    def progress(self, stage: str, done: int, total: int) -> None:
        pass

    def ended(self, result: Result) -> None:
        pass

    def sample(self, counters: Mapping[str, Mapping[str, float]]) -> None:
        pass


@contextmanager
def start(config: Config, run: Run, say: Say) -> Generator[Tracker]:
    """The configured tracker, for as long as the run is driven. Raises UsageError where it cannot start."""
    tracking = config.tracking
    _refuse_unknown(tracking)
    if tracking.kind == "none" or tracking.mode == "disabled":
        yield Nobody()
        return
    writer = Writer(_given(config, run), say)
    seconds = INTERRUPTED
    try:
        yield writer
        seconds = tracking.finish_seconds
    finally:
        writer.close(seconds)


class Writer:
    """A tracker whose reports go to another process. dropped: reports that were not told."""

    def __init__(self, given: Given, say: Say):
        self.dropped = 0
        self._say, self._folder = say, given.folder
        self._said: set[str] = set()
        self._waiting: queue.Queue[Message | None] = queue.Queue(ROOM)
        self._is_cut = False
        self.process, self._connection = _launch(given)
        self._thread = threading.Thread(target=self._write, name="tracking", daemon=True)
        self._thread.start()

    def progress(self, stage: str, done: int, total: int) -> None:
        self._put(Progress(stage=stage, done=done, total=total, time=time.time()))

    def ended(self, result: Result) -> None:
        self._put(Ended(summary=result.summary, cause=result.cause, time=time.time()))

    def sample(self, counters: Mapping[str, Mapping[str, float]]) -> None:
        self._put(Sample(counters=counters, time=time.time()))

    def close(self, seconds: float) -> None:
        """Waits at most so long for W&B to take what is left."""
        died = False  # a process that was killed may leave the last reports in the pipe, and no send fails
        try:
            self._waiting.put(None, timeout=seconds)
            died = self.process.wait(seconds) != 0
        except (queue.Full, subprocess.TimeoutExpired):
            self._once(
                f"W&B had not taken everything after {seconds:g} s; `wandb sync` sends what {self._folder}/wandb holds"
            )
        finally:
            _kill(self.process)
            self._thread.join(ENDING)
        self._heard()
        if died:
            self._once(ENDED)
        if self.dropped:
            self._say(f"tracking: {self.dropped} reports did not reach W&B; the run directory has everything")

    def _put(self, message: Message) -> None:
        try:
            self._waiting.put_nowait(message)
        except queue.Full:
            self.dropped += 1

    def _write(self) -> None:
        while True:
            message = self._waiting.get()
            try:
                if not self._is_cut:
                    self._connection.send(message)
            except OSError:
                self._is_cut = True
                self._once(ENDED)
            if message is None:
                return
            self.dropped += self._is_cut
            self._heard()

    def _heard(self) -> None:
        try:
            while self._connection.poll():
                self._once(self._connection.recv())
        except (OSError, EOFError):
            return

    def _once(self, problem: str) -> None:
        """A broken wandb breaks at every point, so only the first problem is said."""
        if not self._said:
            self._say(f"tracking: {problem}")
        self._said.add(problem)


def _launch(given: Given) -> tuple[subprocess.Popen[bytes], Connection]:
    """The other process, once it has started. It has a session of its own: Ctrl-C is not meant for it. Pictures of a table
    wait for `wandb sync` beside its other files, and not in the home folder of whoever ran it."""
    ours, theirs = socket.socketpair()
    environment = {key: value for key, value in os.environ.items() if key != "WANDB_SERVICE"}
    environment["WANDB_DATA_DIR"] = f"{given.folder}/wandb"
    Path(given.folder, "wandb").mkdir(parents=True, exist_ok=True)
    with theirs, open(Path(given.folder) / "tracking.log", "ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-c", "from openmaia.tracking.follow import main; main()", str(theirs.fileno())],
            env=environment | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    connection = Connection(ours.detach())
    try:
        _await_start(given, connection)
    except BaseException:
        _kill(process)
        raise
    return process, connection


def _await_start(given: Given, connection: Connection) -> None:
    seconds = given.tracking.start_seconds
    try:
        connection.send(given)
        said = connection.recv() if connection.poll(seconds) else f"it gave no sign within {seconds:g} s"
    except (OSError, EOFError):
        said = f"its process ended; see {given.folder}/tracking.log"
    if said:
        raise UsageError(
            f"tracking.kind=wandb, tracking.mode={given.tracking.mode}: W&B could not be started: {said}. "
            "Log in (wandb login, or WANDB_API_KEY), or give tracking.mode=offline or tracking.kind=none"
        )


def _kill(process: "subprocess.Popen[bytes]") -> None:
    """With wandb's own service below it, which has a session of its own and would otherwise stay when it hangs."""
    below: list[int] = []
    for children in Path(f"/proc/{process.pid}/task").glob("*/children"):
        try:
            below += map(int, children.read_text().split())
        except (OSError, ValueError):
            continue
    for pid in [process.pid, *below] if process.poll() is None else []:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    process.wait()


def _given(config: Config, run: Run) -> Given:
    """What W&B is shown leaves out where things lie and which servers are asked: addresses may hold credentials."""
    shown: dict[str, Any] = {key: value for key, value in to_dict(config).items() if key not in ("paths", "tracking")}
    shown["ray"] = {key: value for key, value in shown["ray"].items() if key != "address"}
    shown["backbone"] = {key: value for key, value in shown["backbone"].items() if key != "base_url"}
    folder = run.files.local or Path(tempfile.mkdtemp(prefix="openmaia-tracking-"))
    return Given(
        root=run.files.root,
        name=config.name,
        tracking=config.tracking,
        config=shown,
        folder=str(folder),
        max_batch={role: getattr(config.pools, role).max_batch for role in POOLS},
    )


def _refuse_unknown(tracking: TrackingConfig) -> None:
    for key, value, known in (
        ("kind", tracking.kind, ("none", "wandb")),
        ("mode", tracking.mode, ("online", "offline", "disabled")),
    ):
        if value not in known:
            raise UsageError(f"tracking.{key}={value!r} is unknown; give one of {', '.join(known)}")
    for key, value in (("project", tracking.project), ("entity", tracking.entity)):
        bad = sorted({c for c in value if c in FORBIDDEN or not c.isprintable()})
        if bad or len(value) > 128 or (key == "project" and not value.strip()):
            raise UsageError(
                f"tracking.{key}={value!r}: W&B wants a name of at most 128 characters without any of {FORBIDDEN}"
            )
