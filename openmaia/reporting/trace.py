"""Writes the timeline of a run for Perfetto and Chrome: replies, experiments, calls of tools, and waits for services.

A record holds the time at which its investigation started (its last attempt, if it was resumed) and the durations of
its turns and calls. Turns are therefore drawn back to back from that time. The calls of tools are drawn back to back
from the start of their experiment. The remaining time of the experiment is that of the agent's own code, which in fact
ran between the calls. The test of the labels after the answer has no duration in the record and is not drawn.
"""

import json
from collections.abc import Iterator
from typing import Any, BinaryIO

from openmaia.core.services import ServiceUsage
from openmaia.runs.records import Record, ToolCall, Turn
from openmaia.runs.run import Run

TraceEvent = dict[str, Any]
"""An event of the Trace Event Format: `ph` is `X` for a slice and `M` for a name; `ts` and `dur` are microseconds."""


def write_trace(run: Run, stream: BinaryIO) -> int:
    """Writes the timeline of a run as JSON for Perfetto and Chrome. Only one record is in memory at a time.

    Returns:
        The number of investigations in the timeline.
    """
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
    yield from record_events(record, processes[layer], 2 * number - 1)


def record_events(record: Record, process: int, thread: int) -> Iterator[TraceEvent]:
    """Yields the timeline events of one investigation on two threads: its work, and its waiting times for services.

    Threads and processes are rows of the timeline, not those of the operating system.

    Args:
        record: The record of the investigation.
        process: The number of the process. All investigations of a layer have the same one.
        thread: The number of the first of the two threads.
    """
    number = f"{record.unit.index}" + (f" #{record.replicate}" if record.replicate else "")
    yield _name("thread_name", number, process, thread)
    yield _name("thread_name", f"{number}: waits", process, thread + 1)
    start = _microseconds(record.started)
    for turn in record.turns:
        reply, experiment = _microseconds(turn.backbone_seconds), _microseconds(turn.experiment_seconds)
        told = {"status": turn.status, "prompt_tokens": turn.prompt_tokens, "generated_tokens": turn.generated_tokens}
        yield _slice(f"turn {turn.index}", process, thread, start, reply + experiment, told)
        yield _slice("reply", process, thread, start, reply)
        if experiment:
            yield _slice("experiment", process, thread, start + reply, experiment)
            for begun, duration, call in _call_times(turn, start + reply, experiment):
                yield _slice(call.name, process, thread, begun, duration, {"error": call.error} if call.error else {})
        yield from _waits(turn, process, thread + 1, start, reply)
        start += reply + experiment


def _call_times(turn: Turn, start: int, experiment: int) -> Iterator[tuple[int, int, ToolCall]]:
    """Yields the calls of tools of a turn, back to back, each with its start and duration in microseconds.

    Args:
        turn: The turn.
        start: Start of the experiment, in microseconds.
        experiment: Duration of the experiment, in microseconds, at whose end the calls are cut off.
    """
    end = start + experiment
    for call in turn.calls:
        duration = min(_microseconds(call.seconds), end - start)
        yield start, duration, call
        start += duration


def _waits(turn: Turn, process: int, thread: int, start: int, reply: int) -> Iterator[TraceEvent]:
    """Yields slices for the waiting times of a turn: durations of its reply and calls minus the replica time they used.

    Waiting times consist of time in queues, time in which the replica worked on other requests of the batch, and
    transport. If the experiment also called the backbone, the replica time of these calls cannot be separated from that
    of the reply, and there is one slice for both. A turn without recorded replica time, as in a notebook, has no slice.

    Args:
        turn: The turn.
        process: The number of the process in the timeline.
        thread: The number of the thread that shows the waits.
        start: Start of the turn, in microseconds.
        reply: Duration of the reply, in microseconds.
    """
    calls = sum(duration for _, duration, _ in _call_times(turn, 0, _microseconds(turn.experiment_seconds)))
    backbone = turn.spent.get("backbone", ServiceUsage())
    served = _microseconds(backbone.seconds)
    others = sum(_microseconds(usage.seconds) for service, usage in turn.spent.items() if service != "backbone")
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
