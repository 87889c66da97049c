"""Further evaluations: run directories of their own, with the investigations of another."""

from pathlib import Path

import pytest

from openmaia.cli.commands.evaluate import _settings, evaluate  # pyright: ignore[reportPrivateUsage]
from openmaia.config.loading import load
from openmaia.core.errors import UsageError
from openmaia.runs.further import configure, further_evaluation, further_evaluations
from openmaia.runs.results import EVALUATION
from openmaia.runs.run import InvestigationId, Run
from openmaia.runs.state import counts
from tests.helpers.samples import UNIT, record

INVESTIGATION = InvestigationId(unit=UNIT, replicate=0)
SOURCES = ["name=demo", "units=all", "target.name=net"]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    made = Run.create(load([*SOURCES, f"paths.runs={tmp_path}"]))
    made.set_plan([UNIT], 1)
    made.publish(record())
    return made


def make(run: Run, name: str, *overrides: str) -> Run:
    further = further_evaluation(run, name)
    configure(further, load([*SOURCES, *overrides]))
    return further


@pytest.mark.parametrize("as_seen_from", ["absolute", "relative", "inside"])
def test_further_evaluation_shares_the_investigations(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, as_seen_from: str
):
    make(run, "n60", "evaluate.n=60")
    further_folder = tmp_path / "demo/evaluations/n60"
    monkeypatch.chdir(further_folder if as_seen_from == "inside" else tmp_path)
    path = {"absolute": str(further_folder), "relative": "demo/evaluations/n60/", "inside": "."}[as_seen_from]
    further = Run.open(path)
    assert further.record(INVESTIGATION).labels == run.record(INVESTIGATION).labels
    further.write_artifact(EVALUATION, INVESTIGATION, b"x")
    assert (further.evaluated(), run.evaluated()) == ({INVESTIGATION}, set())
    assert (counts(further).done, counts(further).evaluated, counts(run).evaluated) == (1, 1, 0)
    assert (further.config()["evaluate"]["n"], run.config()["evaluate"]["n"]) == (60, 10)


def test_further_evaluations_are_listed_by_name(run: Run):
    assert further_evaluations(run) == []
    made = [make(run, name) for name in ("b", "a")]
    assert [each.files.root for each in further_evaluations(run)] == [made[1].files.root, made[0].files.root]
    assert further_evaluations(made[0]) == []


def test_config_of_a_further_evaluation_may_change_before_its_first_result(run: Run):
    further = make(run, "a", "evaluate.n=3")
    make(run, "a", "evaluate.n=4")
    further.write_artifact(EVALUATION, INVESTIGATION, b"x")
    make(run, "a", "evaluate.n=4", "ray.num_cpus=3")
    with pytest.raises(UsageError, match=r"demo/evaluations/a holds an evaluation .* evaluate\.n differ.*--as NAME"):
        make(run, "a", "evaluate.n=5")


def test_further_evaluation_goes_on_after_the_run_was_extended(run: Run, tmp_path: Path):
    further = make(run, "a", "evaluate.n=3")
    further.write_artifact(EVALUATION, INVESTIGATION, b"x")
    extended = Run.create(load([*SOURCES, f"paths.runs={tmp_path}", "replicates=2", "target.layers=[layer9]"]))
    kept, settings = _settings(extended, [], "a")
    assert (kept.files.root, settings.evaluate.n) == (further.files.root, 3)
    assert (settings.replicates, vars(settings.target)["layers"]) == (2, ["layer9"])
    assert further.config()["replicates"] == 2


@pytest.mark.parametrize("name", ["a/b", "..", "", " ", ".x", "a\nb", "ü"])
def test_name_of_a_further_evaluation_must_be_a_folder_name(run: Run, name: str):
    with pytest.raises(UsageError, match="expected a name"):
        further_evaluation(run, name)


@pytest.mark.parametrize(
    ("given", "name", "said"),
    [
        (["evaluate.n=60"], "", "add --as NAME"),
        (["seed=3", "limits.turns=40"], "x", "limits.turns: an evaluation tests the descriptions"),
        (["evaluate.m=60"], "x", "did you mean 'evaluate.n'"),
        ([], "a/b", "expected a name"),
    ],
)
def test_evaluation_that_cannot_be_made_is_explained(run: Run, given: list[str], name: str, said: str):
    with pytest.raises(UsageError, match=said):
        evaluate([run.files.root, *given], name=name)
    assert further_evaluations(run) == []


def test_evaluation_needs_a_run():
    with pytest.raises(UsageError, match="no run directory was given"):
        evaluate(["evaluate.n=60"], name="x")


def test_evaluation_of_a_further_evaluation_is_refused(run: Run):
    further = make(run, "a")
    with pytest.raises(UsageError, match="give the run itself"):
        evaluate([further.files.root, "evaluate.n=3"], name="b")
