"""Runs the experiments of one investigation in a sandbox, and replays recorded experiments to restore variables."""

import hashlib
import json
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from openmaia.agent.sandbox import ExperimentStopped, Sandbox, SandboxResult
from openmaia.agent.tools.image_registry import RegisteredImage
from openmaia.agent.tools.toolbox import Toolbox, ToolEffect
from openmaia.core.errors import ReplayDiverged, ToolError
from openmaia.core.images import EncodedImage
from openmaia.core.messages import Part
from openmaia.runs.records import ImageEntry, ToolCall, Turn, dumps

UNRECORDED = ("pixels",)
"""Names of calls that only read results of earlier calls. They are not recorded, and a replay does not compare them."""

LOST = {"ok": "lost", "error": "error_lost", "memory": "memory_lost"}
"""The statuses that are recorded if the process of an experiment had to be replaced, by the status that the sandbox
reports. In the cases "ok" and "error", the code ended but left threads or processes running. In the case "memory", the
process was killed, or the code raised a MemoryError and left threads or processes running. Other statuses stay the
same."""
REPLAYED = ("ok", "error", "memory")
"""Statuses of experiments that a replay repeats, because their variables were kept."""
MAX_CALLS = 2_000
"""Largest number of recorded tool calls of one experiment."""
MAX_SHOWN = 1_000
"""Largest number of images that one experiment displays."""
OVERHEAD = 1_000
"""Approximate size in bytes of a call, an image or a text in memory, besides its content."""
MAX_ARGUMENTS = 100_000
"""Largest number of characters of the recorded arguments (JSON) of a call that raised a ToolError, or whose tool is one
of UNBOUNDED. Longer arguments are replaced by their SHA-256. Arguments of other calls are recorded at any length."""
UNBOUNDED = ("display", "user_tool")
"""Names of tools that take texts of any length."""
REBUILDS = 3
"""Largest number of attempts to replay the completed experiments, each in a new process. Another attempt is made only
if the process was lost during the replay."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExperimentResult:
    """The result of one experiment, the code in a reply of the agent. The defaults describe a reply without code."""

    status: str = ""
    """How the experiment ended, as in `Turn.status`: the value of a `Status` of the sandbox, such as "ok", or one of
    the values of LOST, such as "lost", if the process had to be replaced. Empty if there was no experiment."""
    calls: tuple[ToolCall, ...] = ()
    """The calls of tools, in their order."""
    observation: tuple[Part, ...] = ()
    """The texts and images that the experiment printed and displayed."""
    output_digest: str = ""
    """A hash of the observation, to detect differences in a replay."""
    images: dict[str, EncodedImage] = field(default_factory=dict[str, EncodedImage])
    """The images of the calls by digest, without those of earlier turns."""
    seconds: float = 0.0
    """Duration in seconds, including the time in which tool calls were answered."""


class ExperimentRunner:
    """Runs the experiments of an investigation in a sandbox.

    If the process of the sandbox is lost, the completed experiments are replayed in a new one. Their tool calls
    then get the recorded results.
    """

    def __init__(self, sandbox: Sandbox, toolbox: Toolbox):
        self.sandbox, self.toolbox = sandbox, toolbox
        self._completed: list[Turn] = []
        self._images: dict[str, EncodedImage] = {}
        self._held_bytes = 0
        self._lost = False
        sandbox.start()

    def run(self, code: str) -> ExperimentResult:
        """Runs the code of an experiment.

        If the process of the sandbox died or was killed in the previous experiment, the completed experiments are first
        replayed in a new process, which restores their variables.

        Raises:
            ReplayDiverged: If a replayed experiment behaved differently.
            SandboxError: If the sandbox failed.
            ServiceError: If a service failed.
        """
        if self._lost:
            self._rebuild()
        started = time.monotonic()
        session = ToolSession(self.toolbox, self._completed, self._held_bytes)
        result = self.sandbox.run(code, session.serve, session.write)
        self._lost, self._held_bytes = result.replaced, session.held_bytes
        observation = session.observation(result)
        return ExperimentResult(
            status=LOST.get(result.status.value, result.status.value) if result.replaced else result.status.value,
            calls=tuple(session.calls),
            observation=observation,
            output_digest=_digest(observation),
            images={digest: image for digest, image in session.images.items() if digest not in self._images},
            seconds=time.monotonic() - started,
        )

    def completed(self, turn: Turn) -> None:
        """Adds a completed turn. Its experiment is repeated when the process of the sandbox has to be replaced."""
        self._completed.append(turn)
        self._images.update(turn.images)

    def resume(self, turns: Sequence[Turn]) -> None:
        """Restores the variables and images of an interrupted investigation by a replay of its experiments.

        Raises:
            ReplayDiverged: If an experiment behaved differently.
            SandboxError: If the sandbox failed.
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
        """Replays the completed experiments in a new process. Their calls get the recorded results."""
        for _ in range(REBUILDS):
            self.sandbox.restart()
            if self._replay_completed():
                self._lost = False
                return
        raise ReplayDiverged(f"the process was lost in {REBUILDS} replays of the completed experiments")

    def _replay_completed(self) -> bool:
        """Replays the completed experiments. Returns False if the process was lost meanwhile."""
        for turn in self._completed:
            if turn.status not in REPLAYED:
                continue
            session = _ReplaySession(turn, self._images, self.toolbox)
            result = self.sandbox.run(turn.code, session.serve, session.write)
            if result.replaced:
                return False
            if _digest(session.observation(result)) != turn.output_digest:
                raise ReplayDiverged(f"experiment {turn.index + 1} gave another output when it was replayed")
        return True

    def _effect(self, call: ToolCall) -> ToolEffect:
        entries = [_registered(entry, self._images[entry.original]) for entry in call.entries]
        return ToolEffect(entries=entries, shown=list(call.shown), asked=list(call.asked))


class _Session:
    """Collects the observation of an experiment: its texts and images in their order."""

    def __init__(self) -> None:
        self.parts: list[Part] = []

    def write(self, text: str) -> None:
        """Adds text that the experiment printed."""
        self.parts.append(text)

    def show(self, parts: Iterable[Part]) -> None:
        """Adds texts and images that a tool displayed."""
        self.parts += (part + "\n" if isinstance(part, str) else part for part in parts)

    def observation(self, result: SandboxResult) -> tuple[Part, ...]:
        """Returns the observation of the experiment, with notes about an error or a lost process."""
        if result.error:
            self.write(result.error)
        if result.replaced:
            self.write("\nThe process was replaced: variables of this experiment are gone, earlier ones are kept.\n")
        return merged(self.parts)


def merged(parts: Sequence[Part]) -> tuple[Part, ...]:
    """Joins adjacent texts in the output of an experiment and removes blank ones."""
    joined: list[Part] = []
    for part in parts:
        if isinstance(part, str) and joined and isinstance(joined[-1], str):
            joined[-1] += part
        else:
            joined.append(part)
    return tuple(part for part in joined if not isinstance(part, str) or part.strip())


class ToolSession(_Session):
    """Executes the tool calls of one experiment of the agent and records them.

    Args:
        toolbox: The tools.
        turns: The completed turns of the investigation. Their time counts towards the limits of the investigation.
            None if a person makes the calls. Then the time, the number of calls and the size of the images have no
            limit.
        held_bytes: Size of the images, masks and texts of the calls of the completed turns in memory, in bytes.

    Attributes:
        held_bytes: The same with the calls so far.
    """

    def __init__(self, toolbox: Toolbox, turns: Sequence[Turn] | None = None, held_bytes: int = 0):
        super().__init__()
        self.held_bytes = held_bytes
        self.toolbox = toolbox
        self._turns, self._started = turns, time.monotonic()
        self._spent_before = toolbox.context.services.ledger.spent()
        self.calls: list[ToolCall] = []
        self.images: dict[str, EncodedImage] = {}
        """All images of the calls, by digest."""
        self._text_left = toolbox.context.options.sandbox.output_bytes
        self._is_told = False  # that displayed text was dropped
        self._shown = 0
        self._served = 0.0  # seconds by the clock that recorded calls took
        self._own_before = toolbox.own_time.seconds

    def serve(self, name: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """Executes a tool call of the agent's code and returns its result.

        Raises:
            ToolError: If the arguments are invalid, or some are keyword arguments, which no tool takes.
            ServiceError: If a service failed.
            ExperimentStopped: If the investigation has used up its time or its memory, if the experiment has made
                MAX_CALLS calls or displayed MAX_SHOWN images, or if its calls have taken `sandbox.seconds` of CPU time
                of this process.
        """
        started = time.monotonic()
        self._check_time(started)
        if name in UNRECORDED:
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
        """Raises ExperimentStopped if the services, the code, its calls or the clock have reached a limit of time."""
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
        """Raises ExperimentStopped if what the experiment, or the investigation, holds in memory gets too large."""
        if self._turns is None:
            return
        if len(self.calls) >= MAX_CALLS:
            raise ExperimentStopped(f"the experiment has made {MAX_CALLS} calls of tools")
        if self._shown >= MAX_SHOWN:
            raise ExperimentStopped(f"the experiment has displayed {self._shown} images, {MAX_SHOWN} are enough")
        if self.held_bytes >= (limit := self.toolbox.context.options.held_mb << 20):
            raise ExperimentStopped(f"the images and calls of the investigation take {limit >> 20} MiB of memory")

    def _bounded(self, part: Part) -> Part | None:
        """Cuts a displayed text so that the experiment displays at most `output_bytes` bytes of text in total.

        The first text that is cut gets a note about this. Of the following ones, nothing is left, which is returned as
        None. Images are returned unchanged.
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
        for image in [entry.original for entry in effect.entries] + displayed:
            self.images.setdefault(image.digest, image)
        arguments = _canonical(args)
        digest = _sha(arguments)
        if len(arguments) > MAX_ARGUMENTS and (error is not None or name in UNBOUNDED):
            arguments = dumps({"sha256": digest})
        self.calls.append(
            ToolCall(
                ordinal=len(self.calls),
                name=name,
                arguments=arguments,
                arguments_digest=digest,
                result=None if error is not None else _canonical(result),
                error=error,
                entries=tuple(_recorded(entry) for entry in effect.entries),
                shown=tuple(effect.shown),
                asked=tuple(effect.asked),
                seconds=time.monotonic() - started,
            )
        )
        self.held_bytes += _size(effect, self.calls[-1])


class _ReplaySession(_Session):
    """Answers the calls of a replayed experiment with the results in its record."""

    def __init__(self, turn: Turn, images: Mapping[str, EncodedImage], toolbox: Toolbox):
        super().__init__()
        self._turn, self._calls, self._images, self._toolbox = turn, iter(turn.calls), images, toolbox

    def serve(self, name: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """Returns the recorded result of a call.

        Raises:
            ToolError: If the recorded call raised it.
            ReplayDiverged: If the call is not the next one of the record.
        """
        if name in UNRECORDED:
            return self._toolbox.call(name, args)[0]
        call = next(self._calls, None)
        if call is None or call.name != name or call.arguments_digest != _sha(_canonical(args)):
            raise ReplayDiverged(f"experiment {self._turn.index + 1} made another call ({name}) when it was replayed")
        self.show(self._images[part.digest] if isinstance(part, EncodedImage) else part for part in call.shown)
        if call.error is not None:
            raise ToolError(call.error)
        return json.loads(call.result or "null")


def _size(effect: ToolEffect, call: ToolCall) -> int:
    """Returns the size of the images, masks and texts of a tool call in memory in bytes."""
    parts = [part if isinstance(part, str) else part.data for part in effect.shown]
    parts += [part for entry in effect.entries for part in (entry.original.data, entry.hypothesis)]
    parts += [call.arguments, call.result or "", call.error or "", *call.asked]
    masks = sum(entry.mask.nbytes for entry in effect.entries if entry.mask is not None)
    return masks + sum(OVERHEAD + len(part) for part in parts)


def _recorded(image: RegisteredImage) -> ImageEntry:
    return ImageEntry(
        id=image.id,
        original=image.original.digest,
        mask=None if image.mask is None else np.packbits(image.mask, axis=1).tobytes(),
        activation=image.activation,
        seen=image.seen,
        hypothesis=image.hypothesis,
    )


def _registered(entry: ImageEntry, original: EncodedImage) -> RegisteredImage:
    """Restores a registered image from its entry in a record (see `_recorded`) and the image itself."""
    mask = None
    if entry.mask is not None:
        width, height = original.size
        rows = np.frombuffer(entry.mask, dtype=np.uint8).reshape(height, -1)
        mask = np.unpackbits(rows, axis=1, count=width).astype(np.bool_)
    return RegisteredImage(
        id=entry.id,
        original=original,
        mask=mask,
        activation=entry.activation,
        seen=entry.seen,
        hypothesis=entry.hypothesis,
    )


def _canonical(value: Any) -> str:
    """Returns a value as JSON, with bytes (encoded images) replaced by their SHA-256 hashes."""
    return dumps(value, default=lambda data: {"sha256": hashlib.sha256(data).hexdigest()})


def _digest(observation: Sequence[Part]) -> str:
    """Returns a hash of an observation without experiment numbers in tracebacks, which change in a replay."""
    texts = (re.sub(r"<experiment \d+>", "<experiment>", p) if isinstance(p, str) else [p.digest] for p in observation)
    return _sha(dumps(list(texts)))


def _sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
