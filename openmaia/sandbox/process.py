"""The parent's end of one child: frames in both directions under a deadline, captured text, the watch, the reaping."""

import contextlib
import os
import select
import signal
import time
from collections.abc import Callable
from pathlib import Path

from openmaia.sandbox import watch
from openmaia.sandbox.contract import Level, Limits, Status
from openmaia.sandbox.frames import Decoder, FrameError, Json, encode
from openmaia.sandbox.policy import launch, package_homes
from openmaia.sandbox.program import BOOT, FILE, program

TICK = 0.05
GRACE = 0.5  # seconds between a request to end and SIGKILL
_PIECE = 1 << 18
_PIPE_MAX = 2 << 20  # a pipe cannot hold more, so draining one ends even while somebody keeps writing


class Gone(Exception):
    """The child ended, broke the protocol, or has to be killed; it is of no use any more."""

    def __init__(self, why: str = ""):
        super().__init__(why)
        self.why = why


class Child:
    def __init__(self, level: Level, limits: Limits, scratch: str):
        self._limits = limits
        self._scratch = scratch
        self._limit = limits.frame_mb << 20
        self._decoder = Decoder(self._limit)
        (Path(scratch) / FILE).write_bytes(program())
        self._process = launch(level, limits, scratch, BOOT)
        self.pid = self._process.pid
        self.on_text: Callable[[bytes], None] = lambda data: None
        self._pidfd = os.pidfd_open(self.pid) if hasattr(os, "pidfd_open") else -1
        self._ended = False
        self._reaped: tuple[int, int] | None = None
        self._is_watched = False
        self._next_watch = 0.0
        for fd in (self._process.to_child, self._process.from_child, self._process.text):
            os.set_blocking(fd, False)

    def begin(self, level: Level, api_source: str, manifest: Json) -> None:
        """Sends the child what it needs to start; it answers "ready" when it has."""
        confine: dict[str, Json] = {
            "memory_mb": self._limits.memory_mb,
            "cpu_seconds": self._limits.cpu_seconds,
            "scratch_mb": self._limits.scratch_mb,
            "processes": self._limits.processes,
            "parent": os.getpid(),
            "strict": level is not Level.NONE,
        }
        initial = encode(
            {
                "confine": confine,
                "packages": {**package_homes()},
                "limit": self._limit,
                "api_source": api_source,
                "manifest": manifest,
            },
            self._limit,
        )
        self._write(initial, time.monotonic() + 60)

    def send(self, message: Json, deadline: float) -> bool:
        """False if the deadline came first. FrameError if the message is too large, before a byte is sent. From the first
        one on the child may run what is not ours, and is watched."""
        self._is_watched = True
        return self._write(encode(message, self._limit), deadline)

    def _write(self, buffers: list[bytes], deadline: float) -> bool:
        for buffer in buffers:
            view = memoryview(buffer)
            while view:
                try:
                    view = view[os.write(self._process.to_child, view) :]
                except BlockingIOError:
                    if time.monotonic() >= deadline:
                        return False
                    self._wait(self._process.to_child, select.POLLOUT, deadline)
                except BrokenPipeError:
                    raise Gone() from None
                if self._ended:
                    raise Gone()
        return True

    def receive(self, deadline: float) -> Json | None:
        """The next message, after all text written before it; None if the deadline came first."""
        while True:
            try:
                complete, message = self._decoder.next()
            except FrameError as error:
                raise Gone(f"it wrote a malformed message ({error})") from None
            if complete:
                self.drain_text()
                return message
            if self._ended:
                raise Gone()
            if time.monotonic() >= deadline:
                return None
            self._wait(self._process.from_child, select.POLLIN, deadline)

    def _wait(self, fd: int, events: int, deadline: float) -> None:
        """Until something happens or it is time to look around."""
        poller = select.poll()
        poller.register(fd, events)
        poller.register(self._process.text, select.POLLIN)
        if self._pidfd >= 0:
            poller.register(self._pidfd, select.POLLIN)
        seconds = min(TICK, max(0.0, deadline - time.monotonic()))
        ready = dict(poller.poll(seconds * 1000 + 1))
        if self._process.text in ready:
            self._take_text()
        if fd in ready and events == select.POLLIN:
            self._take_frames()
        if self._pidfd in ready and not self._ended:
            while self._take_frames():
                pass
            self._ended = True
        if self._is_watched and (now := time.monotonic()) >= self._next_watch:
            why = watch.excess(self.pid, self._scratch, self._limits.scratch_mb, self._limits.processes)
            self._next_watch = now + TICK
            if why:
                raise Gone(why)

    def _take_frames(self) -> bool:
        try:
            data = os.read(self._process.from_child, _PIECE)
        except BlockingIOError:
            return False
        if not data:
            self._ended = True
            return False
        self._decoder.feed(data)
        return len(data) > 0

    def _take_text(self) -> int:
        try:
            data = os.read(self._process.text, _PIECE)
        except BlockingIOError:
            return 0
        self.on_text(data)
        return len(data)

    def drain_text(self) -> None:
        left = _PIPE_MAX
        while left > 0 and (size := self._take_text()):
            left -= size

    def pause(self) -> None:
        """Nothing of the agent's runs while nobody watches it: between experiments, and while a call is served."""
        self._signal_group(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal_group(signal.SIGCONT)

    def _signal_group(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, number)

    def interrupt(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGINT)

    def has_ended(self) -> bool:
        return self._pidfd >= 0 and bool(select.select([self._pidfd], [], [], 0)[0])

    def lingers(self) -> bool:
        """Asks twice: a thread that was joined a moment ago may not have left the kernel's list yet."""
        for _ in range(20):
            if not watch.lingers(self.pid):
                return False
            time.sleep(0.005)
        return True

    def reap(self) -> tuple[Status, str]:
        """Kills what is left and says how the process ended, if it did so by itself."""
        alive = not self._ended
        if self._reaped is None:
            if self._pidfd >= 0:
                if self._ended:  # its pipe ended; give it the moment to end by itself, or the kill below hides how
                    alive = not select.select([self._pidfd], [], [], GRACE)[0]
                os.close(self._pidfd)
            self._reaped = self._process.reap()
        code, number = self._reaped
        if not alive and number == signal.SIGXCPU:
            return Status.DIED, f"it used more than {self._limits.cpu_seconds} seconds of CPU time"
        if not alive and number == signal.SIGKILL:
            return Status.MEMORY, "it was killed, most likely for its use of memory"
        return Status.DIED, f"it ended with exit code {code}" if number <= 0 else f"signal {number} ended it"
