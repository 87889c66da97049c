"""Writes the timeline of a run for Perfetto and Chrome: replies, experiments, calls of tools, and waits for services.

A record holds the time at which its investigation started (its last attempt, if it was resumed) and the durations of
its turns and calls. Turns are therefore drawn back to back from that time. The calls of tools are drawn back to back
from the start of their experiment. The remaining time of the experiment is that of the agent's own code, which in fact
ran between the calls. The test of the labels after the answer has no duration in the record and is not drawn.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any, BinaryIO

from openmaia.core.services import ServiceUsage
from openmaia.runs.records import Record, ToolCall, Turn
from openmaia.runs.run import Run

TraceEvent = dict[str, Any]
"""An event of the Trace Event Format: `ph` is `X` for a slice and `M` for a name; `ts` and `dur` are microseconds."""


class PartKind(Enum):
    """What a part of an investigation is."""

    TURN = "turn"
    REPLY = "reply"
    EXPERIMENT = "experiment"
    CALL = "call"


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelinePart:
    """A part of an investigation. Times are microseconds, `start` since 1970."""

    kind: PartKind
    name: str
    start: int
    duration: int
    turn: Turn
    call: ToolCall | None = None
    """For a part of the kind CALL."""


def write_trace(run: Run, stream: BinaryIO) -> int:
    """Writes the timeline as JSON, and returns the number of investigations in it. One record is in memory at a time."""
    separator = b'{"displayTimeUnit":"ms","traceEvents":['
    processes: dict[str, int] = {}
    count = 0
    for count, record in enumerate(run.records(), start=1):
        for event in _events(record, count, processes):
            stream.write(separator + b"\n" + json.dumps(event, ensure_ascii=False).encode())
            separator = b","
    stream.write(b"\n]}\n" if count else separator + b"]}\n")
    return count


def _events(record: Record, number: int, processes: dict[str, int]) -> Iterator[TraceEvent]:
    layer = f"{record.unit.target}/{record.unit.layer}"
    if layer not in processes:
        processes[layer] = len(processes) + 1
        yield _name("process_name", layer, processes[layer], 0)
    yield from make_events(record, processes[layer], 2 * number - 1)


def make_events(record: Record, process: int, thread: int) -> Iterator[TraceEvent]:
    """Yields the events of one investigation on two threads from number `thread`: its work, and its waits for services.

    Threads and processes are rows of the timeline, not those of the operating system.
    """
    number = f"{record.unit.index}" + (f" #{record.replicate}" if record.replicate else "")
    yield _name("thread_name", number, process, thread)
    yield _name("thread_name", f"{number}: waits", process, thread + 1)
    for each in timeline(record):
        yield _slice(each.name, process, thread, each.start, each.duration, _told(each))
        if each.kind is PartKind.TURN:
            yield from _waits(each.turn, process, thread + 1, each.start, _microseconds(each.turn.backbone_seconds))


def _told(one: TimelinePart) -> Any:
    turn = one.turn
    if one.kind is PartKind.TURN:
        return {"status": turn.status, "prompt_tokens": turn.prompt_tokens, "generated_tokens": turn.generated_tokens}
    return {"error": one.call.error} if one.call is not None and one.call.error else None


def timeline(record: Record) -> Iterator[TimelinePart]:
    """Yields the turns of an investigation, each before its parts: the reply, the experiment, and the experiment's calls."""
    start = _microseconds(record.started)
    for turn in record.turns:
        reply, experiment = _microseconds(turn.backbone_seconds), _microseconds(turn.experiment_seconds)
        begun = start + reply
        yield TimelinePart(
            kind=PartKind.TURN, name=f"turn {turn.index}", start=start, duration=reply + experiment, turn=turn
        )
        yield TimelinePart(kind=PartKind.REPLY, name="reply", start=start, duration=reply, turn=turn)
        if experiment:
            yield TimelinePart(kind=PartKind.EXPERIMENT, name="experiment", start=begun, duration=experiment, turn=turn)
            for at, duration, call in _call_times(turn, begun, experiment):
                yield TimelinePart(
                    kind=PartKind.CALL, name=call.name, start=at, duration=duration, turn=turn, call=call
                )
        start += reply + experiment


def _call_times(turn: Turn, start: int, experiment: int) -> Iterator[tuple[int, int, ToolCall]]:
    """Yields calls of tools back to back, each with start and duration in microseconds, cut off at the end of the
    experiment."""
    end = start + experiment
    for call in turn.calls:
        duration = min(_microseconds(call.seconds), end - start)
        yield start, duration, call
        start += duration


def _waits(turn: Turn, process: int, thread: int, start: int, reply: int) -> Iterator[TraceEvent]:
    """Yields slices for durations of a turn's reply and calls minus the replica time that they used.

    They consist of time in queues, time in which the replica worked on other requests of the batch, and transport. A
    turn without recorded replica time, as in a notebook, has no slice.
    """
    calls = sum(duration for _, duration, _ in _call_times(turn, 0, _microseconds(turn.experiment_seconds)))
    backbone = turn.spent.get("backbone", ServiceUsage())
    served = _microseconds(backbone.seconds)
    others = sum(_microseconds(usage.seconds) for service, usage in turn.spent.items() if service != "backbone")
    # If the experiment also called the backbone, the replica time of these calls cannot be told from that of the reply.
    if backbone.requests > 1:
        waits = [("wait of reply and calls", start, reply + calls - served - others)]
    else:
        waits = [("wait for the reply", start, reply - served), ("wait of the calls", start + reply, calls - others)]
    told = {f"{service}_seconds": round(usage.seconds, 6) for service, usage in turn.spent.items()}
    for name, begun, duration in waits:
        if told and duration > 0:
            yield _slice(name, process, thread, begun, duration, told)


def _slice(name: str, process: int, thread: int, start: int, duration: int, told: Any = None) -> TraceEvent:
    event: TraceEvent = {"name": name, "ph": "X", "pid": process, "tid": thread, "ts": start, "dur": duration}
    return event | ({"args": told} if told else {})


def _name(kind: str, name: str, process: int, thread: int) -> TraceEvent:
    return {"name": kind, "ph": "M", "pid": process, "tid": thread, "args": {"name": name}}


def _microseconds(seconds: float) -> int:
    return round(seconds * 1_000_000)
