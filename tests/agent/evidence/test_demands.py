"""What an answer must rest on before it is accepted."""

from dataclasses import replace
from pathlib import Path

import pytest

from openmaia.agent.evidence.demands import assess
from openmaia.agent.tasks.grammar import DESCRIBED
from openmaia.agent.tasks.task import StoppingRule
from openmaia.agent.tasks.task import load as load_task
from openmaia.config.loading import load
from openmaia.core.errors import ServiceError, UsageError
from openmaia.runs.evidence import CheckState
from openmaia.runs.files import Files
from openmaia.runs.journal import FolderJournal
from openmaia.runs.records import Did, ImageEntry, Stop
from tests.agent.conftest import Investigate
from tests.conftest import REPOSITORY
from tests.helpers.investigating import ANSWER, LISTED, TESTED, code, heard_more, said
from tests.helpers.samples import comparable, turn

DEFAULT = ("task.evidence.experiments=null", "task.evidence.labels=null")
RULE = ("task.evidence.experiments=1", "task.evidence.controls=2", "task.evidence.replicates=3")


def test_prompt_states_only_what_is_required(run: Investigate):
    question = run(ANSWER, overrides=("task.evidence.experiments=3", "limits.soft_turns=1", "limits.turns=1")).prompts[
        1
    ]
    assert "at least 3 different experiments" in question
    assert "negative controls of each" not in question
    assert "{" not in question
    assert 'hypothesis="H1"' not in question
    assert "rests on" not in run(ANSWER).prompts[1]


def test_early_answer_is_sent_back(run: Investigate):
    record = run(LISTED, TESTED, LISTED, overrides=RULE)
    assert record.stop is Stop.ANSWER and len(record.turns) == 3
    assert record.evidence.sent_back == 1
    assert record.evidence.state == "met"
    checks = assess(StoppingRule(experiments=1, controls=2, replicates=3), record.turns[:1], DESCRIBED).checks
    assert [check.state for check in checks] == [CheckState.MISSING, CheckState.UNVERIFIED, CheckState.UNVERIFIED]
    missing = load_task("description").missing.replace("{missing}", "\n".join(f"- {c.detail}" for c in checks))
    assert heard_more(record, 0) == len(missing.split())


def test_record_counts_images_per_hypothesis(run: Investigate):
    (tested,) = run(TESTED, LISTED).evidence.tested
    assert (tested.hypothesis, tested.images, tested.controls) == ("H1: red", 3, 2)
    assert tested.mean is not None and tested.control_mean is not None and tested.mean > 0.9 > tested.control_mean


@pytest.mark.parametrize("answer", [ANSWER, "[DESCRIPTION]: NONE"])
def test_default_rule_demands_two_measured_experiments(run: Investigate, answer: str):
    first, second = (code(f"print(system.call_neuron(['a red {shape}'])[0])") for shape in ("circle", "star"))
    record = run(answer, first, answer, second, answer, overrides=DEFAULT)
    assert (len(record.turns), record.evidence.sent_back) == (5, 2)
    assert record.stop is (Stop.ANSWER if "red" in answer else Stop.ABSTAIN)


def test_untested_label_is_sent_back_once(run: Investigate):
    measured = code("print(system.call_neuron(tools.text2image(['a blue circle']))[0])")
    record = run(measured, ANSWER, ANSWER, overrides=("task.evidence.labels=1",))
    assert (len(record.turns), record.evidence.sent_back, record.evidence.state) == (3, 1, "unverified")
    (check,) = record.evidence.checks
    assert check.detail == "no experiment generated and measured images of 'red'"


@pytest.mark.parametrize(
    "tested",
    [
        "system.call_neuron(tools.text2image(['red circles']))",
        "system.call_neuron(['a red star'])",
        "system.call_neuron(tools.edit_images(['a blue circle'], ['make the circle red'])[0])",
        "system.call_neuron(tools.text2image(['a circle']), hypothesis='red')",
    ],
)
def test_label_is_tested_by_a_measured_image_of_it(run: Investigate, tested: str):
    record = run(code(tested), ANSWER, overrides=("task.evidence.labels=1",))
    assert (len(record.turns), record.evidence.state) == (2, "met")


def test_words_that_could_not_be_drawn_test_no_label(run: Investigate):
    zyzzyva = "[DESCRIPTION]: zyzzyvas\n[LABEL 1]: zyzzyva"
    first, second = (code(f"system.call_neuron(['a {colour} zyzzyva'])") for colour in ("red", "blue"))
    record = run(first, zyzzyva, second, zyzzyva, overrides=DEFAULT)
    assert (record.stop, record.evidence.sent_back, record.evidence.state) == (Stop.ANSWER, 1, "unverified")


def test_placeholder_is_no_prompt(run: Investigate):
    record = run(code("tools.text2image(['a <thing> on grass'])"), ANSWER)
    assert "holds a placeholder" in said(record, 0)


def test_image_that_was_not_measured_tests_no_label(run: Investigate):
    record = run(code("tools.text2image(['a red circle'])"), ANSWER, ANSWER, overrides=("task.evidence.labels=1",))
    assert record.evidence.state == "unverified"


def test_unverifiable_demand_sends_back_once(run: Investigate):
    record = run(code("print(1)"), ANSWER, ANSWER, overrides=("task.evidence.replicates=2",))
    assert len(record.turns) == 3
    assert record.evidence.state == "unverified"


def test_abstention_needs_experiments_only(run: Investigate):
    tried = code("system.call_neuron(tools.text2image(['a red circle']))")
    record = run("[DESCRIPTION]: NONE", tried, "[DESCRIPTION]: NONE", overrides=RULE)
    assert (record.stop, len(record.turns), record.evidence.state) == (Stop.ABSTAIN, 3, "met")
    assert record.confirmation is None


def test_resumed_investigation_remembers_refusals(run: Investigate, tmp_path: Path):
    journal = FolderJournal(Files(str(tmp_path / "journal")), "unit")
    with pytest.raises(ServiceError, match="holds 1 replies"):
        run(LISTED, overrides=RULE, journal=journal)
    resumed = run(LISTED, TESTED, LISTED, overrides=RULE, journal=journal)
    assert comparable(resumed) == comparable(run(LISTED, TESTED, LISTED, overrides=RULE))


@pytest.mark.parametrize("name", ["H1", "h1: red", "1"])
def test_hypothesis_is_named_by_id_or_number(run: Investigate, name: str):
    tried = TESTED.replace('"H1"', f'"{name}"').replace('"not H1"', f'"not {name}"')
    assert run(tried, LISTED, overrides=RULE).evidence.state == "met"


def test_hypothesis_is_named_by_the_words_of_a_label(run: Investigate):
    tried = TESTED.replace("H1: ", "").replace("H1", "red")
    assert run(tried, ANSWER, overrides=RULE).evidence.state == "met"


def test_image_counts_once_however_often_measured():
    entries = tuple(
        ImageEntry(id=str(n), original="same", did=Did.MEASURED, activation={"value": 1.0}, hypothesis="red")
        for n in range(5)
    )
    one = turn(reply=f"[HYPOTHESIS LIST]:\n1. red\n{ANSWER}", code="", hypotheses=("red",))
    calls = (replace(one.calls[0], entries=entries),)
    evidence = assess(StoppingRule(replicates=2), [replace(one, calls=calls)], DESCRIBED)
    assert [(check.found, check.state) for check in evidence.checks] == [(1, CheckState.MISSING)]


def test_incomplete_image_tests_nothing(run: Investigate):
    drawn = code("system.call_neuron(tools.text2image(['a red circle', 'an ocarina'], hypothesis='red'))")
    (tested,) = run(drawn, LISTED.replace("H1: ", "")).evidence.tested
    assert tested.images == 1


def test_hypotheses_must_fit_the_images(run: Investigate):
    record = run(code("tools.text2image(['red', 'blue'], hypothesis=['H1'])"), ANSWER)
    assert "1 names for 2 images" in (record.turns[0].calls[0].error or "")


def test_negative_numbers_are_refused(tmp_path: Path):
    with pytest.raises(UsageError, match=r"task\.evidence\.controls=-1"):
        load([str(REPOSITORY / "configs/closed-form.yaml"), "task.evidence.controls=-1"])
    (tmp_path / "user.md").write_text("?")
    (tmp_path / "task.yaml").write_text("evidence: {experiments: -2}")
    with pytest.raises(UsageError, match=r"evidence\.experiments=-2"):
        load_task(str(tmp_path))
