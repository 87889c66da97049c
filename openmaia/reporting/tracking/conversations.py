"""Converts the record of an investigation to a trace that W&B shows: the conversation of the agent, span by span."""

from wandb.sdk.data_types.trace_tree import Span, SpanKind, StatusCode, WBTraceTree

from openmaia.core.text import printable
from openmaia.reporting.trace import call_times, microseconds
from openmaia.runs.records import Record, Turn

TEXT_CHARACTERS = 4_000
"""Longer texts are cut in the trace, because W&B stores it in one row of its history. The record has the whole text."""


def conversation(record: Record) -> WBTraceTree:
    """Returns the conversation of an investigation as a trace (`WBTraceTree`) for W&B.

    The spans of turns follow each other from the start of the investigation. A turn consists of a reply and, if the
    reply has code, of an experiment with its calls of tools. In place of images, the text "[image]" is shown.
    """
    start = microseconds(record.started)
    root = _span(str(record.unit), SpanKind.AGENT, start, sum(microseconds(turn.seconds) for turn in record.turns))
    root.add_attribute("stop", record.stop.value)
    root.add_named_result(
        {"backbone": _text(record.backbone)},
        {"description": _text(record.description), "labels": _text("; ".join(record.labels))},
    )
    for turn in record.turns:
        root.add_child_span(_turn(turn, start))
        start += microseconds(turn.seconds)
    return WBTraceTree(root)


def _turn(turn: Turn, start: int) -> Span:
    talking, working = microseconds(turn.backbone_seconds), microseconds(turn.experiment_seconds)
    span = _span(f"turn {turn.index}", SpanKind.CHAIN, start, talking + working)
    reply = _span("reply", SpanKind.LLM, start, talking)
    reply.attributes = {
        "prompt_tokens": turn.prompt_tokens,
        "cached_tokens": turn.cached_tokens,
        "generated_tokens": turn.generated_tokens,
    }
    reply.add_named_result({}, {"reply": _text(turn.reply), "reasoning": _text(turn.reasoning)})
    span.add_child_span(reply)
    if turn.code:
        span.add_child_span(_experiment(turn, start + talking, working))
    return span


def _experiment(turn: Turn, start: int, duration: int) -> Span:
    seen = "".join(part if isinstance(part, str) else "[image]" for part in turn.observation)
    span = _span("experiment", SpanKind.TOOL, start, duration)
    span.status_code = StatusCode.SUCCESS if turn.status == "ok" else StatusCode.ERROR
    span.status_message = turn.status
    span.add_named_result({"code": _text(turn.code)}, {"observation": _text(seen)})
    for begun, lasted, call in call_times(turn, start, duration):
        child = _span(call.name, SpanKind.TOOL, begun, lasted)
        child.status_code = StatusCode.ERROR if call.error else StatusCode.SUCCESS
        child.add_named_result(
            {"arguments": _text(call.arguments)}, {"result": _text(call.result or ""), "error": _text(call.error or "")}
        )
        span.add_child_span(child)
    return span


def _span(name: str, kind: SpanKind, start: int, duration: int) -> Span:
    """Returns a span. `start` and `duration` are in microseconds."""
    end = start + duration
    return Span(name=_text(name), span_kind=kind, start_time_ms=start // 1000, end_time_ms=end // 1000)


def _text(value: str) -> str:
    text = printable(value, keep="\n", replacement="\ufffd")
    return text if len(text) <= TEXT_CHARACTERS else f"{text[:TEXT_CHARACTERS]}… ({len(text)} characters)"
