"""The run directory: its config, what is pending, running, done and failed, and the tables derived from it."""

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import yaml

from openmaia.config.loading import load, to_dict
from openmaia.config.schema import Config
from openmaia.core.errors import StoreError, UsageError
from openmaia.core.units import TargetInfo, Unit
from openmaia.evaluation.analysis.verdict import write_summary
from openmaia.evaluation.claims import Claim
from openmaia.evaluation.compared import Evaluation
from openmaia.evaluation.metric import columns
from openmaia.evaluation.storage import to_parquet
from openmaia.evaluation.trials import Trial
from openmaia.runs.ids import InvestigationId
from openmaia.runs.lease import held, take
from openmaia.runs.progress import ProgressFile
from openmaia.runs.records import Stop
from openmaia.runs.run import EVALUATION, Run
from openmaia.runs.state import counts, state, states
from tests.helpers.samples import HOSTILE_NAMES, UNIT, record, store_evaluation, turn

UNITS = [replace(UNIT, index=index) for index in (7, 3, 10)]
PLAN = [InvestigationId(unit=unit, replicate=0) for unit in UNITS]


def config(tmp_path: Path, *overrides: str) -> Config:
    return load(["name=demo", "units=all", "target.name=net", f"paths.runs={tmp_path}", *overrides])


@pytest.fixture
def run(tmp_path: Path) -> Run:
    made = Run.create(config(tmp_path))
    made.set_plan(UNITS, 1)
    return made


# -- network -------------------------------------------------------------------------------------------------------------

INFO = TargetInfo(name="net", layers={"layer4": 12}, digest="aa", input_size=(8, 8))


def test_network_cannot_change_under_a_run(run: Run):
    other = replace(INFO, digest="bb")
    run.bind(other)  # nothing was measured yet
    run.bind(INFO)
    run.publish(record())
    run.bind(INFO)
    with pytest.raises(
        UsageError,
        match=r"was measured with another network: the weights of net are not those noted in .*network\.json",
    ):
        run.bind(other)
    run.bind(replace(INFO, digest=""))  # of a target that has none, nothing can be said
    run.bind(INFO)


@pytest.mark.parametrize("damage", [b"{", b"[1]", b"\xff"])
def test_damaged_note_of_the_network_is_written_again(run: Run, damage: bytes):
    run.bind(INFO)
    run.publish(record())
    run.files.write("network.json", damage)
    run.bind(INFO)
    with pytest.raises(UsageError, match="another network"):
        run.bind(replace(INFO, digest="bb"))


# -- config --------------------------------------------------------------------------------------------------------------


def test_resolved_config_is_saved(tmp_path: Path):
    Run.create(config(tmp_path, "seed=3"))
    assert Run.open(str(tmp_path / "demo")).config()["seed"] == 3


def test_run_resumes_under_its_config_on_other_machines(tmp_path: Path):
    served = ["backbone.kind=openai", "backbone.model=m", "backbone.sees=text", "viewer.kind=openai", "viewer.model=m"]
    Run.create(config(tmp_path, *served)).publish(record())
    machine = [
        *served,
        "ray.num_cpus=7",
        "pools.target.min_replicas=2",
        "backbone.base_url=http://127.0.0.1:9",
        "viewer.tries=2",
        "sandbox.memory_mb=2048",
    ]
    resumed = Run.create(config(tmp_path, *machine))
    assert resumed.done() == {PLAN[0]}
    assert resumed.config()["ray"]["num_cpus"] == 7


@pytest.mark.parametrize("result", ["record", "journal"])
def test_run_with_results_refuses_another_config(tmp_path: Path, result: str):
    first = Run.create(config(tmp_path))
    if result == "record":
        first.publish(record())
    else:
        first.journal(PLAN[0]).append(turn(0))
    with pytest.raises(UsageError, match="limits.turns, seed differ"):
        Run.create(config(tmp_path, "seed=1", "limits.turns=20"))
    assert Run.open(str(tmp_path / "demo")).config()["seed"] == 0


def test_run_without_results_may_change_its_config(run: Run, tmp_path: Path):
    changed = Run.create(config(tmp_path, "seed=1"))
    assert changed.config()["seed"] == 1
    assert changed.plan() == []


def test_what_failed_may_be_run_with_another_config(run: Run, tmp_path: Path):
    run.fail(PLAN[0], "a cause")
    assert Run.create(config(tmp_path)).failures() == {PLAN[0]: "a cause"}
    changed = Run.create(config(tmp_path, "seed=1"))
    assert changed.failures() == {}
    assert changed.plan() == []


def test_units_can_be_added_to_a_run_but_not_taken_away(run: Run, tmp_path: Path):
    run.publish(record())
    more = Run.create(config(tmp_path, "units=layer4=1-20", "replicates=2"))
    assert more.plan() == [], "planned anew"
    more.set_plan([*UNITS, replace(UNIT, index=11)], 2)
    assert len(more.plan()) == 8
    assert PLAN[0] not in more.pending()
    with pytest.raises(UsageError, match=r"holds 1 investigations that this config leaves out, such as .*layer.*7"):
        more.set_plan(UNITS[1:], 2)
    assert len(more.plan()) == 8


def test_way_of_testing_may_change_before_the_first_test(tmp_path: Path):
    first = Run.create(config(tmp_path))
    first.publish(record())
    assert Run.create(config(tmp_path, "evaluate.n=7")).config()["evaluate"]["n"] == 7
    first.write_artifact(EVALUATION, PLAN[0], b"x")
    with pytest.raises(UsageError, match=r"evaluate\.n differ.*openmaia evaluate .*demo evaluate\.n=… --as NAME"):
        Run.create(config(tmp_path, "evaluate.n=8"))


def test_another_command_at_work_keeps_its_config(run: Run, tmp_path: Path):
    lease = take(run.investigations)
    with pytest.raises(UsageError, match="is being driven by another command, with another config: units differ"):
        Run.create(config(tmp_path, "units=layer4=1"))
    assert Run.create(config(tmp_path)).plan() == PLAN
    lease.release()


@pytest.mark.parametrize("text", ["a: [", "- 1", "just words", "\x00", ""])
def test_damaged_config_is_named(tmp_path: Path, text: str):
    Run.create(config(tmp_path)).publish(record())
    (tmp_path / "demo/config.yaml").write_text(text)
    with pytest.raises((StoreError, UsageError), match="demo"):
        Run.create(config(tmp_path))


def test_stored_config_without_a_key_has_its_default(tmp_path: Path):
    made = Run.create(config(tmp_path, "evaluate.n=7"))
    stored = yaml.safe_load((tmp_path / "demo/config.yaml").read_text())
    del stored["evaluate"]["bootstrap"], stored["tracking"]
    (tmp_path / "demo/config.yaml").write_text(yaml.safe_dump(stored))
    assert made.config() == to_dict(config(tmp_path, "evaluate.n=7"))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"evaluate": {"bootstrap": "many"}}, "evaluate.bootstrap"),
        ({"evaluate": 3}, "evaluate is a section"),
        ({"evaluat": {}}, "unknown key 'evaluat'"),
        ({"units": "???"}, "lacks units"),
    ],
    ids=str,
)
def test_stored_config_of_another_shape_is_named(tmp_path: Path, change: dict[str, Any], said: str):
    made = Run.create(config(tmp_path))
    stored = yaml.safe_load((tmp_path / "demo/config.yaml").read_text())
    (tmp_path / "demo/config.yaml").write_text(yaml.safe_dump(stored | change))
    with pytest.raises(StoreError, match=r"config\.yaml is damaged, or of another version") as caught:
        made.config()
    assert said in caught.value.message


def test_folder_that_is_no_run_is_a_usage_error(tmp_path: Path):
    with pytest.raises(UsageError, match=r"config\.yaml"):
        Run.open(str(tmp_path))
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="cannot be written"):
        Run.create(config(tmp_path, f"paths.runs={tmp_path}/file"))


# -- investigations ------------------------------------------------------------------------------------------------------


def test_everything_is_pending_in_order(run: Run):
    assert run.pending() == run.plan() == PLAN
    run.set_plan(UNITS, 2)
    pending = [(each.unit.index, each.replicate) for each in run.pending()]
    assert pending == [(7, 0), (3, 0), (10, 0), (7, 1), (3, 1), (10, 1)]


def test_published_record_ends_journal_and_failure(run: Run):
    run.fail(PLAN[0], "a cause")
    run.journal(PLAN[0]).append(turn(0))
    run.publish(record())
    assert run.record(PLAN[0]).labels == ("dog", "ünïcode ☃")
    assert (run.pending(), run.done()) == (PLAN[1:], {PLAN[0]})
    assert (run.journal(PLAN[0]).turns(), run.failures(), run.running()) == ([], {}, set())


def test_failed_investigation_stays_pending_with_its_cause(run: Run):
    run.fail(PLAN[1], "the generator died ☃")
    assert run.pending() == PLAN
    assert run.failures() == {PLAN[1]: "the generator died ☃"}


def test_failure_after_a_record_is_ignored(run: Run):
    run.publish(record())
    run.fail(PLAN[0], "the dispatcher died")
    run.journal(PLAN[0]).append(turn(0))
    assert (run.failures(), run.failed(), run.running()) == ({}, set(), set())
    assert run.pending() == PLAN[1:]


def test_investigation_with_a_journal_is_running(run: Run):
    run.journal(PLAN[2]).append(turn(0))
    assert run.running() == {PLAN[2]}


def test_missing_and_damaged_records_are_named_and_stray_files_ignored(run: Run):
    with pytest.raises(UsageError, match="net/layer4/7"):
        run.record(PLAN[0])
    run.publish(record())
    path = Path(run.record_path(PLAN[0]))
    path.write_bytes(path.read_bytes()[:-9])
    assert (run.headers(), run.summary(PLAN[0]), list(run.records())) == ([], None, [])
    with pytest.raises(StoreError):
        run.record(PLAN[0])
    (path.parent / "notes.txt").write_text("mine")
    assert run.done() == {PLAN[0]}


def test_damaged_plan_is_named_and_written_again(run: Run):
    run.files.write("plan.json", b'{"x":')
    with pytest.raises(StoreError, match="plan.json is damaged .*; remove it"):
        run.plan()
    run.set_plan(UNITS, 1)
    assert run.plan() == PLAN


@pytest.mark.parametrize("data", [b'{"x":', b"", b"[]", b'{"time": 1}', b"\xff"])
def test_damaged_failure_is_a_failure_whose_cause_is_unknown(run: Run, data: bytes):
    run.fail(PLAN[1], "a cause")
    run.files.write(f"failures/{PLAN[0].path}.json", data)
    causes = run.failures()
    assert causes[PLAN[1]] == "a cause" and "cannot be read" in causes[PLAN[0]]
    assert run.pending() == PLAN


def test_failure_under_the_name_of_another_unit_is_not_taken_for_its_own(run: Run):
    run.fail(PLAN[1], "a cause")
    moved = run.files.read(f"failures/{PLAN[1].path}.json")
    assert moved is not None
    run.files.write(f"failures/{PLAN[0].path}.json", moved)
    causes = run.failures()
    assert causes[PLAN[1]] == "a cause"
    assert f"the failure of {PLAN[1].unit}" in causes[PLAN[0]] and "a cause" not in causes[PLAN[0]]


@pytest.mark.parametrize("name", HOSTILE_NAMES)
def test_hostile_names_stay_below_the_run(tmp_path: Path, name: str):
    unit = Unit(target=name, layer=name, index=1)
    investigation = InvestigationId(unit=unit, replicate=0)
    run = Run.create(config(tmp_path / "deep" / "runs"))
    run.set_plan([unit], 1)
    run.fail(investigation, "a cause")
    run.journal(investigation).append(turn(0))
    assert run.running() == set()
    assert set(run.failures()) == {investigation}
    run.publish(record(unit))
    assert run.done() == {investigation}
    assert run.record(investigation).unit == unit
    root = tmp_path / "deep" / "runs" / "demo"
    assert [path for path in tmp_path.rglob("*") if path.is_file() and root not in path.parents] == []


# -- summary and state ---------------------------------------------------------------------------------------------------


def evaluate(run: Run, investigation: InvestigationId) -> None:
    """Writes the evaluation of an abstention."""
    trial = Trial(claim=Claim(unit=investigation.unit, labels=()), outcome="abstained")
    store_evaluation(run, investigation, to_parquet(Evaluation(trial=trial, others=())))


def summary(run: Run) -> Any:
    write_summary(run)
    return pq.read_table(f"{run.files.root}/summary.parquet")


def test_summary_joins_records_and_scores(run: Run):
    for unit in UNITS:
        run.publish(record(unit, turns=()))
    evaluate(run, PLAN[1])
    assert run.evaluated() == set(run.scores()) == {PLAN[1]}
    rows = {row["index"]: row for row in summary(run).to_pylist()}
    assert [[rows[unit.index][name] for name in ("auc", "auc_all", "outcome")] for unit in UNITS] == [
        [None, None, None],
        [None, 0.5, "abstained"],
        [None, None, None],
    ]


def test_summary_has_fixed_columns(run: Run):
    columns = [summary(run).schema.remove_metadata()]
    run.publish(record())
    columns.append(summary(run).schema.remove_metadata())
    evaluate(run, PLAN[0])
    columns.append(summary(run).schema.remove_metadata())
    assert columns[0] == columns[1] == columns[2]


def test_damaged_evaluation_is_left_out(run: Run):
    evaluate(run, PLAN[1])
    run.write_artifact(EVALUATION, PLAN[0], b"damaged")
    assert set(run.scores()) == {PLAN[1]}
    assert run.score(PLAN[0]) is None


def test_state_counts_every_investigation_once(run: Run):
    run.set_plan([replace(UNIT, index=index) for index in range(4)], 1)
    done, failed, running, _ = run.plan()
    run.publish(record(done.unit))
    run.fail(failed, "a cause")
    run.journal(failed).append(turn(0))
    run.journal(running).append(turn(0))
    current = state(run)
    keys = ("name", "pending", "running", "done", "failed")
    assert [current[key] for key in keys] == ["demo", 1, 1, 1, 1]
    assert [unit["stop"] for unit in current["units"]] == ["answer", "failed", "running", "pending"]
    assert [unit["cause"] for unit in current["units"]] == ["", "a cause", "", ""]


def test_states_name_each_kind_of_investigation(run: Run):
    run.set_plan([replace(UNIT, index=index) for index in range(5)], 1)
    done, damaged, failed, running, pending = run.plan()
    unplanned = InvestigationId(unit=replace(UNIT, index=9), replicate=0)
    run.publish(record(done.unit, stop=Stop.LIMIT, cause="limits.turns=3"))
    run.publish(record(damaged.unit))
    run.files.write(f"records/{damaged.path}.parquet", b"PAR1")
    run.fail(failed, "a cause")
    run.journal(running).append(turn(0))
    run.publish(record(unplanned.unit))
    found = states(run)
    assert {each: (one.state.value, one.cause) for each, one in found.items()} == {
        done: ("limit", "limits.turns=3"),
        damaged: ("damaged", "its record cannot be read"),
        failed: ("failed", "a cause"),
        running: ("running", ""),
        pending: ("pending", ""),
        unplanned: ("answer", ""),
    }
    assert list(found) == [*run.plan(), unplanned]
    assert states(run, [pending, damaged]) == {each: found[each] for each in (pending, damaged)}


def test_failed_investigation_that_is_repeated_is_running(run: Run):
    again, other = run.plan()[:2]
    run.fail(again, "a cause")
    run.fail(other, "a cause")
    with held(run.investigations):
        ProgressFile(run).write([(again, time.time())])
        assert [one.state.value for one in states(run, [again, other]).values()] == ["running", "failed"]
        assert (len(counts(run).running), counts(run).failed) == (1, 1)


def test_state_has_every_promised_key(run: Run):
    run.publish(record(stop=Stop.ABSTAIN, labels=(), description=""))
    unit = state(run, columns())["units"][0]
    promised = "target layer index replicate stop turns tools labels description positive neutral auc auc_other seconds"
    assert set(promised.split()) <= set(unit)
    assert (unit["tools"], unit["turns"], unit["labels"]) == ({"call_neuron": 2, "text2image": 2}, 2, [])


def test_failure_of_a_unit_that_is_no_longer_planned_is_forgotten(run: Run):
    run.set_plan(UNITS, 1)
    run.fail(InvestigationId(unit=UNITS[-1], replicate=0), "a cause")
    run.set_plan(UNITS[:-1], 1)
    assert run.failures() == {} and run.failed() == set()
    run.set_plan(UNITS, 1)
    assert run.pending()[-1].unit == UNITS[-1]
