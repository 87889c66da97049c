"""The campaign itself: what it calls a repeated turn, and one trial."""

import os
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pandas as pd
import psutil
import pytest

from measure.faults import sweep
from measure.faults.__main__ import NotTried, further, summary
from measure.faults.campaign import Trial, causes, over_repeated, readable, trial, undisturbed
from measure.faults.disturbances import DISTURBANCES, VICTIMS, second_problem
from openmaia.checks.named import folders
from openmaia.config.loading import load
from openmaia.runs.run import Run
from tests.cluster.hosts import lacking


@pytest.mark.parametrize(
    ("turns", "hits", "is_wrong"),
    [
        ("a0 b0 a1 a1 b0 b1 a2", [2], False),
        ("a0 a0 a1 a1", [1, 3], False),
        ("a0 a0", [], True),
        ("a0 a0", [2], True),
        ("a0 a0 a0", [1], True),
        ("a0 a0 a1 a1", [1], True),
        ("a0 a1 a0", [2], True),
        ("a0 a0 a0", [1, 1], True),
    ],
)
def test_each_disturbance_may_repeat_the_turn_in_progress_of_a_unit(turns: str, hits: list[int], is_wrong: bool):
    carried_out = [(name[0], int(name[1])) for name in turns.split()]
    assert bool(over_repeated(carried_out, hits)) == is_wrong


@pytest.mark.parametrize("overrides", [sweep.ON_THIS_MACHINE, sweep.on_cluster("10.0.0.1:6379")])
def test_the_sweep_has_a_valid_config_on_this_machine_and_on_hosts(tmp_path: Path, overrides: tuple[str, ...]):
    assert load(sweep.command(tmp_path, *overrides)[4:]).name == sweep.NAME


def test_a_second_command_leaves_the_files_of_the_first_alone(tmp_path: Path):
    first = sweep.command(tmp_path)
    times = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.is_file()}
    assert sweep.command(tmp_path) == first
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.is_file()} == times


@pytest.mark.skipif(bool(lacking()), reason=lacking())
def test_a_sweep_on_the_small_disk_is_not_refused_until_the_disk_is_full(tmp_path: Path):
    disturbance = DISTURBANCES["disk full for 5 s"]
    with disturbance.place(tmp_path) as place:
        config = load([*sweep.command(tmp_path, f"paths.runs={place.runs}")[4:]])
        assert not list(folders(config))
        (tmp_path / "disk/filler").write_bytes(bytes(shutil.disk_usage(tmp_path / "disk").free - 2**20))
        assert [each.message for each in folders(config)] == [
            f"paths.runs={place.runs}: its disk has 1 MiB left, and needs 64; make room, or give another folder"
        ]


@pytest.mark.parametrize(
    ("code", "drove", "is_wrong"), [(2, False, False), (0, False, False), (0, True, True), (1, False, True)]
)
def test_a_second_command_is_refused_or_finds_the_run_complete(code: int, drove: bool, is_wrong: bool):
    assert bool(second_problem(code, drove)) == is_wrong


WORKER = """
from pathlib import Path
from tests.agent.sandbox.conftest import Agent, find_template, make
Path("/proc/self/comm").write_text("ray::UnitWorker")
with make() as sandbox:
    Agent(sandbox).text("")
    print(sandbox._child.pid, find_template(), flush=True)
    input()
"""


def test_the_sandbox_of_a_worker_and_its_template_are_found():
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(
        [sys.executable, "-c", WORKER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as worker:
        assert worker.stdout
        sandbox, template = map(int, worker.stdout.readline().split())
        found = {
            name: {victim.pid for victim in VICTIMS[name](psutil.Process())} & {sandbox, template}
            for name in ("sandbox", "template")
        }
        worker.communicate("\n")
    assert found == {"sandbox": {sandbox}, "template": {template}}


def test_a_run_that_cannot_be_read_is_a_finding(tmp_path: Path):
    said = readable(lambda: str(Run.open(str(tmp_path / "nothing")).plan()))
    assert said.startswith("the run cannot be read: ")


def test_causes_are_what_commands_said_about_failures():
    traceback = (
        "Traceback (most recent call last):\n    raise Exception(\nException: a node timed out\na.b.SomeError: x\n"
    )
    output = f"loading\nerror: /x/runs is full\nfailed 2: late\nerror: /x/runs is full\n{traceback}done, 1 failed\n"
    said = "error: …/runs is full / failed 2: late / Exception: a node timed out / a.b.SomeError: x"
    assert causes(output, Path("/x")) == said


def some_trial(name: str, seed: int) -> Trial:
    if name == "host cut off for 15 s":
        raise RuntimeError("the hosts did not start")
    return Trial(
        disturbance=name,
        seed=seed,
        after_turns="1 2",
        hit=2,
        commands=1,
        codes="0",
        repeated=0,
        seconds=1.0,
        problem="",
        commit="abc",
    )


def test_a_disturbance_that_cannot_be_tried_ends_no_other_and_does_not_count():
    names = ["host cut off for 15 s", "raylet killed"]
    rows = list[dict[Any, Any]]()
    failed = list[NotTried]()
    with ThreadPoolExecutor(2) as processes:
        for done in further(names, 4, rows, some_trial, processes):
            failed.append(done) if isinstance(done, NotTried) else rows.append(done.row())
    assert failed == [NotTried(disturbance=names[0], reason="RuntimeError: the hosts did not start")]
    assert [(row["disturbance"], row["seed"]) for row in rows] == [("raylet killed", 0), ("raylet killed", 1)]
    assert not list(further(names, 4, [], some_trial, processes, until=time.monotonic()))
    assert "| raylet killed | 4 | 4 | 2 | 2 | 2 | 0 | abc |" in summary(pd.DataFrame(rows))


def test_trials_on_older_pools_stand_apart_and_do_not_count():
    old: dict[Any, Any] = some_trial("gcs killed", 5).row() | {"date": "2026-11-27"}
    new = some_trial("raylet killed", 0).row()
    today, older = summary(pd.DataFrame([old, new])).split("## On older pools")
    assert "| raylet killed | 2 |" in today and "| gcs killed |" not in today and " gcs killed, " in today
    assert "| gcs killed | 2 |" in older and "raylet" not in older
    with ThreadPoolExecutor(1) as processes:
        done = next(further(["gcs killed"], 1, [old], some_trial, processes))
    assert isinstance(done, Trial) and done.seed == 6


@pytest.mark.slow
@pytest.mark.nightly
def test_a_killed_worker_costs_the_turn_in_progress():
    done = trial("worker killed", 0, undisturbed())
    assert done.hit and not done.problem, done
