"""Converts the record of an investigation to a trace that W&B shows: the conversation of the agent, span by span."""

from wandb.sdk.data_types.trace_tree import Span, SpanKind, StatusCode, WBTraceTree

from openmaia.core.text import printable
from openmaia.runs.records import Record, ToolCall, Turn

TEXT_CHARACTERS = 4_000
"""Longer texts are cut in the trace, because W&B stores it in one row of its history. The record has the whole text."""


def conversation(record: Record) -> WBTraceTree:
    """Returns the conversation of an investigation as a trace (`WBTraceTree`) for W&B.

    The spans of turns follow each other from the start of the investigation. A turn consists of a reply and, if the
    reply has code, of an experiment with its calls of tools. In place of images, the text "[image]" is shown.
    """
    start = _milliseconds(record.started)
    end = start + sum(_milliseconds(turn.seconds) for turn in record.turns)
    root = Span(name=_text(str(record.unit)), span_kind=SpanKind.AGENT, start_time_ms=start, end_time_ms=end)
    root.add_attribute("stop", record.stop.value)
    root.add_named_result(
        {"backbone": _text(record.backbone)},
        {"description": _text(record.description), "labels": _text("; ".join(record.labels))},
    )
    for turn in record.turns:
        root.add_child_span(_turn(turn, start))
        start += _milliseconds(turn.seconds)
    return WBTraceTree(root)


def _turn(turn: Turn, start: int) -> Span:
    middle, end = start + _milliseconds(turn.backbone_seconds), start + _milliseconds(turn.seconds)
    span = Span(name=f"turn {turn.index}", span_kind=SpanKind.CHAIN, start_time_ms=start, end_time_ms=end)
    reply = Span(name="reply", span_kind=SpanKind.LLM, start_time_ms=start, end_time_ms=middle)
    reply.attributes = {
        "prompt_tokens": turn.prompt_tokens,
        "cached_tokens": turn.cached_tokens,
        "generated_tokens": turn.generated_tokens,
    }
    reply.add_named_result({}, {"reply": _text(turn.reply)})
    span.add_child_span(reply)
    if turn.code:
        seen = "".join(part if isinstance(part, str) else "[image]" for part in turn.observation)
        experiment = Span(name="experiment", span_kind=SpanKind.TOOL, start_time_ms=middle, end_time_ms=end)
        experiment.status_code = StatusCode.SUCCESS if turn.status == "ok" else StatusCode.ERROR
        experiment.status_message = turn.status
        experiment.add_named_result({"code": _text(turn.code)}, {"observation": _text(seen)})
        for call in turn.calls:
            experiment.add_child_span(_call(call, middle))
            middle += _milliseconds(call.seconds)
        span.add_child_span(experiment)
    return span


def _call(call: ToolCall, start: int) -> Span:
    end = start + _milliseconds(call.seconds)
    span = Span(name=_text(call.name), span_kind=SpanKind.TOOL, start_time_ms=start, end_time_ms=end)
    span.status_code = StatusCode.ERROR if call.error else StatusCode.SUCCESS
    span.add_named_result(
        {"arguments": _text(call.arguments)}, {"result": _text(call.result or ""), "error": _text(call.error or "")}
    )
    return span


def _text(value: str) -> str:
    text = printable(value, keep="\n", replacement="\ufffd")
    return text if len(text) <= TEXT_CHARACTERS else f"{text[:TEXT_CHARACTERS]}… ({len(text)} characters)"


def _milliseconds(seconds: float) -> int:
    return round(seconds * 1000)
