"""The workbench of one investigation: the sandbox, the toolbox behind it, and the journal of their conversation."""

import hashlib
import json
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from openmaia.errors import ReplayDiverged, ToolError
from openmaia.images import Picture
from openmaia.messages import Part
from openmaia.sandbox import Outcome, Sandbox
from openmaia.store.records import ImageEntry, ToolCall, Turn, dumps
from openmaia.tools.album import Entry, Mask
from openmaia.tools.toolbox import Effect, Toolbox

UNRECORDED = ("pixels",)
"""Calls that only read what earlier calls made: they need no journal, and no experiment consists of them."""

REPLAYED = ("ok", "error")
"""Experiments that ended by themselves and left their variables. A stopped one leaves none; one that is "lost" ended, but
left threads running, and its process was replaced."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """What one experiment did and showed. pictures: those that it saw first."""

    status: str
    calls: tuple[ToolCall, ...]
    observation: tuple[Part, ...]
    output_digest: str
    pictures: dict[str, Picture]
    seconds: float
    replaced: bool


class Bench:
    """A fresh process is started at once, behind the backbone's first reply."""

    def __init__(self, sandbox: Sandbox, toolbox: Toolbox):
        self.sandbox, self.toolbox = sandbox, toolbox
        self._completed: list[Turn] = []
        self._pictures: dict[str, Picture] = {}
        self._lost = False
        sandbox.start()

    def run(self, code: str) -> Experiment:
        """Runs code; where an earlier experiment took the process along, the completed ones are replayed first."""
        if self._lost:
            self._rebuild()
        started = time.monotonic()
        session = Live(self.toolbox)
        outcome = self.sandbox.run(code, session.serve, session.write)
        self._lost = outcome.replaced
        observation = session.observation(outcome)
        new = {digest: p for digest, p in session.pictures().items() if digest not in self._pictures}
        return Experiment(
            status="lost" if outcome.replaced and outcome.status.value in REPLAYED else outcome.status.value,
            calls=tuple(session.calls),
            observation=observation,
            output_digest=_digest(observation),
            pictures=new,
            seconds=time.monotonic() - started,
            replaced=outcome.replaced,
        )

    def completed(self, turn: Turn) -> None:
        """From here on the turn is part of what a replay replays."""
        self._completed.append(turn)
        self._pictures.update(turn.pictures)

    def resume(self, turns: Sequence[Turn]) -> None:
        """Brings variables and images back to where the journal ends. Raises ReplayDiverged."""
        for turn in turns:
            self.completed(turn)
        for call in (call for turn in turns for call in turn.calls):
            self.toolbox.replay(self._effect(call))
        if any(turn.code for turn in turns):
            self._rebuild()

    def _rebuild(self) -> None:
        """Replays every experiment that ended by itself into a fresh process, answered from what was recorded."""
        self.sandbox.restart()
        for turn in self._completed:
            if turn.status not in REPLAYED:
                continue
            session = _Replayed(turn, self._pictures, self.toolbox)
            outcome = self.sandbox.run(turn.code, session.serve, session.write)
            if outcome.replaced or _digest(session.observation(outcome)) != turn.output_digest:
                raise ReplayDiverged(f"experiment {turn.index + 1} gave another output when it was replayed")
        self._lost = False

    def _effect(self, call: ToolCall) -> Effect:
        def entry(kept: ImageEntry) -> Entry:
            original = self._pictures[kept.original]
            mask = _unpack(kept.mask, original)
            return Entry(
                id=kept.id, original=original, mask=mask, activation=kept.activation, hypothesis=kept.hypothesis
            )

        return Effect(entries=[entry(e) for e in call.entries], shown=list(call.shown), asked=list(call.asked))


class _Session:
    """The observation as it grows: texts and pictures in the order in which they came."""

    def __init__(self) -> None:
        self.parts: list[Part] = []

    def write(self, text: str) -> None:
        self.parts.append(text)

    def show(self, parts: Sequence[Part]) -> None:
        for part in parts:
            if isinstance(part, str):
                self.write(part + "\n")
            else:
                self.parts.append(part)

    def observation(self, outcome: Outcome) -> tuple[Part, ...]:
        if outcome.error:
            self.write(outcome.error)
        if outcome.replaced:
            self.write("\nThe process was replaced: variables of this experiment are gone, earlier ones are kept.\n")
        return merged(self.parts)


def merged(parts: Sequence[Part]) -> tuple[Part, ...]:
    """Adjacent texts as one, empty ones left out."""
    whole: list[Part] = []
    for part in parts:
        if isinstance(part, str) and whole and isinstance(whole[-1], str):
            whole[-1] += part
        else:
            whole.append(part)
    return tuple(part for part in whole if not isinstance(part, str) or part.strip())


class Live(_Session):
    """Answers calls with the toolbox and remembers them."""

    def __init__(self, toolbox: Toolbox):
        super().__init__()
        self.toolbox = toolbox
        self.calls: list[ToolCall] = []
        self._pictures: dict[str, Picture] = {}

    def serve(self, name: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
        if name in UNRECORDED:
            return self.toolbox.call(name, args)[0]
        started = time.monotonic()
        result, error, effect = None, None, Effect()
        try:
            if kwargs:
                raise ToolError(f"{name}: unexpected keyword arguments {sorted(kwargs)}")
            result, effect = self.toolbox.call(name, args)
        except ToolError as mistake:
            error = mistake.message
        self.show(effect.shown)
        self._remember(name, args, result, error, effect, time.monotonic() - started)
        if error is not None:
            raise ToolError(error)
        return result

    def pictures(self) -> dict[str, Picture]:
        return self._pictures

    def _remember(
        self, name: str, args: list[Any], result: Any, error: str | None, effect: Effect, seconds: float
    ) -> None:
        shown = [part for part in effect.shown if isinstance(part, Picture)]
        for picture in [entry.original for entry in effect.entries] + shown:
            self._pictures.setdefault(picture.digest, picture)
        arguments = _canonical(args)
        self.calls.append(
            ToolCall(
                ordinal=len(self.calls),
                name=name,
                arguments=arguments,
                arguments_digest=_sha(arguments),
                result=None if error is not None else _canonical(result),
                error=error,
                entries=tuple(
                    ImageEntry(
                        id=e.id,
                        original=e.original.digest,
                        mask=None if e.mask is None else np.packbits(e.mask, axis=1).tobytes(),
                        activation=e.activation,
                        hypothesis=e.hypothesis,
                    )
                    for e in effect.entries
                ),
                shown=tuple(effect.shown),
                asked=tuple(effect.asked),
                seconds=seconds,
            )
        )


class _Replayed(_Session):
    """Answers calls from a recorded turn; anything else than the same calls in the same order diverges."""

    def __init__(self, turn: Turn, pictures: dict[str, Picture], toolbox: Toolbox):
        super().__init__()
        self._turn, self._calls, self._pictures, self._toolbox = turn, iter(turn.calls), pictures, toolbox

    def serve(self, name: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
        if name in UNRECORDED:
            return self._toolbox.call(name, args)[0]
        call = next(self._calls, None)
        if call is None or call.name != name or call.arguments_digest != _sha(_canonical(args)):
            raise ReplayDiverged(f"experiment {self._turn.index + 1} made another call ({name}) when it was replayed")
        self.show([self._pictures[part.digest] if isinstance(part, Picture) else part for part in call.shown])
        if call.error is not None:
            raise ToolError(call.error)
        return json.loads(call.result or "null")


def _unpack(mask: bytes | None, picture: Picture) -> Mask | None:
    if mask is None:
        return None
    height, width = picture.pixels.shape[:2]
    rows = np.frombuffer(mask, dtype=np.uint8).reshape(height, -1)
    return np.unpackbits(rows, axis=1, count=width).astype(np.bool_)


def _canonical(value: Any) -> str:
    """JSON in which an encoded picture is named by its digest."""

    def plain(value: Any) -> Any:
        if isinstance(value, bytes):
            return {"sha256": hashlib.sha256(value).hexdigest()}
        if isinstance(value, list):
            return [plain(item) for item in cast(list[Any], value)]
        if isinstance(value, dict):
            return {key: plain(item) for key, item in cast(dict[str, Any], value).items()}
        return value

    return dumps(plain(value))


def _digest(observation: Sequence[Part]) -> str:
    """Tracebacks number experiments from the start of their process, which a replay starts anew."""
    texts = (re.sub(r"<experiment \d+>", "<experiment>", p) if isinstance(p, str) else [p.digest] for p in observation)
    return _sha(dumps(list(texts)))


def _sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
