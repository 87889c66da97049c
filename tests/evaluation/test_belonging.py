"""A stored result counts for what it was computed from, whatever its file is called."""

import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from openmaia.api.runs import load as open_run
from openmaia.cli.main import app
from openmaia.core.errors import StoreError
from openmaia.core.units import Unit
from openmaia.evaluation.analysis.agreement import WordOverlap
from openmaia.evaluation.analysis.reliability import has_reliability
from openmaia.evaluation.analysis.significance import is_current, supported_shares
from openmaia.evaluation.analysis.verdict import run_verdicts
from openmaia.evaluation.damage import damaged_files, foreign_tests
from openmaia.evaluation.run import evaluate_run, untested_claims
from openmaia.evaluation.services import EvaluationDesign, EvaluationServices
from openmaia.evaluation.storage import StoredTrials
from openmaia.evaluation.truth import read_truth
from openmaia.reporting.browser.write import write_report
from openmaia.runs import tables
from openmaia.runs.records import Record
from openmaia.runs.results import SIGNIFICANCE
from openmaia.runs.run import EVALUATION, RANDOM_WORDS, TRIALS, InvestigationId, Run
from tests.evaluation.test_run import GREEN, RED, STRIPES, make_run
from tests.helpers.samples import record, turn

FIRST, SECOND = (InvestigationId(unit=unit, replicate=0) for unit in (RED, GREEN))
DESIGN = EvaluationDesign(n=4, random_words=2)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, services: EvaluationServices) -> Run:
    made = make_run(tmp_path_factory.mktemp("whole"), {RED: ("red",), GREEN: ("green",), STRIPES: ("stripes",)})
    known = replace(services, truths={RED: ("red",)}, similarities=[WordOverlap()])
    evaluate_run(made, known, DESIGN)
    return made


@pytest.fixture
def run(whole: Run, tmp_path: Path) -> Run:
    shutil.copytree(whole.files.root, tmp_path / "demo")
    return Run.open(str(tmp_path / "demo"))


def file(run: Run, folder: str, investigation: InvestigationId) -> Path:
    return Path(run.files.path(f"{folder}/{investigation.path}.parquet"))


def exchange(one: Path, other: Path) -> None:
    first, second = one.read_bytes(), other.read_bytes()
    one.write_bytes(second)
    other.write_bytes(first)


def answer(run: Run, label: str, **changes: Any) -> Record:
    """Removes the record of the first unit, and stores one with another answer."""
    file(run, "records", FIRST).unlink()
    made = record(RED, labels=(label,), description=label, turns=(), **changes)
    run.publish(made)
    return made


def made_again(run: Run) -> None:
    answer(run, "blue")


def other_labels(run: Run) -> None:
    file(run, "records", FIRST).unlink()
    run.publish(record(RED, labels=("red", "blue"), description="red", turns=()))


def edited(run: Run) -> None:
    rows, header = tables.load(file(run, "records", FIRST).read_bytes())
    text = {"description": "blue", "labels": ["blue"]}
    changed = header | text | {"summary": header["summary"] | text}
    schema = tables.pq.read_table(file(run, "records", FIRST)).schema.remove_metadata()
    file(run, "records", FIRST).write_bytes(tables.dump(rows, schema, changed))


def other_prompts(run: Run) -> None:
    """The same answer, after other experiments: the test may not use their prompts."""
    file(run, "records", FIRST).unlink()
    run.publish(record(RED, labels=("red",), description="red", turns=(turn(0),)))


def other_evaluation(run: Run) -> None:
    exchange(file(run, EVALUATION, FIRST), file(run, EVALUATION, SECOND))


def copied_evaluation(run: Run) -> None:
    file(run, EVALUATION, FIRST).write_bytes(file(run, EVALUATION, SECOND).read_bytes())


def other_config(run: Run) -> None:
    path = Path(run.files.path("config.yaml"))
    path.write_text(path.read_text().replace("seed: 0", "seed: 7", 1))


def removed(run: Run) -> None:
    file(run, "records", FIRST).unlink()


CHANGES: list[Callable[[Run], None]] = [
    made_again, other_labels, edited, other_prompts, other_evaluation, copied_evaluation, other_config, removed
]  # fmt: skip


@pytest.mark.parametrize("change", CHANGES)
def test_evaluation_of_another_answer_counts_in_no_reader(run: Run, change: Callable[[Run], None]):
    assert run.scores()[FIRST]["p"] is not None
    change(run)
    assert FIRST not in run.scores() and run.score(FIRST) is None
    assert FIRST not in run.evaluated()
    assert run_verdicts(run)[FIRST].verdict == "not tested"
    assert StoredTrials(run, [FIRST]).readable(FIRST) is None
    with pytest.raises(StoreError, match="test"):
        run.evaluation(FIRST)
    assert f"{EVALUATION}/{FIRST.path}.parquet" in [each.name for each in damaged_files(run) if each.is_foreign]
    assert "do not belong to its records" in foreign_tests(run)
    assert supported_shares(run) == {}


@pytest.mark.parametrize("change", CHANGES[:-1])
def test_what_a_record_holds_is_tested_again(run: Run, services: EvaluationServices, change: Callable[[Run], None]):
    change(run)
    assert FIRST.unit in [claim.unit for claim in untested_claims(run)]
    evaluate_run(run, services, DESIGN)
    trial = StoredTrials(run).read(FIRST)
    assert (trial.claim.description, trial.claim.labels) == (run.record(FIRST).description, run.record(FIRST).labels)
    assert run.scores()[FIRST]["p"] is not None
    assert foreign_tests(run) == "" and is_current(run) and has_reliability(run)


def test_units_that_were_compared_with_another_answer_are_scored_again(run: Run, services: EvaluationServices):
    before = run.scores()[SECOND]["auc_against"], run.scores()[SECOND]["auc_other"]
    answer(run, "stripes")
    evaluate_run(run, services, DESIGN)
    assert (run.scores()[SECOND]["auc_against"], run.scores()[SECOND]["auc_other"]) != before
    again = Run(run.files.inside("again"))
    shutil.copytree(run.files.path("records"), again.files.path("records"))
    shutil.copy(run.files.path("config.yaml"), again.files.path("config.yaml"))
    evaluate_run(again, services, DESIGN)
    assert again.scores() == run.scores()


def test_exchanged_records_are_damaged_and_named(run: Run):
    exchange(file(run, "records", FIRST), file(run, "records", SECOND))
    assert {row["index"] for row in run.headers()} == {STRIPES.index}
    assert run.summary(FIRST) is None
    with pytest.raises(StoreError, match=f"record of {GREEN}"):
        run.record(FIRST)
    named = {each.name: each.reason for each in damaged_files(run) if each.is_record}
    assert f"the record of {GREEN}" in named[f"records/{FIRST.path}.parquet"]


def test_record_whose_answer_was_edited_in_one_place_is_damaged(run: Run):
    path = file(run, "records", FIRST)
    rows, header = tables.load(path.read_bytes())
    schema = tables.pq.read_table(path).schema.remove_metadata()
    path.write_bytes(tables.dump(rows, schema, header | {"description": "blue"}))
    assert run.summary(FIRST) is None
    with pytest.raises(StoreError, match="description differs"):
        run.record(FIRST)


def test_stored_trial_of_another_unit_is_repeated(run: Run, services: EvaluationServices):
    for each in (FIRST, SECOND):
        file(run, TRIALS, each).parent.mkdir(parents=True, exist_ok=True)
        os.replace(file(run, EVALUATION, each), file(run, TRIALS, each))
    assert untested_claims(run) == []
    exchange(file(run, TRIALS, FIRST), file(run, TRIALS, SECOND))
    assert [claim.unit for claim in untested_claims(run)] == [RED, GREEN]
    evaluate_run(run, services, DESIGN)
    assert StoredTrials(run).read(FIRST).claim.labels == ("red",)


def test_p_values_count_for_the_evaluations_they_were_computed_from(run: Run, whole: Run):
    rows, header = tables.load(run.files.read(SIGNIFICANCE) or b"")
    values = {row["index"]: row for row in rows}
    values[RED.index] |= {"evaluation": values[GREEN.index]["evaluation"]}
    schema = tables.pq.read_table(run.files.path(SIGNIFICANCE)).schema.remove_metadata()
    run.files.write(SIGNIFICANCE, tables.dump(rows, schema, header))
    assert "p" not in run.scores()[FIRST] and run.scores()[SECOND]["p"] is not None
    assert run_verdicts(run)[FIRST].verdict == "undecided"


def test_p_values_of_other_evaluations_are_computed_again(run: Run, services: EvaluationServices, tmp_path: Path):
    other = make_run(tmp_path / "other", {RED: ("red",), GREEN: ("stripes",), STRIPES: ("green",)})
    evaluate_run(other, services, DESIGN)
    run.files.write(SIGNIFICANCE, other.files.read(SIGNIFICANCE) or b"")
    assert not is_current(run) and supported_shares(run) == {}
    evaluate_run(run, services, DESIGN)
    assert is_current(run) and run.scores()[FIRST]["p"] is not None


def test_random_words_with_another_config_are_measured_again(run: Run, services: EvaluationServices):
    first = InvestigationId(unit=Unit(target="t", layer="mono", index=0), replicate=0)
    before = file(run, RANDOM_WORDS, first).read_bytes()
    other_config(run)
    assert StoredTrials(run).words("mono") == ()
    evaluate_run(run, services, DESIGN)
    assert len(StoredTrials(run).words("mono")) == 2
    assert file(run, RANDOM_WORDS, first).read_bytes() != before


def test_match_with_known_truth_counts_for_its_labels(run: Run):
    assert [match.unit for match in read_truth(run)] == [RED]
    answer(run, "blue")
    assert read_truth(run) == []


def test_journal_of_another_unit_is_not_resumed(run: Run):
    for each in (FIRST, SECOND):
        run.journal(each).append(turn(0))
    shutil.rmtree(run.files.path(f"journal/{FIRST.path}"))
    shutil.copytree(run.files.path(f"journal/{SECOND.path}"), run.files.path(f"journal/{FIRST.path}"))
    assert run.journal(FIRST).turns() == []
    assert "damaged" in run.journal(FIRST).damage(0)
    assert len(run.journal(SECOND).turns()) == 1


def test_journal_of_another_config_is_not_resumed(run: Run):
    run.journal(FIRST).append(turn(0))
    other_config(run)
    assert run.journal(FIRST).turns() == []


def test_commands_and_functions_say_that_a_test_is_left_out(run: Run):
    answer(run, "blue")
    page = "report/units"
    for command in ("show", "export trace"):
        result = CliRunner().invoke(app, [*command.split(), run.files.root])
        assert result.exit_code == 0, result.output
        assert f"left out: {EVALUATION}/{FIRST.path}.parquet: it tests another description" in result.stderr, command
        assert f"openmaia evaluate {run.files.root}" in result.stderr
    with pytest.warns(UserWarning, match="tests another description"):
        rows = open_run(run.files.root).units().set_index("index")
    assert (rows.loc[0, "description"], rows.loc[0, "verdict"]) == ("blue", "not tested")
    write_report([run])
    [html] = [each.read_text() for each in Path(run.files.path(page)).rglob(f"{RED.index}-0.html")] or [""]
    assert "tests another description" in html


def test_summary_table_is_never_read(run: Run):
    run.write_summary()
    answer(run, "blue")
    with pytest.warns(UserWarning, match="left out"):
        assert open_run(run.files.root).units().set_index("index").loc[0, "description"] == "blue"
