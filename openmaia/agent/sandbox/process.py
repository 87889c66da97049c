"""Controls a sandboxed process from its parent: exchanges messages, captures its output, checks its resources and kills
it.
"""

import contextlib
import os
import resource
import select
import signal
import time
from collections.abc import Callable, Iterable

from openmaia.agent.sandbox import watch
from openmaia.agent.sandbox.contract import SandboxLevel, SandboxLimits, Status
from openmaia.agent.sandbox.frames import Decoder, FrameError, Json, encode
from openmaia.agent.sandbox.launch import Launched, ProcessEnd, is_ready, make_unpacking, pack
from openmaia.agent.sandbox.policy import find_packages

_TICK = 0.05
"""Seconds between two checks of the child's resources."""
GRACE = 0.5
"""Seconds that the child gets to end before SIGKILL."""
_PIECE = 1 << 18
_PIPE_MAX = 2 << 20  # a pipe holds less, so draining one ends even if the child keeps writing


class ChildLost(Exception):
    """The child ended, broke the protocol, or has to be killed. It cannot be used any more. `why` is empty if it ended;
    then `Child.reap` returns the cause.
    """

    def __init__(self, why: str = ""):
        super().__init__(why)
        self.why = why


class Child:
    """A sandboxed process and the pipes to it."""

    def __init__(self, level: SandboxLevel, limits: SandboxLimits, scratch: str):
        self._limits = limits
        self._scratch = scratch
        self._limit = limits.frame_mb << 20
        self._decoder = Decoder(self._limit)
        self._pack = pack()
        self._process = Launched(level, limits, scratch, make_unpacking(len(self._pack)))
        self.pid, self.hides_files = self._process.pid, self._process.hides_files
        self.on_text: Callable[[bytes], None] = lambda data: None
        try:
            self._pidfd = os.pidfd_open(self.pid) if hasattr(os, "pidfd_open") else -1
        except ProcessLookupError:  # it ended already, with its supervisor
            self._pidfd = -1
        except BaseException:  # for want of descriptors or memory: nobody else ends it
            self._process.reap()
            raise
        self._ended = False
        self._reaped: ProcessEnd | None = None
        self._next_watch = 0.0
        for fd in (self._process.to_child, self._process.from_child, self._process.text):
            os.set_blocking(fd, False)

    def begin(self, level: SandboxLevel, api_source: str, manifest: Json) -> None:
        """Sends the child its program, its limits and what the agent's code can call (see `Sandbox`). It answers "ready"
        later.
        """
        deadline = time.monotonic() + 60
        self._write([self._pack], deadline)
        confine: dict[str, Json] = {
            "memory_mb": self._limits.memory_mb,
            "cpu_seconds": self._limits.cpu_seconds,
            "scratch_mb": self._limits.scratch_mb,
            "processes": self._limits.processes,
            "parent": self._process.parent,
            "strict": level is not SandboxLevel.NONE,
        }
        initial: dict[str, Json] = {"api_source": api_source, "manifest": manifest, "limit": self._limit}
        self.send({**initial, "confine": confine, "packages": {**find_packages()}}, deadline)

    def send(self, message: Json, deadline: float) -> bool:
        """Sends a message. Returns False if the deadline (of `time.monotonic`) passes before. Raises FrameError if the
        message cannot be sent (nothing has been written), and ChildLost.
        """
        return self._write(encode(message, self._limit), deadline)

    def _write(self, buffers: Iterable[bytes], deadline: float) -> bool:
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
                    self._ended = True
                    raise ChildLost() from None
                if self._ended:
                    raise ChildLost()
        return True

    def receive(self, deadline: float) -> Json | None:
        """Returns the next message, or None if the deadline (of `time.monotonic`) passes before. Raises ChildLost.

        Text that was printed before the message is first passed to `on_text`.
        """
        while True:
            try:
                complete, message = self._decoder.next()
            except FrameError as error:
                raise ChildLost(f"it wrote a malformed message ({error})") from None
            if complete:
                self._watch()  # also if messages come so fast that there is nothing to wait for
                self.drain_text()
                return message
            if self._ended:
                raise ChildLost()
            if time.monotonic() >= deadline:
                return None
            self._wait(self._process.from_child, select.POLLIN, deadline)

    def _wait(self, fd: int, events: int, deadline: float) -> None:
        """Waits for an event of `fd`, but not beyond the next check of resources, and handles what arrived."""
        poller = select.poll()
        poller.register(fd, events)
        poller.register(self._process.text, select.POLLIN)
        if self._pidfd >= 0:
            poller.register(self._pidfd, select.POLLIN)
        seconds = min(_TICK, max(0.0, deadline - time.monotonic()))
        ready = dict(poller.poll(seconds * 1000 + 1))
        if self._process.text in ready:
            self._take_text()
        if fd in ready and events == select.POLLIN:
            self._take_frames()
        if self._pidfd in ready and not self._ended:
            while self._take_frames():
                pass
            self._ended = True
        self._watch()

    def _watch(self) -> None:
        """Raises ChildLost if the child exceeds a limit. Checks at most once in _TICK seconds."""
        if (now := time.monotonic()) >= self._next_watch:
            self._next_watch = now + _TICK
            if why := watch.find_excess(self.pid, self._scratch, self._limits.scratch_mb, self._limits.processes):
                raise ChildLost(why)

    def _take_frames(self) -> bool:
        try:
            data = os.read(self._process.from_child, _PIECE)
        except BlockingIOError:
            return False
        if not data:
            self._ended = True
            return False
        self._decoder.feed(data)
        return True

    def _take_text(self) -> int:
        try:
            data = os.read(self._process.text, _PIECE)
        except BlockingIOError:
            return 0
        self.on_text(data)
        return len(data)

    def drain_text(self) -> None:
        """Passes all text that the child printed to `on_text`."""
        left = _PIPE_MAX
        while left > 0 and (size := self._take_text()):
            left -= size

    def pause(self) -> None:
        """Suspends the child: between experiments and during tool calls its resources are not checked."""
        self._signal_group(signal.SIGSTOP)

    def resume(self) -> None:
        """Resumes a suspended child."""
        self._signal_group(signal.SIGCONT)

    def _signal_group(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, number)

    def interrupt(self) -> None:
        """Raises a KeyboardInterrupt in the agent's code (SIGINT)."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGINT)

    def lingers(self) -> bool:
        """Returns whether threads or processes have outlived the experiment."""
        for _ in range(20):  # the kernel may still list a thread that has just been joined
            if not watch.lingers(self.pid):
                return False
            time.sleep(0.005)
        return True

    def reap(self) -> tuple[Status, str]:
        """Kills the child if it is alive. Returns the status of the experiment that ran in it, and why it ended."""
        alive = not self._ended
        if self._reaped is None:
            if self._pidfd >= 0:
                if self._ended:  # its pipe ended; wait until it ends by itself, because the kill below hides the cause
                    alive = not is_ready(self._pidfd, GRACE)
                os.close(self._pidfd)
            self._reaped = self._process.reap()
        return _described(self._reaped, self._limits.cpu_seconds, alive)


def _described(end: ProcessEnd, cpu_limit: int, killed_by_us: bool) -> tuple[Status, str]:
    hard = resource.getrlimit(resource.RLIMIT_CPU)[1]  # the administrator's limit, which the process inherits
    limit = cpu_limit if hard == resource.RLIM_INFINITY else min(cpu_limit, hard)
    was_killed = end.signal == signal.SIGKILL and not killed_by_us
    # Code that ignores SIGXCPU is killed with SIGKILL a second later.
    if end.signal == signal.SIGXCPU or (was_killed and end.cpu_seconds >= limit):
        return Status.DIED, f"it used more than {limit} seconds of CPU time"
    if was_killed:
        return Status.MEMORY, "it was killed from outside (SIGKILL), most likely because the machine ran out of memory"
    if end.signal > 0:
        return Status.DIED, f"it was ended by signal {end.signal} ({signal.strsignal(end.signal)})"
    return Status.DIED, "it ended for an unknown reason" if end.code < 0 else f"it ended with exit code {end.code}"
