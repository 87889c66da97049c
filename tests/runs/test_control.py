"""Orders to the driver of a run: who may give which, what they do to its files, and what others put in their place."""

import json
import signal
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from openmaia.cli.main import app
from openmaia.config.loading import load
from openmaia.runs import control
from openmaia.runs.aside import set_aside
from openmaia.runs.control import obeyed, read_orders, take_retries
from openmaia.runs.ids import InvestigationId
from openmaia.runs.lease import held
from openmaia.runs.progress import ProgressFile
from openmaia.runs.run import EVALUATION, Run
from openmaia.runs.state import counts, state
from tests.helpers.commands import output, refused
from tests.helpers.hostile import MEGABYTE, TEXTS
from tests.helpers.samples import UNIT, record, store_evaluation, turn
from tests.reporting.making import evaluation

PLAN = [InvestigationId(unit=replace(UNIT, index=index), replicate=0) for index in (7, 3, 10)]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Of three units, one finished and tested, one failed after a turn, one not begun."""
    made = Run.create(load(["name=demo", "units=all", "target.name=net", f"paths.runs={tmp_path}"]))
    made.set_plan([each.unit for each in PLAN], 1)
    made.publish(record(PLAN[0].unit))
    store_evaluation(made, PLAN[0], evaluation(PLAN[0].unit))
    made.journal(PLAN[1]).append(turn(0))
    made.fail(PLAN[1], "ServiceError: no room")
    return made


def said(run: Run, *arguments: str) -> str:
    return output("ctl", run.files.root, *arguments)


@pytest.mark.parametrize("action", ["pause", "resume", "stop"])
def test_order_without_a_driver_is_refused_with_what_to_do(run: Run, action: str):
    message = refused("ctl", run.files.root, action)
    assert "no command executes" in message and "`openmaia run`" in message and "\n" not in message
    assert read_orders(run) == control.RunOrders()


def test_command_says_what_it_ordered_and_the_state_says_since_when_and_by_whom(run: Run):
    with held(run.investigations):
        before = time.time()
        assert "no other begins" in said(run, "pause")
        paused = read_orders(run).pause
        assert paused is not None and before - 1 <= paused.time <= time.time() + 1
        said(run, "pause")
        assert read_orders(run).pause == paused, "a second order keeps the begin"
        assert counts(run).text.endswith(f"paused since {paused.words}")
        assert state(run)["paused"] == {"since": paused.time, "by": paused.by}
        assert paused.words in " ".join(output("show", run.files.root).split())
        assert "goes on" in said(run, "resume")
        assert "paused" not in counts(run).text
        assert "is not paused" in refused("ctl", run.files.root, "resume")
    assert state(run)["paused"] is None


def test_pause_of_a_driver_that_died_is_over_for_the_state_and_for_the_next_one(run: Run):
    with held(run.investigations):
        control.pause(run)
    assert counts(run).paused is None
    heard: list[str] = []
    with held(run.investigations), obeyed(run, heard.append):
        assert read_orders(run).pause is None
    assert len(heard) == 1 and "goes on now" in heard[0]


@pytest.mark.parametrize("handler", [signal.default_int_handler, signal.SIG_IGN], ids=["foreground", "background"])
def test_stop_interrupts_the_driver_as_ctrl_c_does(run: Run, handler: Any):
    heard: list[str] = []

    def drive() -> None:
        with held(run.investigations), obeyed(run, heard.append):
            said(run, "stop")
            for _ in range(200):
                time.sleep(0.1)

    before = signal.signal(signal.SIGINT, handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            drive()
    finally:
        signal.signal(signal.SIGINT, before)
    assert "stopped, as ordered" in heard[0]
    assert read_orders(run).stop is None, "the next driver is not stopped by it"


def names(run: Run, folder: str = "") -> set[str]:
    kept = ("records", "journal", "failures", EVALUATION)
    return {name.removeprefix(folder) for each in kept for name in run.files.names(f"{folder}{each}")}


def test_retry_without_a_driver_waits_for_the_next_one_and_keeps_all_that_was_stored(run: Run):
    before = names(run)
    assert "next `openmaia run`" in said(run, "retry", "layer4=7") and "retried/" in said(run, "retry", "layer4/3")
    assert names(run) == before, "the run that goes on obeys, not the command"
    assert "again by `openmaia run`, 2: layer4/3, layer4/7" in " ".join(output("show", run.files.root).split())
    take_retries(run, lambda line: None)
    assert names(run) == set() and run.pending() == PLAN
    moved = {name.split("/", 2)[2] for name in run.files.names("retried")}
    assert moved == before
    assert read_orders(run).retries == {}


def test_interrupted_retry_is_completed_in_the_same_place(run: Run):
    control.retry(run, PLAN[0])
    order = read_orders(run).retries[PLAN[0]]
    before = names(run)
    folder = f"retried/{order.time * 1000:.0f}"
    run.files.move(f"{EVALUATION}/{PLAN[0].path}.parquet", f"{folder}/{EVALUATION}/{PLAN[0].path}.parquet")
    take_retries(run, lambda line: None)
    assert names(run) | names(run, f"{folder}/") == before
    assert not set_aside(run, PLAN[0], folder)


@pytest.mark.parametrize(
    ("unit", "message"),
    [
        ("layer4=10", "has not been investigated yet"),
        ("layer4=11", "has no unit layer4=11"),
        ("layer4=7#1", "has no unit"),
        ("seven", "expected LAYER=INDEX"),
        ("layer4=" + "7" * 5000, "expected LAYER=INDEX"),
        ("", "retry of which unit?"),
    ],
)
def test_retry_of_what_cannot_be_repeated_is_refused(run: Run, unit: str, message: str):
    assert message in refused("ctl", run.files.root, "retry", *([unit] if unit else []))
    assert read_orders(run).retries == {}


def test_retry_of_a_running_unit_is_refused(run: Run):
    with held(run.investigations):
        ProgressFile(run).write([(PLAN[1], time.time())])
        assert "is being investigated" in refused("ctl", run.files.root, "retry", "layer4=3")


def test_run_of_an_agent_outside_takes_no_orders(tmp_path: Path):
    made = Run.create(
        load(["name=own", "units=all", "target.name=net", "backbone.kind=external", f"paths.runs={tmp_path}"])
    )
    with held(made.investigations):
        for arguments in (["pause"], ["stop"]):
            assert "takes no orders" in refused("ctl", made.files.root, *arguments)


def test_unit_beside_another_order_is_refused(run: Run):
    assert "is not used by pause" in refused("ctl", run.files.root, "pause", "layer4=7")
    assert CliRunner().invoke(app, ["ctl", run.files.root, "hurry"]).exit_code == 2


ORDER = {"version": 1, "by": "anna@login1", "time": 1.7e9}
WRONG = {
    "no JSON": "{",
    "a list": "[]",
    "nothing": "",
    "another version": json.dumps(ORDER | {"version": 2}),
    "no author": json.dumps({"version": 1, "time": 1.7e9}),
    "more": json.dumps(ORDER | {"command": "rm"}),
    "a number for a name": json.dumps(ORDER | {"by": 7}),
    "no time": json.dumps(ORDER | {"time": "now"}),
    "a time after all calendars": json.dumps(ORDER | {"time": 1e300}),
    "a time before": json.dumps(ORDER | {"time": -1}),
    "not a number": '{"version": 1, "by": "a", "time": NaN}',
    "too large": json.dumps(ORDER | {"by": MEGABYTE}),
    "deep": "[" * 1500,
}


@pytest.mark.parametrize("name", ["pause.json", "stop.json", f"retry/{PLAN[0].path}.json"])
def test_file_that_is_no_order_is_named_and_nothing_is_done(run: Run, name: str):
    before = names(run)
    for wrong, text in WRONG.items():
        run.files.write(f"control/{name}", text.encode())
        orders = read_orders(run)
        assert (orders.pause, orders.stop, orders.retries) == (None, None, {}), wrong
        assert [name in reason for reason in orders.refused] == [True], wrong
        take_retries(run, lambda line: None)
        assert names(run) == before


def test_file_of_another_name_is_no_order(run: Run):
    wrong = {
        f"control/{name}"
        for name in ("resume.json", "retry/x.json", f"retry/{PLAN[0].path}.JSON", "retry/net/l/007-0.json")
    }
    for name in wrong:
        run.files.write(name, json.dumps(ORDER).encode())
    orders = read_orders(run)
    assert {name for name in wrong if any(name in reason for reason in orders.refused)} == wrong
    assert orders == control.RunOrders(refused=orders.refused)


@pytest.mark.parametrize("place", ["control", "control/pause.json", "control/retry"])
def test_no_link_is_followed_out_of_the_run(run: Run, tmp_path: Path, place: str):
    outside = tmp_path / "outside"
    (outside / "retry/net/layer4").mkdir(parents=True)
    for name in ("pause.json", f"retry/{PLAN[0].path}.json"):
        (outside / name).parent.mkdir(parents=True, exist_ok=True)
        (outside / name).write_text(json.dumps(ORDER))
    assert run.files.local
    link = run.files.local / place
    link.parent.mkdir(exist_ok=True)
    link.symlink_to(outside / place.removeprefix("control").lstrip("/"))
    orders = read_orders(run)
    assert orders.pause is None and not orders.retries and orders.refused


def test_order_for_a_unit_that_is_not_planned_is_dropped(run: Run):
    other = InvestigationId(unit=replace(UNIT, index=99), replicate=0)
    run.files.write(f"control/retry/{other.path}.json", json.dumps(ORDER).encode())
    before = names(run)
    take_retries(run, lambda line: None)
    assert names(run) == before and read_orders(run) == control.RunOrders()


def test_name_of_the_author_does_no_harm_in_a_terminal(run: Run):
    with held(run.investigations):
        for name, text in TEXTS.items():
            order = json.dumps(ORDER | {"by": text * 10})
            run.files.write("control/pause.json", order.encode(errors="replace"))
            words = counts(run).text
            assert "paused since" in words and words.isprintable() and len(words) < 300, name
