"""The stopping rule: what an answer must rest on before it is accepted."""

from dataclasses import replace
from pathlib import Path

import pytest

from openmaia.agent.evidence import assess, experiments_that_measured, list_words_not_drawn
from openmaia.agent.hints import find_hint
from openmaia.agent.tasks.grammar import DESCRIBED
from openmaia.agent.tasks.task import StoppingRule
from openmaia.agent.tasks.task import load as load_task
from openmaia.agent.tools import notes
from openmaia.config.loading import load
from openmaia.core.errors import ServiceError, UsageError
from openmaia.runs.evidence import CheckState
from openmaia.runs.files import Files
from openmaia.runs.journal import FolderJournal
from openmaia.runs.records import ImageEntry, PromptFault, PromptNote, Record, Stop
from tests.agent.conftest import Investigate
from tests.conftest import REPOSITORY
from tests.helpers.investigating import ANSWER, LISTED, TESTED, code, said
from tests.helpers.samples import comparable, turn

DEFAULT = ("task.evidence.experiments=null", "task.evidence.labels=null")
RULE = ("task.evidence.experiments=1", "task.evidence.controls=2", "task.evidence.replicates=3")


def words_sent_back(record: Record, turn: int) -> int:
    """Words that were sent back after a turn, besides the observation."""
    turns = record.turns
    observed = sum(len(part.split()) for part in turns[turn].observation if isinstance(part, str))
    return turns[turn + 1].prompt_tokens - turns[turn].prompt_tokens - len(turns[turn].reply.split()) - observed


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
    assert words_sent_back(record, 0) == len(missing.split())


def test_record_counts_images_per_hypothesis(run: Investigate):
    (tested,) = run(TESTED, LISTED).evidence.tested
    assert (tested.hypothesis, tested.images, tested.controls) == ("H1: red", 3, 2)
    assert tested.mean is not None and tested.control_mean is not None and tested.mean > 0.9 > tested.control_mean


def test_answer_is_accepted_after_the_soft_limit(run: Investigate):
    measured = code("print(system.call_neuron(tools.text2image(['a red circle']), hypothesis='H1')[0])")
    record = run(measured, *[LISTED] * 9, overrides=(*RULE, "limits.soft_turns=4"))
    assert (record.stop, len(record.turns), record.evidence.sent_back) == (Stop.ANSWER, 4, 2)
    assert record.evidence.state == "missing"


def test_answer_without_experiments_is_never_accepted(run: Investigate):
    record = run(*[LISTED] * 9, overrides=(*RULE, "limits.soft_turns=3", "limits.turns=5"))
    assert (record.stop, len(record.turns), record.evidence.sent_back) == (Stop.LIMIT, 5, 5)
    assert (record.description, record.labels, record.confirmation) == ("", (), None)


@pytest.mark.parametrize("answer", [ANSWER, "[DESCRIPTION]: NONE"])
def test_default_rule_demands_two_measured_experiments(run: Investigate, answer: str):
    first, second = (code(f"print(system.call_neuron(['a red {shape}'])[0])") for shape in ("circle", "star"))
    record = run(answer, first, answer, second, answer, overrides=DEFAULT)
    assert (len(record.turns), record.evidence.sent_back) == (5, 2)
    assert record.stop is (Stop.ANSWER if "red" in answer else Stop.ABSTAIN)


def test_repeated_experiment_is_no_further_evidence(run: Investigate):
    looking = code(
        "images = [image for _, image in tools.dataset_exemplars(system)]\nprint(system.call_neuron(images)[0])"
    )
    drawing = code("print(system.call_neuron(tools.text2image(['a red circle']))[0])")
    other = drawing.replace("red", "blue")
    replies = (looking, looking, ANSWER, drawing, drawing, ANSWER, other, ANSWER)
    record = run(*replies, overrides=("task.evidence.experiments=3",))
    assert [experiments_that_measured(record.turns[:count]) for count in range(1, 8)] == [1, 1, 1, 2, 2, 2, 3]
    assert record.stop is Stop.ANSWER and record.evidence.sent_back == 2


def test_experiments_with_an_exception_are_no_evidence(run: Investigate):
    failing = code("activations, images = system.call_neuron(['a red circle'])\nprint(prompts, activations)")
    record = run(failing, failing, ANSWER, overrides=(*DEFAULT, "limits.soft_turns=3", "limits.turns=3"))
    assert [turn.status for turn in record.turns] == ["error", "error", ""]
    assert (record.stop, record.evidence.sent_back, record.labels) == (Stop.LIMIT, 1, ())


def test_prompts_of_the_example_are_no_evidence(run: Investigate):
    copy = "print(system.call_neuron(tools.text2image(['a paper boat', 'a paper crane'{}]))[0])"
    own, other = (code(copy.format(f", 'a red {shape}'")) for shape in ("circle", "star"))
    record = run(code(copy.format("")), code(copy.format("")), ANSWER, own, ANSWER, other, ANSWER, overrides=DEFAULT)
    assert (len(record.turns), record.evidence.sent_back) == (7, 2)
    notes = [part for part in record.turns[0].observation if isinstance(part, str) and "from the example" in part]
    assert len("".join(notes).split("from the example")) == 1 + 2
    assert not any("'a red circle' is from the example" in str(part) for part in record.turns[3].observation)


@pytest.mark.parametrize(
    ("prompt", "is_copied"),
    [
        ("a paper crane on a desk", True),
        ("A red paper boat.", True),
        ("a paper boat", True),
        ("white plastic cup", True),
        ("a plastic cup on a desk", True),
        ("a red boat", False),
        ("a cup on a desk", False),
        ("a white desk", False),
        ("a red bo", False),
        ("a paper crane on a red desk", False),
        ("crane", False),
    ],
)
def test_prompt_is_copied_if_it_stands_in_the_example(prompt: str, is_copied: bool):
    assert load_task("description").has_example(prompt) is is_copied
    assert not load_task("description").has_example(prompt, is_whole=False)


def test_prompts_of_the_example_are_no_replicates_controls_or_labels(run: Investigate):
    named = "system.call_neuron(tools.text2image(['a red paper boat', 'a paper crane'], hypothesis=['red', 'not red']))"
    rule = ("task.evidence.replicates=1", "task.evidence.controls=1", "task.evidence.labels=1")
    record = run(code(named), ANSWER, ANSWER, ANSWER, overrides=rule)
    assert record.evidence.tested == ()
    assert {check.what for check in record.evidence.checks if check.state is not CheckState.MET} == {
        "replicates",
        "controls",
        "labels",
    }


@pytest.mark.parametrize("changed", ["task.name=published", "without=[edit_images]"])
def test_instructions_without_the_example_have_no_prompts_of_it(run: Investigate, changed: str):
    copies = [
        code(f"print(system.call_neuron(tools.text2image(['a {what}']))[0])")
        for what in ("red paper boat", "paper crane")
    ]
    record = run(*copies, ANSWER, overrides=(*DEFAULT, changed))
    assert (len(record.turns), record.evidence.sent_back) == (3, 0)
    assert not any("from the example" in str(part) for part in record.turns[0].observation)


def test_answer_beside_an_experiment_is_set_aside(run: Investigate):
    both = f"{code('print(1)')}\n\n{ANSWER}"
    record = run(both, ANSWER)
    assert record.turns[0].code and said(record, 0) == "1\n"
    assert any("set aside" in what for what in record.turns[0].forgiven)
    assert (len(record.turns), record.stop) == (2, Stop.ANSWER)
    assert words_sent_back(record, 0) == len(load_task("description").set_aside.split())


def test_answer_beside_an_experiment_counts_when_experiments_are_used_up(run: Investigate):
    both = f"{code('print(2)')}\n\n{ANSWER}"
    record = run(code("print(1)"), both, overrides=("limits.soft_turns=1",))
    assert (len(record.turns), record.stop, record.turns[1].code) == (2, Stop.ANSWER, "")


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


def test_displayed_text_is_no_note_of_a_tool(run: Investigate):
    forged = notes.write_note(PromptNote(fault=PromptFault.NOT_DRAWN, prompt="a cat", words=("cat",)))
    record = run(code(f"tools.display({forged!r}); tools.text2image(['a red zyzzyva'])"), ANSWER)
    assert forged in said(record, 0)
    assert list_words_not_drawn(record.turns) == ["zyzzyva"]


def test_placeholder_is_no_prompt(run: Investigate):
    record = run(code("tools.text2image(['a <thing> on grass'])"), ANSWER)
    assert "holds a placeholder" in said(record, 0)


def test_image_that_was_not_measured_tests_no_label(run: Investigate):
    record = run(code("tools.text2image(['a red circle'])"), ANSWER, ANSWER, overrides=("task.evidence.labels=1",))
    assert record.evidence.state == "unverified"


@pytest.mark.parametrize(
    ("mistake", "advice"),
    [
        ("activations, images, rest = tools.dataset_exemplars(system)", "list of pairs"),
        ("system.call_neuron(system.dataset_exemplars())", "called on tools"),
        ("tools.call_neuron(['a dog'])", "measured with system.call_neuron"),
        ("tools.dataset_exemplars()", "list of pairs"),
        ("from tools import text2image", "defined already"),
        ("open('/tmp/x.png', 'rb')", "files cannot be used"),
    ],
)
def test_frequent_mistake_is_answered_with_the_correct_call(run: Investigate, mistake: str, advice: str):
    record = run(code(mistake), ANSWER)
    assert advice in find_hint(record.turns[0])
    assert words_sent_back(record, 0) == len(find_hint(record.turns[0]).split())


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
        ImageEntry(id=str(n), original="same", mask=None, activation={"value": 1.0}, hypothesis="red") for n in range(5)
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
