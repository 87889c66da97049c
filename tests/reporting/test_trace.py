"""The timeline of a run: slices nest and add up to what the records say."""

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from openmaia.assembly import ConfigAssembly
from openmaia.config.loading import load
from openmaia.core.services import ServiceUsage
from openmaia.distributed.sweep import UNTESTED, run_sweep
from openmaia.reporting.trace import make_events
from openmaia.runs.records import Record
from openmaia.runs.run import Run
from tests.helpers import samples, sweeping
from tests.helpers.commands import output

pytestmark = pytest.mark.slow

MICROSECOND = 1e-6


class Quiet:
    def say(self, line: str) -> None: ...

    def progress(self, stage: str, done: int, total: int, note: str = "") -> None: ...


@pytest.fixture(scope="module")
def run(ray_cluster: None, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A sweep of four units of two layers on Ray."""
    sources = sweeping.sources(tmp_path_factory.mktemp("traced"))
    config = load([*sources, "name=traced", "units=mono=0-2:or=1", "ray.investigations=4"])
    return run_sweep(config, ConfigAssembly(), Quiet(), UNTESTED).run


@pytest.fixture(scope="module")
def events(run: Run) -> list[dict[str, Any]]:
    """What the command writes."""
    out = f"{run.files.root}/timeline.json"
    assert output("export", "trace", run.files.root, "--to", out) == f"trace of 4 investigations: {out}\n"
    return json.loads(Path(out).read_text())["traceEvents"]


def names(events: list[dict[str, Any]], kind: str) -> list[str]:
    return [event["args"]["name"] for event in events if event["name"] == kind]


def slices(events: list[dict[str, Any]]) -> dict[tuple[int, int], list[dict[str, Any]]]:
    """Slices by process and thread."""
    found: defaultdict[tuple[int, int], list[dict[str, Any]]] = defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            found[event["pid"], event["tid"]].append(event)
    return found


def of_records(
    events: list[dict[str, Any]], run: Run
) -> list[tuple[Record, list[dict[str, Any]], list[dict[str, Any]]]]:
    """Each record with the slices of its thread and those of its waits."""
    found = slices(events)
    threads = sorted({thread - (thread + 1) % 2 for _, thread in found})
    by_thread = {thread: each for (_, thread), each in found.items()}
    pairs = [(by_thread[thread], by_thread.get(thread + 1, [])) for thread in threads]
    return [(run.record(done), *pair) for done, pair in zip(sorted(run.done()), pairs, strict=True)]


def test_layer_is_a_process_and_investigation_a_thread(events: list[dict[str, Any]]):
    assert names(events, "process_name") == ["closed_form/mono", "closed_form/or"]
    assert names(events, "thread_name") == [each for n in ("0", "1", "2", "1") for each in (n, f"{n}: waits")]
    assert {process for process, _ in slices(events)} == {1, 2}


def test_slices_of_a_thread_nest(events: list[dict[str, Any]]):
    for thread in slices(events).values():
        ends: list[int] = []
        for event in sorted(thread, key=lambda each: (each["ts"], -each["dur"])):
            start, end = event["ts"], event["ts"] + event["dur"]
            while ends and ends[-1] <= start:
                ends.pop()
            assert not ends or end <= ends[-1], event
            ends.append(end)


def test_durations_are_those_of_the_record(events: list[dict[str, Any]], run: Run):
    for record, thread, _ in of_records(events, run):
        seconds = {
            name: sum(each["dur"] for each in thread if each["name"] == name) * MICROSECOND
            for name in ("reply", "experiment", *record.tool_calls)
        }
        close = 10 * MICROSECOND
        assert seconds["reply"] == pytest.approx(sum(turn.backbone_seconds for turn in record.turns), abs=close)
        assert seconds["experiment"] == pytest.approx(sum(turn.experiment_seconds for turn in record.turns), abs=close)
        assert set(record.tool_calls) >= {"dataset_exemplars", "text2image", "call_neuron"}
        for name in record.tool_calls:
            calls = [call.seconds for turn in record.turns for call in turn.calls if call.name == name]
            assert seconds[name] == pytest.approx(sum(calls), abs=close)
        assert min(each["ts"] for each in thread) * MICROSECOND == pytest.approx(record.started, abs=close)
        length = (thread[-1]["ts"] + thread[-1]["dur"]) * MICROSECOND - record.started
        assert length == pytest.approx(record.seconds, abs=close)


def test_waits_and_replica_time_add_up(events: list[dict[str, Any]], run: Run):
    for record, _, waits in of_records(events, run):
        assert {each["name"] for each in waits} == {"wait for the reply", "wait of the calls"}
        waited = sum(each["dur"] for each in waits) * MICROSECOND
        served = sum(usage.seconds for usage in record.spent.values())
        asked = record.seconds - sum(t.experiment_seconds - sum(c.seconds for c in t.calls) for t in record.turns)
        assert waited + served == pytest.approx(asked, abs=1e-4)


def test_waits_of_a_known_turn():
    """A reply of 1.5 s of which 1.25 s were served, and calls of 0.5 s of which 0.125 s were served."""
    spent = {"backbone": ServiceUsage(requests=1, seconds=1.25), "target": ServiceUsage(requests=4, seconds=0.125)}
    turn = samples.turn(backbone_seconds=1.5, experiment_seconds=1.0, spent=spent)
    record = samples.record(turns=(turn,))
    calls = sum(call.seconds for call in turn.calls)
    waits = {
        each["name"]: each["dur"] * MICROSECOND
        for each in make_events(record, 1, 1)
        if each["tid"] == 2 and each["ph"] == "X"
    }
    assert waits == pytest.approx({"wait for the reply": 0.25, "wait of the calls": calls - 0.125})


def test_experiment_that_asks_the_backbone_has_one_wait():
    spent = {"backbone": ServiceUsage(requests=2, seconds=1.25)}
    record = samples.record(turns=(samples.turn(backbone_seconds=1.5, experiment_seconds=1.0, spent=spent),))
    waits = [each for each in make_events(record, 1, 1) if each["tid"] == 2 and each["ph"] == "X"]
    assert [each["name"] for each in waits] == ["wait of reply and calls"]


def test_run_without_records_has_an_empty_trace(tmp_path: Path):
    made = Run.create(load(["name=x", "units=all", "target.name=net", f"paths.runs={tmp_path}"]))
    output("export", "trace", made.files.root)
    assert json.loads((tmp_path / "x/trace.json").read_text())["traceEvents"] == []
