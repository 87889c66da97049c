"""One experiment, seen from the parent: the clock, the output, the calls, the end."""

import codecs
import time
from collections.abc import Callable
from typing import Any, cast

from openmaia.errors import ToolError
from openmaia.sandbox.contract import Limits, Outcome, Serve, Status
from openmaia.sandbox.frames import FrameError, Json
from openmaia.sandbox.process import GRACE, Child, Gone

MAX_ERROR = 100_000
MAX_NAME = 200


class Output:
    """Passes on at most `limit` bytes, and counts the rest."""

    def __init__(self, write: Callable[[str], None], limit: int):
        self._write = write
        self._limit = limit
        self._left = limit
        self._dropped = 0
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def __call__(self, data: bytes) -> None:
        taken = data[: self._left]
        self._left -= len(taken)
        self._dropped += len(data) - len(taken)
        if text := self._decoder.decode(taken):
            self._write(text)

    def finish(self) -> None:
        if text := self._decoder.decode(b"", True):
            self._write(text)
        if self._dropped:
            self._write(f"\n[{self._dropped} more bytes of output dropped; at most {self._limit} are shown]\n")


class Experiment:
    def __init__(self, child: Child, limits: Limits, serve: Serve, write: Callable[[str], None]):
        self._child = child
        self._limits = limits
        self._serve = serve
        self._output = Output(write, limits.output_bytes)
        self._served = 0.0
        self._begun = time.monotonic()

    @property
    def _seconds(self) -> float:
        return time.monotonic() - self._begun - self._served

    @property
    def _deadline(self) -> float:
        return self._begun + self._served + self._limits.seconds

    def run(self, code: str, number: int) -> Outcome:
        """Raises only what is not the agent's fault: whatever `serve` and `write` raise, except ToolError."""
        self._child.on_text = self._output
        try:
            outcome = self._run(code, number)
        except Gone as gone:
            outcome = self._lost(gone)
        self._output.finish()
        return outcome

    def _run(self, code: str, number: int) -> Outcome:
        self._child.resume()
        running = self._child.send({"kind": "run", "code": code, "number": number}, self._deadline)
        while running:
            message = self._child.receive(self._deadline)
            if message is None:
                break
            if not isinstance(message, dict):
                raise Gone("it wrote a message of an unknown kind")
            if message.get("kind") == "done":
                return self._done(message, number)
            running = self._answer(message)
        return self._stop()

    def _answer(self, message: dict[str, Json]) -> bool:
        match message:
            case {"kind": "call", "name": str(name), "args": list(args), "kwargs": dict(kwargs), **rest} if not rest:
                pass
            case _:
                raise Gone("it wrote a message of an unknown kind")
        if not name.isidentifier() or len(name) > MAX_NAME:
            raise Gone("it called a tool by something that is no name")
        reply = self._call(name, args, kwargs)
        try:
            return self._child.send(reply, self._deadline)
        except FrameError as error:  # the agent asked for too much at once
            return self._child.send({"error": f"the result of {name} is too large: {error}"}, self._deadline)

    def _call(self, name: str, args: list[Json], kwargs: dict[str, Json]) -> dict[str, Json]:
        begun = time.monotonic()
        try:
            self._child.pause()
            return {"result": self._serve(name, args, kwargs)}
        except ToolError as error:
            return {"error": error.message}
        finally:
            self._child.resume()
            self._served += time.monotonic() - begun

    def _done(self, message: dict[str, Json], number: int) -> Outcome:
        """The agent's code may have written this itself, to run on unwatched: hence the number, and the pause."""
        status, error = message.get("status"), message.get("error")
        if message.get("number") != number:
            raise Gone("it wrote the end of another experiment")
        if status not in ("ok", "error", "memory", "timeout") or not isinstance(error, str) or len(error) > MAX_ERROR:
            raise Gone("it wrote a message of an unknown kind")
        if status == "timeout":
            status = "error"  # nobody stopped it: its own KeyboardInterrupt
        seconds = self._seconds
        lingers = message.get("threads") != 1 or self._child.lingers()
        self._child.pause()
        self._child.drain_text()
        return Outcome(status=Status(status), error=error, replaced=lingers, seconds=seconds)

    def _stop(self) -> Outcome:
        """SIGINT, as a courtesy: the traceback tells the agent where the time went."""
        seconds = self._seconds
        self._child.interrupt()
        trace = ""
        try:
            last = self._child.receive(time.monotonic() + GRACE)
        except Gone:
            last = None
        if isinstance(last, dict) and isinstance(text := cast("dict[str, Any]", last).get("error"), str):
            trace = text[:MAX_ERROR]
        self._child.reap()
        why = f"Timeout: the experiment ran for more than {self._limits.seconds:g} s and was stopped.\n"
        return Outcome(status=Status.TIMEOUT, error=trace + why, replaced=True, seconds=seconds)

    def _lost(self, gone: Gone) -> Outcome:
        seconds = self._seconds
        self._child.drain_text()
        status, how = self._child.reap()
        error = f"The process of the experiment was lost: {gone.why or how}.\n"
        return Outcome(status=Status.DIED if gone.why else status, error=error, replaced=True, seconds=seconds)
