"""Runs experiments in the sandbox, and replays recorded ones to restore variables."""

import hashlib
import json
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from openmaia.agent.sandbox import ExperimentStopped, Sandbox, SandboxResult
from openmaia.agent.tools.image_registry import RegisteredImage
from openmaia.agent.tools.toolbox import Toolbox, ToolEffect
from openmaia.core.errors import ReplayDiverged, ToolError
from openmaia.core.images import EncodedImage
from openmaia.core.messages import Part
from openmaia.runs.records import ExperimentStatus, ToolCall, Turn, dumps

_UNRECORDED = ("pixels",)
"""Calls that only read results of earlier ones. A replay does not compare them."""

_LOST = {
    ExperimentStatus.OK: ExperimentStatus.LOST,
    ExperimentStatus.ERROR: ExperimentStatus.ERROR_LOST,
    ExperimentStatus.MEMORY: ExperimentStatus.MEMORY_LOST,
}
"""The status that is recorded if the process had to be replaced, by the status otherwise. With OK and ERROR,
the code ended but left threads or processes running. With MEMORY, it raised a MemoryError and left some, or the
process was killed. Other statuses stay the same."""
_MAX_CALLS = 2_000
"""Recorded tool calls of one experiment."""
_MAX_SHOWN = 1_000
"""Images that one experiment displays."""
_OVERHEAD = 1_000
"""Bytes that a call, an image or a text takes in memory besides its content, about."""
_MAX_ARGUMENTS = 100_000
"""Characters of recorded arguments (JSON) of a call that raised a ToolError, or of a tool in _UNBOUNDED. Longer ones are
replaced by their SHA-256; other tools limit their arguments."""
_UNBOUNDED = ("display", "user_tool")
"""Tools that take texts of any length."""
_REBUILDS = 3
"""Attempts to replay the completed experiments. Another is made only if the process was lost during the replay."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExperimentResult:
    """The defaults describe a turn without an experiment."""

    status: ExperimentStatus = ExperimentStatus.NONE
    calls: tuple[ToolCall, ...] = ()
    observation: tuple[Part, ...] = ()
    """The texts and images that were printed and displayed."""
    output_digest: str = ""
    """A hash of the observation, which a replay compares."""
    images: dict[str, EncodedImage] = field(default_factory=dict[str, EncodedImage])
    """The images of the calls by digest, without those of earlier turns."""
    seconds: float = 0.0
    """With the time in which tool calls were answered."""


class ExperimentRunner:
    """Runs experiments in a sandbox. If its process is lost, the completed ones are replayed in a new one, where their
    tool calls get the recorded results.
    """

    def __init__(self, sandbox: Sandbox, toolbox: Toolbox):
        self.sandbox, self.toolbox = sandbox, toolbox
        self._completed: list[Turn] = []
        self._images: dict[str, EncodedImage] = {}
        self._held_bytes = 0
        self._lost = False
        sandbox.start()

    def run(self, code: str) -> ExperimentResult:
        """Runs an experiment, if necessary after a replay of the completed ones. Raises ReplayDiverged if one of these
        behaved differently, SandboxError and ServiceError.
        """
        # Only when it is needed: a replay costs time, and the agent may answer next.
        if self._lost:
            self._rebuild()
        started = time.monotonic()
        session = ToolSession(self.toolbox, self._completed, self._held_bytes)
        result = self.sandbox.run(code, session.serve, session.write)
        self._lost, self._held_bytes = result.replaced, session.held_bytes
        observation, status = session.observation(result), ExperimentStatus(result.status.value)
        return ExperimentResult(
            status=_LOST.get(status, status) if result.replaced else status,
            calls=tuple(session.calls),
            observation=observation,
            output_digest=_digest(observation),
            images={digest: image for digest, image in session.images.items() if digest not in self._images},
            seconds=time.monotonic() - started,
        )

    def completed(self, turn: Turn) -> None:
        """Adds a completed turn, which a replay repeats."""
        self._completed.append(turn)
        self._images.update(turn.images)

    def replace_latest(self, turn: Turn) -> None:
        """Replaces the latest completed turn, whose answer was tested meanwhile."""
        self._completed[-1] = turn
        self._images.update(turn.images)

    def resume(self, turns: Sequence[Turn]) -> None:
        """Restores the variables and images of an interrupted investigation. Raises ReplayDiverged if an experiment
        behaved differently, and SandboxError.
        """
        for turn in turns:
            self.completed(turn)
            for call in turn.calls:
                effect = self._effect(call)
                self.toolbox.replay(effect)
                self._held_bytes += _size(effect, call)
        if any(turn.code for turn in turns):
            self._rebuild()

    def _rebuild(self) -> None:
        for _ in range(_REBUILDS):
            self.sandbox.restart()
            if self._replay_completed():
                self._lost = False
                return
        raise ReplayDiverged(f"the process was lost in {_REBUILDS} replays of the completed experiments")

    def _replay_completed(self) -> bool:
        """Returns False if the process was lost meanwhile."""
        for turn in self._completed:
            if not turn.kept_variables:
                continue
            session = _ReplaySession(turn, self._images, self.toolbox)
            result = self.sandbox.run(turn.code, session.serve, session.write)
            if result.replaced:
                return False
            if _digest(session.observation(result)) != turn.output_digest:
                raise ReplayDiverged(f"experiment {turn.index + 1} gave another output when it was replayed")
        return True

    def _effect(self, call: ToolCall) -> ToolEffect:
        entries = [RegisteredImage(entry=entry, original=self._images[entry.original]) for entry in call.entries]
        return ToolEffect(entries=entries, shown=list(call.shown), asked=list(call.asked), given=list(call.given))


class _Session:
    def __init__(self) -> None:
        self.parts: list[Part] = []

    def write(self, text: str) -> None:
        self.parts.append(text)

    def show(self, parts: Iterable[Part]) -> None:
        self.parts += (part + "\n" if isinstance(part, str) else part for part in parts)

    def observation(self, result: SandboxResult) -> tuple[Part, ...]:
        """Returns the texts and images so far, with notes about an error or a lost process."""
        if result.error:
            self.write(result.error)
        if result.replaced:
            self.write("\nThe process was replaced: variables of this experiment are gone, earlier ones are kept.\n")
        return merge_parts(self.parts)


def merge_parts(parts: Sequence[Part]) -> tuple[Part, ...]:
    """Joins adjacent texts of an observation and removes blank ones."""
    joined: list[Part] = []
    for part in parts:
        if isinstance(part, str) and joined and isinstance(joined[-1], str):
            joined[-1] += part
        else:
            joined.append(part)
    return tuple(part for part in joined if not isinstance(part, str) or part.strip())


class ToolSession(_Session):
    """Executes the tool calls of one experiment and records them.

    Args:
        turns: The completed turns, whose time counts towards the limits. None if a person makes the calls: then time,
            number of calls and size of images have no limit.
        held_bytes: Size in memory of the images, masks and texts of earlier calls. The attribute adds those of this
            experiment.
    """

    def __init__(self, toolbox: Toolbox, turns: Sequence[Turn] | None = None, held_bytes: int = 0):
        super().__init__()
        self.held_bytes = held_bytes
        self.toolbox = toolbox
        self._turns, self._started = turns, time.monotonic()
        self._spent_before = toolbox.context.services.ledger.spent()
        self.calls: list[ToolCall] = []
        self.images: dict[str, EncodedImage] = {}
        self._text_left = toolbox.context.options.sandbox.output_bytes
        self._is_told = False  # that displayed text was dropped
        self._shown = 0
        self._served = 0.0  # seconds by the clock that recorded calls took
        self._own_before = toolbox.own_time.seconds

    def serve(self, name: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """Executes a tool call and returns its result.

        Raises:
            ToolError: The arguments are invalid. No tool takes keyword arguments.
            ServiceError: A service failed.
            ExperimentStopped: The investigation has used up its time or memory, or the experiment its calls
                (_MAX_CALLS), displayed images (_MAX_SHOWN) or CPU time of this process (`sandbox.seconds`).
        """
        started = time.monotonic()
        self._check_time(started)
        if name in _UNRECORDED:
            with self.toolbox.own_time.measured():
                return self.toolbox.call(name, args)[0]
        self._check_size()
        own, users = self.toolbox.own_time.seconds, self.toolbox.own_time.user_seconds
        try:
            with self.toolbox.own_time.measured():
                return self._serve(name, args, kwargs, started)
        finally:
            seconds = self.toolbox.own_time.seconds - own + self.toolbox.own_time.user_seconds - users
            self.toolbox.context.services.ledger.add("tools", 1, seconds, 0.0)
            self._served += time.monotonic() - started

    def _serve(self, name: str, args: list[Any], kwargs: dict[str, Any], started: float) -> Any:
        result, error, effect = None, None, ToolEffect()
        try:
            result, effect = self.toolbox.call(name, args, kwargs)
        except ToolError as mistake:
            error, effect = mistake.message, self.toolbox.effect
        if name == "display":
            effect.shown = [part for part in map(self._bounded, effect.shown) if part is not None]
        self.show(effect.shown)
        self._record(name, args, result, error, effect, started)
        if error is not None:
            raise ToolError(error)
        return result

    def _check_time(self, now: float) -> None:
        if self._turns is None:
            return
        options = self.toolbox.context.options
        spent = self.toolbox.context.services.ledger.since(self._spent_before).values()
        code = now - self._started - self._served
        work = sum(turn.work_seconds for turn in self._turns) + sum(usage.seconds for usage in spent) + code
        elapsed = sum(turn.seconds for turn in self._turns) + now - self._started
        for limit in options.time_limits(work, elapsed):
            raise ExperimentStopped(f"the investigation has used up {limit}")
        if self.toolbox.own_time.seconds - self._own_before >= options.sandbox.seconds:
            raise ExperimentStopped(
                f"the calls of the experiment took more than {options.sandbox.seconds:g} s to decode, check and encode what "
                "they were given"
            )

    def _check_size(self) -> None:
        if self._turns is None:
            return
        if len(self.calls) >= _MAX_CALLS:
            raise ExperimentStopped(f"the experiment has made {_MAX_CALLS} calls of tools")
        if self._shown >= _MAX_SHOWN:
            raise ExperimentStopped(f"the experiment has displayed {self._shown} images, {_MAX_SHOWN} are enough")
        if self.held_bytes >= (limit := self.toolbox.context.options.held_mb << 20):
            raise ExperimentStopped(f"the images and calls of the investigation take {limit >> 20} MiB of memory")

    def _bounded(self, part: Part) -> Part | None:
        """Cuts a displayed text at `output_bytes` for the experiment. The first text that is cut says so; later ones
        become None.
        """
        if not isinstance(part, str):
            return part
        data = part.encode(errors="replace")
        left, limit = self._text_left, self.toolbox.context.options.sandbox.output_bytes
        self._text_left = max(0, left - len(data) - 1)  # each text gets a line end
        if len(data) < left:
            return data.decode()
        if self._is_told:
            return None
        self._is_told, taken = True, data[:left]
        return f"{taken.decode(errors='ignore')}\n[more than {limit} bytes of displayed text: the rest is dropped]"

    def _record(
        self, name: str, args: list[Any], result: Any, error: str | None, effect: ToolEffect, started: float
    ) -> None:
        displayed = [part for part in effect.shown if isinstance(part, EncodedImage)]
        self._shown += len(displayed)
        for image in [image.original for image in effect.entries] + displayed:
            self.images.setdefault(image.digest, image)
        arguments = _canonical(args)
        digest = _sha(arguments)
        if len(arguments) > _MAX_ARGUMENTS and (error is not None or name in _UNBOUNDED):
            arguments = dumps({"sha256": digest})
        self.calls.append(
            ToolCall(
                ordinal=len(self.calls),
                name=name,
                arguments=arguments,
                arguments_digest=digest,
                result=None if error is not None else _canonical(result),
                error=error,
                entries=tuple(image.entry for image in effect.entries),
                shown=tuple(effect.shown),
                asked=tuple(effect.asked),
                given=tuple(effect.given),
                seconds=time.monotonic() - started,
            )
        )
        self.held_bytes += _size(effect, self.calls[-1])


class _ReplaySession(_Session):
    def __init__(self, turn: Turn, images: Mapping[str, EncodedImage], toolbox: Toolbox):
        super().__init__()
        self._turn, self._calls, self._images, self._toolbox = turn, iter(turn.calls), images, toolbox

    def serve(self, name: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """Returns the recorded result of a call, or raises the recorded ToolError. Raises ReplayDiverged if the call is
        not the next one of the record.
        """
        if name in _UNRECORDED:
            return self._toolbox.call(name, args)[0]
        call = next(self._calls, None)
        if call is None or call.name != name or call.arguments_digest != _sha(_canonical(args)):
            raise ReplayDiverged(f"experiment {self._turn.index + 1} made another call ({name}) when it was replayed")
        self.show(self._images[part.digest] if isinstance(part, EncodedImage) else part for part in call.shown)
        if call.error is not None:
            raise ToolError(call.error)
        return json.loads(call.result or "null")


def _size(effect: ToolEffect, call: ToolCall) -> int:
    parts = [part if isinstance(part, str) else part.data for part in effect.shown]
    parts += [part for image in effect.entries for part in (image.original.data, image.entry.hypothesis)]
    parts += [call.arguments, call.result or "", call.error or "", *call.asked]
    parts += [image.entry.mask for image in effect.entries if image.entry.mask is not None]
    return sum(_OVERHEAD + len(part) for part in parts)


def _canonical(value: Any) -> str:
    """Returns a value as JSON, with hashes in place of bytes."""
    return dumps(value, default=lambda data: {"sha256": hashlib.sha256(data).hexdigest()})


def _digest(observation: Sequence[Part]) -> str:
    # A replay counts only the experiments that it repeats, so that the numbers in tracebacks change.
    texts = (re.sub(r"<experiment \d+>", "<experiment>", p) if isinstance(p, str) else [p.digest] for p in observation)
    return _sha(dumps(list(texts)))


def _sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
