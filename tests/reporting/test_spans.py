"""Spans of OpenTelemetry: the investigations of a run, read back from the file and by a receiver."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from openmaia.config.loading import load
from openmaia.core.errors import OpenMaiaError
from openmaia.runs.records import ExperimentStatus
from openmaia.runs.run import Run
from tests.helpers import samples
from tests.helpers.commands import output, refused
from tests.helpers.http import QuietHandler, serving

pytest.importorskip("opentelemetry.exporter.otlp.proto.http", reason='needs pip install "openmaia[otel]"')

SECRET = ("☃", "wug", "dogs", "grass", "an empty list", "tools.display", "a dog")
"""What the sample record says, draws and fails with."""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run with one record of two turns, the second of which failed."""
    made = Run.create(
        load(["name=one", "target.name=net", "units=all", f"paths.runs={tmp_path_factory.mktemp('runs')}"])
    )
    turns = (samples.turn(), samples.turn(1, status=ExperimentStatus.TIMEOUT))
    made.publish(samples.record(turns=turns, config={"backbone": {"kind": "vllm"}}))
    return made


@pytest.fixture(scope="module")
def written(run: Run) -> str:
    """The file that the command writes."""
    path = f"{run.files.root}/spans.jsonl"
    assert output("export", "otel", run.files.root, "--to", path) == f"spans of 1 investigations: {path}\n"
    return Path(path).read_text()


@pytest.fixture(scope="module")
def spans(written: str) -> list[dict[str, Any]]:
    [resource] = [one for line in written.splitlines() for one in json.loads(line)["resourceSpans"]]
    return resource["scopeSpans"][0]["spans"]


def values(span: dict[str, Any]) -> dict[str, Any]:
    found = {each["key"]: next(iter(each["value"].items())) for each in span["attributes"]}
    return {key: int(value) if kind == "intValue" else value for key, (kind, value) in found.items()}


def named(spans: list[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    return sorted((each for each in spans if each["name"] == name), key=lambda each: int(each["startTimeUnixNano"]))


def seconds(span: dict[str, Any]) -> float:
    return (int(span["endTimeUnixNano"]) - int(span["startTimeUnixNano"])) / 1e9


def test_an_investigation_is_a_tree_of_its_replies_and_tools(run: Run, spans: list[dict[str, Any]]):
    [record] = run.records()
    [whole] = named(spans, f"invoke_agent {record.task}")
    replies, experiments = named(spans, f"chat {record.backbone}"), named(spans, "execute_tool experiment")
    assert "parentSpanId" not in whole and {each["traceId"] for each in spans} == {whole["traceId"]}
    assert [each["parentSpanId"] for each in (*replies, *experiments)] == [whole["spanId"]] * 4
    for tool in ("call_neuron", "text2image"):
        assert [each["parentSpanId"] for each in named(spans, f"execute_tool {tool}")] == [
            e["spanId"] for e in experiments
        ]
    assert len(spans) == 1 + 2 + 2 + 4


def test_attributes_have_the_names_of_the_conventions(run: Run, spans: list[dict[str, Any]]):
    from opentelemetry.semconv._incubating.attributes import error_attributes, gen_ai_attributes

    known = {
        value
        for module in (error_attributes, gen_ai_attributes)
        for value in vars(module).values()
        if isinstance(value, str)
    }
    used = {key for each in spans for key in values(each)}
    assert {key for key in used if not key.startswith("openmaia.")} <= known
    [record] = run.records()
    reply = values(named(spans, f"chat {record.backbone}")[0])
    assert reply["gen_ai.operation.name"] == "chat" and reply["gen_ai.provider.name"] == "vllm"
    assert (reply["gen_ai.usage.input_tokens"], reply["gen_ai.usage.output_tokens"]) == (100, 20)
    assert reply["gen_ai.usage.cache_read.input_tokens"] == 10
    assert reply["gen_ai.conversation.id"] == f"{record.unit} {record.replicate}"


def test_times_are_those_of_the_record(run: Run, spans: list[dict[str, Any]]):
    [record] = run.records()
    [whole] = named(spans, f"invoke_agent {record.task}")
    assert int(whole["startTimeUnixNano"]) / 1e9 == pytest.approx(record.started, abs=1e-5)
    assert seconds(whole) == pytest.approx(record.seconds, abs=1e-5)
    replies = [seconds(each) for each in named(spans, f"chat {record.backbone}")]
    assert replies == pytest.approx([turn.backbone_seconds for turn in record.turns], abs=1e-5)


def test_failures_are_errors_of_a_kind(spans: list[dict[str, Any]]):
    fine, failed = named(spans, "execute_tool experiment")
    assert "error.type" not in values(fine) and "code" not in fine.get("status", {})
    assert values(failed)["error.type"] == "timeout" and failed["status"]["code"] == 2
    assert values(named(spans, "execute_tool text2image")[0])["error.type"] == "tool_error"


def test_nothing_that_was_said_or_drawn_is_in_the_spans(run: Run, written: str):
    [record] = run.records()
    told = [*SECRET, *record.prompts, *record.labels, record.description, record.turns[0].reply]
    assert [each for each in told if each and (each in written or json.dumps(each)[1:-1] in written)] == []


def test_the_same_run_has_the_same_identifiers(run: Run, spans: list[dict[str, Any]]):
    output("export", "otel", run.files.root)
    [line] = Path(f"{run.files.root}/otel.jsonl").read_text().splitlines()
    again = json.loads(line)["resourceSpans"][0]["scopeSpans"][0]["spans"]
    assert [each["spanId"] for each in again] == [each["spanId"] for each in spans]
    assert len({each["spanId"] for each in spans}) == len(spans)


@contextmanager
def receiving(status: int, bodies: list[bytes]) -> Iterator[str]:
    """Keeps what is sent to an OTLP receiver, and yields its URL."""

    class Handler(QuietHandler):
        def do_POST(self) -> None:
            bodies.append(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(status)
            self.end_headers()

    with serving(Handler) as address:
        yield f"{address}/v1/traces"


def test_a_receiver_gets_the_spans(run: Run, spans: list[dict[str, Any]]):
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    bodies: list[bytes] = []
    with receiving(200, bodies) as url:
        assert output("export", "otel", run.files.root, "--to", url) == "spans of 1 investigations were sent\n"
    [resource] = ExportTraceServiceRequest.FromString(bodies[0]).resource_spans
    assert [each.span_id.hex() for each in resource.scope_spans[0].spans] == [each["spanId"] for each in spans]
    assert len(bodies) == 1


@pytest.mark.parametrize("to", ["localhost:4318/v1/traces", "grpc://localhost:4317", "HTTP:/localhost"])
def test_what_is_no_address_of_a_receiver_is_no_file(run: Run, to: str):
    assert "write http://HOST:4318/v1/traces" in refused("export", "otel", run.files.root, "--to", to)


def test_a_receiver_that_refuses_is_an_error(run: Run):
    from openmaia.reporting.spans import to_server, write_spans

    with receiving(400, []) as url, pytest.raises(OpenMaiaError, match="did not take the spans"):
        write_spans(run, to_server(url))
