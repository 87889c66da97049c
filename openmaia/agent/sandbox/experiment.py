"""Runs one experiment from the parent's side: limits its time and output, and answers its tool calls."""

import codecs
import time
from collections.abc import Callable
from typing import Any, cast

from openmaia.agent.sandbox.contract import CallHandler, ExperimentStopped, SandboxLimits, SandboxResult, Status
from openmaia.agent.sandbox.frames import FrameError, Json
from openmaia.agent.sandbox.process import GRACE, Child, ChildLost
from openmaia.core.errors import ToolError

_MAX_ERROR = 100_000
_MAX_NAME = 200


class CappedOutput:
    """Passes at most `limit` bytes of output to `write` as text, and counts the bytes that it drops."""

    def __init__(self, write: Callable[[str], None], limit: int):
        self._write, self._limit = write, limit
        self._left, self._dropped = limit, 0
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def __call__(self, data: bytes) -> None:
        taken = data[: self._left]
        self._left -= len(taken)
        self._dropped += len(data) - len(taken)
        if text := self._decoder.decode(taken):
            self._write(text)

    def finish(self) -> None:
        """Ends the output, with a note about dropped bytes. A character of which a part is missing becomes U+FFFD."""
        if text := self._decoder.decode(b"", True):
            self._write(text)
        if self._dropped:
            self._write(f"\n[{self._dropped} more bytes of output dropped; at most {self._limit} are shown]\n")


class ExperimentMonitor:
    """Runs one experiment in a child process, answers its tool calls, and stops it at its deadline."""

    def __init__(self, child: Child, limits: SandboxLimits, serve: CallHandler, write: Callable[[str], None]):
        self._child, self._limits, self._serve = child, limits, serve
        self._output = CappedOutput(write, limits.output_bytes)
        self._begun, self._served = time.monotonic(), 0.0
        self._reason = f"the experiment ran for more than {limits.seconds:g} s and was stopped"

    @property
    def _seconds(self) -> float:
        return time.monotonic() - self._begun - self._served

    @property
    def _deadline(self) -> float:
        return self._begun + self._served + self._limits.seconds

    def run(self, code: str, number: int) -> SandboxResult:
        """Runs the code of an experiment, whose number must differ from earlier ones. Exceptions of the code are part
        of the result.

        Raises FrameError if the code is too long to be sent, and what `write` or `serve` raise, apart from ToolError
        and ExperimentStopped (see `CallHandler`).
        """
        self._child.on_text = self._output
        try:
            result = self._run(code, number)
        except ChildLost as loss:
            result = self._lost(loss)
        self._output.finish()
        return result

    def _run(self, code: str, number: int) -> SandboxResult:
        self._child.resume()
        running = self._child.send({"kind": "run", "code": code, "number": number}, self._deadline)
        while running:
            message = self._child.receive(self._deadline)
            if message is None:
                break
            if not isinstance(message, dict):
                raise ChildLost("it wrote a message of an unknown kind")
            if message.get("kind") == "done":
                return self._done(message, number)
            running = self._answer(message)
        return self._stop()

    def _answer(self, message: dict[str, Json]) -> bool:
        match message:
            case {"kind": "call", "name": str(name), "args": list(args), "kwargs": dict(kwargs), **rest} if not rest:
                if not name.isidentifier() or len(name) > _MAX_NAME:
                    raise ChildLost("it called a tool by an invalid name")
                try:
                    reply = self._call(name, args, kwargs)
                except ExperimentStopped as limit:
                    self._reason = f"{limit}; the experiment was stopped"
                    return False
            case _:
                raise ChildLost("it wrote a message of an unknown kind")
        try:
            return self._child.send(reply, self._deadline)
        except (FrameError, TypeError) as error:  # too large, or a value that JSON does not have
            return self._child.send({"error": f"the result of {name} cannot be returned: {error}"}, self._deadline)

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

    def _done(self, message: dict[str, Json], number: int) -> SandboxResult:
        status, error = message.get("status"), message.get("error")
        # The agent's code may have forged the message: nothing in it is believed, and the child is suspended.
        if message.get("number") != number:
            raise ChildLost("it wrote the end of another experiment")
        if status not in ("ok", "error", "memory", "timeout") or not isinstance(error, str) or len(error) > _MAX_ERROR:
            raise ChildLost("it wrote a message of an unknown kind")
        if status == "timeout":
            status = "error"  # the agent's code raised its own KeyboardInterrupt
        seconds = self._seconds
        lingers = message.get("threads") != 1 or self._child.lingers()
        self._child.pause()
        self._child.drain_text()
        return SandboxResult(status=Status(status), error=error, replaced=lingers, seconds=seconds)

    def _stop(self) -> SandboxResult:
        seconds = self._seconds
        # First SIGINT, so that a traceback shows what took the time.
        self._child.interrupt()
        trace = ""
        try:
            last = self._child.receive(time.monotonic() + GRACE)
        except ChildLost:
            last = None
        if isinstance(last, dict) and isinstance(text := cast("dict[str, Any]", last).get("error"), str):
            trace = text[:_MAX_ERROR]
        self._child.reap()
        why = f"Timeout: {self._reason}.\n"
        return SandboxResult(status=Status.TIMEOUT, error=trace + why, replaced=True, seconds=seconds)

    def _lost(self, loss: ChildLost) -> SandboxResult:
        seconds = self._seconds
        self._child.drain_text()
        status, how = self._child.reap()
        error = f"The process of the experiment was lost: {loss.why or how}.\n"
        return SandboxResult(status=Status.DIED if loss.why else status, error=error, replaced=True, seconds=seconds)
