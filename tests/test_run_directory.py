"""One directory per run: what is owed, what is done, under which config, and who drives it."""

import errno
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from openmaia.config import load
from openmaia.errors import StoreError, UsageError
from openmaia.evaluate.claims import Claim
from openmaia.evaluate.scores import Evaluation
from openmaia.evaluate.stored import to_parquet
from openmaia.evaluate.trials import Trial
from openmaia.schema import Config
from openmaia.store.lease import LEASE_SECONDS
from openmaia.store.records import Stop
from openmaia.store.run import Owed, Run
from openmaia.store.state import state
from openmaia.units import Unit
from tests.samples import UNIT, record, turn
from tests.test_store import HOSTILE


def config(tmp_path: Path, *overrides: str) -> Config:
    return load(["name=demo", "units=all", "target.name=net", f"paths.runs={tmp_path}", *overrides])


@pytest.fixture
def run(tmp_path: Path) -> Run:
    made = Run.create(config(tmp_path))
    made.set_plan(UNITS, 1)
    return made


UNITS = [replace(UNIT, index=index) for index in (7, 3, 10)]
OWED = [Owed(unit=unit, replicate=0) for unit in UNITS]


# -- config --------------------------------------------------------------------------------------------------------------


def test_the_resolved_config_is_saved(tmp_path: Path):
    Run.create(config(tmp_path, "seed=3"))
    assert Run.open(str(tmp_path / "demo")).config()["seed"] == 3


def test_a_run_resumes_under_its_config(tmp_path: Path):
    first = Run.create(config(tmp_path))
    first.publish(record())
    assert Run.create(config(tmp_path)).done() == {OWED[0]}


@pytest.mark.parametrize("begin", ["record", "journal", "failure"])
def test_a_begun_run_refuses_another_config_and_names_the_keys(tmp_path: Path, begin: str):
    first = Run.create(config(tmp_path))
    match begin:
        case "record":
            first.publish(record())
        case "journal":
            first.journal(OWED[0]).append(turn(0))
        case _:
            first.fail(OWED[0], "a cause")
    with pytest.raises(UsageError) as caught:
        Run.create(config(tmp_path, "seed=1", "limits.turns=20"))
    assert "limits.turns, seed" in caught.value.message
    assert Run.open(str(tmp_path / "demo")).config()["seed"] == 0


def test_a_begun_run_goes_on_with_other_machines(tmp_path: Path):
    Run.create(config(tmp_path)).publish(record())
    resumed = Run.create(config(tmp_path, "ray.num_cpus=7", "pools.target.replicas=2"))
    assert resumed.config()["ray"]["num_cpus"] == 7


def test_a_run_that_recorded_nothing_may_change_its_config(tmp_path: Path):
    Run.create(config(tmp_path)).set_plan(UNITS, 1)
    changed = Run.create(config(tmp_path, "seed=1"))
    assert changed.config()["seed"] == 1
    assert changed.plan() == []


@pytest.mark.parametrize("text", ["a: [", "- 1", "just words", "\x00", ""])
def test_a_damaged_config_of_a_begun_run_is_one_clear_error(tmp_path: Path, text: str):
    Run.create(config(tmp_path)).publish(record())
    (tmp_path / "demo/config.yaml").write_text(text)
    with pytest.raises((StoreError, UsageError)) as caught:
        Run.create(config(tmp_path))
    assert "demo" in str(caught.value)


def test_a_folder_that_cannot_be_written_is_the_users_mistake(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="cannot be written"):
        Run.create(config(tmp_path, f"paths.runs={tmp_path}/file"))


def test_what_is_no_run_is_the_users_mistake(tmp_path: Path):
    with pytest.raises(UsageError, match=r"config\.yaml"):
        Run.open(str(tmp_path))


# -- plan ----------------------------------------------------------------------------------------------------------------


def test_at_first_everything_is_owed_in_order(run: Run):
    assert run.owed() == OWED


def test_every_replicate_is_owed(run: Run):
    run.set_plan(UNITS, 2)
    assert [(o.unit.index, o.replicate) for o in run.owed()] == [(7, 0), (3, 0), (10, 0), (7, 1), (3, 1), (10, 1)]


def test_a_finished_unit_is_not_owed(run: Run):
    run.publish(record(UNITS[1]))
    assert run.owed() == [OWED[0], OWED[2]]


def test_a_failed_unit_stays_owed_with_its_cause(run: Run):
    run.fail(OWED[1], "the generator died ☃")
    assert run.owed() == OWED
    assert run.failures() == {OWED[1]: "the generator died ☃"}


def test_a_record_ends_the_journal_and_the_failure(run: Run):
    run.fail(OWED[0], "a cause")
    run.journal(OWED[0]).append(turn(0))
    run.publish(record())
    assert run.journal(OWED[0]).turns() == []
    assert run.failures() == {}
    assert run.running() == set()


def test_who_was_cut_off_and_fails_after_another_has_published_spoils_nothing(run: Run):
    run.publish(record())
    run.fail(OWED[0], "a service's dispatcher died")
    run.journal(OWED[0]).append(turn(0))
    assert run.failures() == {} and run.failed() == set()
    assert run.running() == set()
    assert run.owed() == OWED[1:]


def test_a_unit_with_a_journal_is_running(run: Run):
    run.journal(OWED[2]).append(turn(0))
    assert run.running() == {OWED[2]}


def test_a_published_record_reads_back(run: Run):
    run.publish(record())
    assert run.record(OWED[0]).labels == ("dog", "ünïcode ☃")


def test_a_record_that_is_not_there_is_named(run: Run):
    with pytest.raises(UsageError, match="net/layer4/7"):
        run.record(OWED[0])


def test_a_damaged_record_is_named(run: Run):
    run.publish(record())
    path = Path(run.record_path(OWED[0]))
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(StoreError, match="7-0"):
        run.headers()


def test_a_stray_file_among_the_records_is_named(run: Run):
    run.publish(record())
    (Path(run.record_path(OWED[0])).parent / "notes.txt").write_text("mine")
    with pytest.raises(StoreError, match=r"notes\.txt"):
        run.done()


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_stay_below_the_run_and_come_back(tmp_path: Path, name: str):
    unit = Unit(target=name, layer=name, index=1)
    owed = Owed(unit=unit, replicate=0)
    run = Run.create(config(tmp_path / "deep" / "runs"))
    run.set_plan([unit], 1)
    run.fail(owed, "a cause")
    run.journal(owed).append(turn(0))
    assert run.running() == set()
    assert set(run.failures()) == {owed}
    run.publish(record(unit))
    assert run.done() == {owed}
    assert run.record(owed).unit == unit
    root = tmp_path / "deep" / "runs" / "demo"
    assert [path for path in tmp_path.rglob("*") if path.is_file() and root not in path.parents] == []


# -- summary and state ---------------------------------------------------------------------------------------------------


def evaluated(run: Run, owed: Owed) -> None:
    """An abstention needs no images: its evaluation is whole without any service."""
    trial = Trial(claim=Claim(unit=owed.unit, replicate=owed.replicate), outcome="abstained")
    run.write_evaluation(owed, to_parquet(Evaluation(trial=trial, others=())))


@pytest.mark.parametrize("with_score", [0, 1, 2])
def test_the_summary_holds_scores_whichever_unit_has_them(run: Run, tmp_path: Path, with_score: int):
    for unit in UNITS:
        run.publish(record(unit, turns=()))
    evaluated(run, OWED[with_score])
    run.write_summary()
    rows = {row["index"]: row for row in pq.read_table(tmp_path / "demo/summary.parquet").to_pylist()}
    assert len(rows) == 3
    assert rows[UNITS[with_score].index]["auc"] == 0.5
    assert rows[UNITS[with_score].index]["outcome"] == "abstained"


def test_the_summary_has_the_same_columns_before_and_after_evaluation(run: Run, tmp_path: Path):
    columns: list[Any] = []
    for step in (lambda: None, lambda: run.publish(record()), lambda: evaluated(run, OWED[0])):
        step()
        run.write_summary()
        columns.append(pq.read_schema(tmp_path / "demo/summary.parquet").remove_metadata())
    assert columns[0] == columns[1] == columns[2]


def test_a_damaged_evaluation_is_named(run: Run):
    evaluated(run, OWED[0])
    run.files.write("evaluation/net/layer4/7-0.parquet", b"damaged")
    with pytest.raises(StoreError, match="7-0"):
        run.scores()


def test_the_state_counts_every_unit_once(run: Run):
    run.set_plan([replace(UNIT, index=index) for index in range(4)], 1)
    done, failed, running, owed = (replace(OWED[0], unit=replace(UNIT, index=index)) for index in range(4))
    run.publish(record(done.unit))
    run.fail(failed, "a cause")
    run.journal(failed).append(turn(0))
    run.journal(running).append(turn(0))
    found = state(run)
    assert {key: found[key] for key in ("name", "owed", "running", "done", "failed")} == {
        "name": "demo", "owed": 1, "running": 1, "done": 1, "failed": 1,
    }  # fmt: skip
    assert [unit["stop"] for unit in found["units"]] == ["answer", "failed", "running", "owed"]
    assert found["units"][1]["cause"] == "a cause"
    assert owed.unit.index == found["units"][3]["index"]


def test_the_state_has_every_promised_key(run: Run):
    run.publish(record(stop=Stop.ABSTAIN, labels=(), description=""))
    promised = "target layer index replicate stop turns tools labels description positive neutral auc auc_other seconds".split()
    unit = state(run)["units"][0]
    assert set(promised) <= set(unit)
    assert (unit["tools"], unit["turns"], unit["labels"]) == ({"call_neuron": 2, "text2image": 2}, 2, [])


# -- one driver ----------------------------------------------------------------------------------------------------------

HOLDER = """
import sys, time
from openmaia.store.run import Run
Run.open(sys.argv[1]).take_lease()
print("held", flush=True)
time.sleep(60)
"""


@pytest.fixture
def holder(run: Run) -> Iterator["subprocess.Popen[bytes]"]:
    """Another process that drives the run."""
    process = subprocess.Popen([sys.executable, "-c", HOLDER, run.files.root], stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"held\n"
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


def lease(run: Run, **changes: Any) -> None:
    held = {"host": "elsewhere", "pid": 1, "time": time.time(), "token": "t"} | changes
    run.files.write("driver.json", json.dumps(held).encode())


def test_a_second_driver_is_refused_and_told_who_drives(run: Run, holder: "subprocess.Popen[bytes]"):
    with pytest.raises(UsageError) as caught:
        run.take_lease()
    assert str(holder.pid) in caught.value.message
    assert socket.gethostname() in caught.value.message


def test_the_lease_of_a_killed_driver_is_taken_over_at_once(run: Run, holder: "subprocess.Popen[bytes]"):
    holder.kill()
    holder.wait()
    run.take_lease()
    assert json.loads(run.files.read("driver.json") or b"")["pid"] == os.getpid()


def test_a_live_driver_on_another_host_is_refused(run: Run):
    lease(run)
    with pytest.raises(UsageError, match="elsewhere"):
        run.take_lease()


def test_an_expired_lease_of_another_host_is_taken_over(run: Run):
    lease(run, time=time.time() - LEASE_SECONDS - 1)
    run.take_lease()
    assert json.loads(run.files.read("driver.json") or b"")["host"] == socket.gethostname()


def test_a_released_lease_is_free(run: Run):
    run.take_lease().release()
    assert run.files.read("driver.json") is None


def test_of_many_drivers_that_start_at_once_one_drives(run: Run):
    script = HOLDER.replace(
        "Run.open(sys.argv[1]).take_lease()",
        """
run = Run.open(sys.argv[1])
while time.time() < float(sys.argv[2]):
    pass
run.take_lease()""",
    )
    start = str(time.time() + 4)
    command = [sys.executable, "-c", script.replace("time.sleep(60)", "time.sleep(4)"), run.files.root, start]
    drivers = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) for _ in range(6)]
    assert sorted(driver.communicate(timeout=120)[0] for driver in drivers) == [b""] * 5 + [b"held\n"]


def test_a_driver_that_was_taken_over_is_told_and_leaves_the_lease_alone(run: Run):
    held = run.take_lease()
    lease(run)
    with pytest.raises(UsageError, match="taken over by process 1 on elsewhere"):
        held.renew()
    assert json.loads(run.files.read("driver.json") or b"")["host"] == "elsewhere"


def test_a_renewed_lease_is_young_again(run: Run):
    held = run.take_lease()
    before = json.loads(run.files.read("driver.json") or b"")["time"]
    held.renew()
    assert json.loads(run.files.read("driver.json") or b"")["time"] > before


def test_releasing_never_ends_somebody_elses_lease(run: Run):
    held = run.take_lease()
    lease(run)
    held.release()
    assert json.loads(run.files.read("driver.json") or b"")["host"] == "elsewhere"


def test_a_moment_without_locks_is_the_stores_failure(run: Run, monkeypatch: pytest.MonkeyPatch):
    """Which the thread that renews waits out; the lease lasts longer."""

    def stale(*_: object) -> None:
        raise OSError(errno.ESTALE, "stale file handle")

    held = run.take_lease()
    with monkeypatch.context() as patch:
        patch.setattr("fcntl.flock", stale)
        with pytest.raises(StoreError, match="could not be locked"):
            held.renew()
    held.renew()


@pytest.mark.parametrize("text", ["", "{", "[]", "{}"])
def test_a_damaged_lease_does_not_lock_the_run(run: Run, text: str):
    run.files.write("driver.json", text.encode())
    run.take_lease()
    assert json.loads(run.files.read("driver.json") or b"")["pid"] == os.getpid()


@pytest.mark.parametrize("name", ["plan.json", "failures/t/l/1-0.json"])
def test_a_damaged_file_is_named_with_what_to_do(run: Run, name: str):
    run.files.write(name, b'{"x":')
    with pytest.raises(StoreError, match=f"{name} is damaged .*; remove it"):
        _ = run.plan(), run.failures()
