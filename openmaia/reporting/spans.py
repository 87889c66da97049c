"""Writes investigations as spans of OpenTelemetry, by the GenAI semantic conventions (development status, November 2026).

The spans are the parts of the timeline (`openmaia.reporting.trace`, which says how exact their times are): `invoke_agent` for
an investigation, in it `chat` for each reply and `execute_tool` for each experiment, in that `execute_tool` for each call of a tool.
They hold names, times, numbers and tokens: no prompt, reply, code, label, image, or message of an error.
"""

import base64
import hashlib
import json
import os
from collections.abc import Callable, Sequence
from importlib.metadata import version
from typing import Any, BinaryIO

from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.sdk.trace.sampling import ALWAYS_ON
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, Tracer, set_span_in_context

from openmaia.core.errors import OpenMaiaError, UsageError
from openmaia.reporting.trace import PartKind, TimelinePart, timeline
from openmaia.runs.records import ExperimentStatus, Record
from openmaia.runs.run import Run

_NANOSECONDS = 1000
"""In a microsecond."""

_FINE = (ExperimentStatus.NONE, ExperimentStatus.OK, ExperimentStatus.LOST)

Deliver = Callable[[Sequence[ReadableSpan]], None]
"""Takes the finished spans of one investigation."""


def write_spans(run: Run, deliver: Deliver) -> int:
    """Delivers the spans of each investigation, and returns their number. One record is in memory at a time."""
    if os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        raise UsageError("OTEL_SDK_DISABLED=true leaves no spans to write; unset it for this command")
    ids, finished = _Ids(), InMemorySpanExporter()
    # Sampling by the environment would drop what the user asks to write.
    provider = TracerProvider(
        sampler=ALWAYS_ON,
        resource=Resource.create({"service.name": "openmaia", "service.version": version("openmaia")}),
        id_generator=ids,
        shutdown_on_exit=False,
    )
    provider.add_span_processor(SimpleSpanProcessor(finished))
    tracer, name, count = provider.get_tracer("openmaia"), run.files.root.rstrip("/").rpartition("/")[2], 0
    for record in run.records():
        ids.begin(f"{name} {record.unit} {record.replicate} {record.started}")
        _add(tracer, record, name)
        deliver(finished.get_finished_spans())
        finished.clear()
        count += 1
    return count


def to_file(stream: BinaryIO) -> Deliver:
    """Returns what writes spans as OTLP JSON, one line for each investigation, as OpenTelemetry collectors read files."""

    def deliver(spans: Sequence[ReadableSpan]) -> None:
        from google.protobuf.json_format import MessageToDict

        message: Any = MessageToDict(encode_spans(spans), use_integers_for_enums=True)
        # The JSON of OTLP has identifiers in hexadecimal, other than that of Protocol Buffers.
        for span in (
            each for one in message["resourceSpans"] for scope in one["scopeSpans"] for each in scope["spans"]
        ):
            for key in {"traceId", "spanId", "parentSpanId"} & span.keys():
                span[key] = base64.b64decode(span[key]).hex()
        stream.write(json.dumps(message).encode() + b"\n")

    return deliver


def to_server(url: str) -> Deliver:
    """Returns what sends spans to the OTLP receiver at a URL, such as `http://localhost:4318/v1/traces`.

    The environment gives headers, certificates and the timeout (`OTEL_EXPORTER_OTLP_HEADERS` and others).

    Raises:
        OpenMaiaError: When called: the server does not take them.
    """
    exporter = OTLPSpanExporter(endpoint=url)

    def deliver(spans: Sequence[ReadableSpan]) -> None:
        if exporter.export(spans) is not SpanExportResult.SUCCESS:
            raise OpenMaiaError("the server did not take the spans; is it an OTLP receiver (http, …/v1/traces)?")

    return deliver


class _Ids(IdGenerator):
    """Makes the same identifiers for the same investigation, so that what is sent twice does not count twice."""

    def begin(self, investigation: str) -> None:
        self._investigation, self._spans = investigation, 0

    def generate_trace_id(self) -> int:
        return self._digest("trace", 16)

    def generate_span_id(self) -> int:
        self._spans += 1
        return self._digest(str(self._spans), 8)

    def _digest(self, part: str, size: int) -> int:
        # 0 is no identifier.
        return int.from_bytes(hashlib.sha256(f"{self._investigation} {part}".encode()).digest()[:size], "big") or 1


def _add(tracer: Tracer, record: Record, run: str) -> None:
    parts = list(timeline(record))
    start = parts[0].start if parts else round(record.started * 1e6)
    end = max((each.start + each.duration for each in parts), default=start)
    shared = _shared(record)
    whole = tracer.start_span(
        f"invoke_agent {record.task}",
        kind=SpanKind.INTERNAL,
        start_time=start * _NANOSECONDS,
        attributes=shared
        | {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.agent.name": record.task,
            "openmaia.run": run,
            "openmaia.stop": record.stop.value,
            "openmaia.turns": len(record.turns),
        }
        | _usage(record),
    )
    experiment = whole
    for each in parts:
        if each.kind is PartKind.TURN:
            continue
        span = _start(tracer, each, experiment if each.kind is PartKind.CALL else whole, shared)
        span.end((each.start + each.duration) * _NANOSECONDS)
        experiment = span if each.kind is PartKind.EXPERIMENT else experiment
    whole.end(end * _NANOSECONDS)


def _start(tracer: Tracer, one: TimelinePart, parent: Span, shared: dict[str, Any]) -> Span:
    is_reply = one.kind is PartKind.REPLY
    tool = "experiment" if one.call is None else one.call.name
    own = (
        {"gen_ai.operation.name": "chat", **_usage(one)}
        if is_reply
        else {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": tool, "gen_ai.tool.type": "function"}
    )
    if one.call is not None:
        own |= {"gen_ai.tool.call.id": f"{one.turn.index}.{one.call.ordinal}"}
    span = tracer.start_span(
        f"chat {shared['gen_ai.request.model']}" if is_reply else f"execute_tool {tool}",
        context=set_span_in_context(parent),
        kind=SpanKind.CLIENT if is_reply else SpanKind.INTERNAL,
        start_time=one.start * _NANOSECONDS,
        attributes=shared | own | {"openmaia.turn": one.turn.index},
    )
    if error := _error(one):
        span.set_attribute("error.type", error)
        span.set_status(Status(StatusCode.ERROR))
    return span


def _shared(record: Record) -> dict[str, Any]:
    return {
        "gen_ai.provider.name": str(record.config.get("backbone", {}).get("kind", "")) or record.backbone,
        "gen_ai.request.model": record.backbone,
        "gen_ai.conversation.id": f"{record.unit} {record.replicate}",
    }


def _usage(one: Record | TimelinePart) -> dict[str, int]:
    turns = one.turns if isinstance(one, Record) else (one.turn,)
    return {
        "gen_ai.usage.input_tokens": sum(turn.prompt_tokens for turn in turns),
        "gen_ai.usage.output_tokens": sum(turn.generated_tokens for turn in turns),
        "gen_ai.usage.cache_read.input_tokens": sum(turn.cached_tokens for turn in turns),
    }


def _error(one: TimelinePart) -> str:
    """Returns what kind of error ended a part; empty if none did. Its message may hold what the agent wrote."""
    if one.call is not None:
        return "tool_error" if one.call.error is not None else ""
    is_failed = one.kind is PartKind.EXPERIMENT and one.turn.status not in _FINE
    return one.turn.status.value if is_failed else ""
