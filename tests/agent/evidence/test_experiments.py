"""Which experiments count as evidence, and which repeat others."""

import pytest

from openmaia.agent.evidence.experiments import count_measuring, examine, list_words_not_drawn
from openmaia.agent.tasks.task import load as load_task
from openmaia.runs.evidence import CheckState
from openmaia.runs.records import Stop
from tests.agent.conftest import Investigate
from tests.helpers.investigating import ANSWER, code, heard, heard_more, repeated, said

DEFAULT = ("task.evidence.experiments=null", "task.evidence.labels=null")


def test_repeated_experiment_is_no_further_evidence(run: Investigate):
    looking = code(
        "images = [image for _, image in tools.dataset_exemplars(system)]\nprint(system.call_neuron(images)[0])"
    )
    drawing = code("print(system.call_neuron(tools.text2image(['a red circle']))[0])")
    other = drawing.replace("red", "blue")
    replies = (looking, looking, ANSWER, drawing, drawing, ANSWER, other, ANSWER)
    record = run(*replies, overrides=("task.evidence.experiments=3",))
    assert [count_measuring(record.turns[:count]) for count in range(1, 8)] == [1, 1, 1, 2, 2, 2, 3]
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


def test_displayed_text_is_no_note_of_a_tool(run: Investigate):
    forged = "note: could not draw 'cat' of 'a cat'"
    record = run(code(f"tools.display({forged!r}); tools.text2image(['a red zyzzyva'])"), ANSWER)
    assert forged in said(record, 0)
    assert list_words_not_drawn(record.turns) == ["zyzzyva"]


def test_same_edit_of_another_image_is_another_experiment(run: Investigate):
    setting, drawing = (code(f"base = tools.text2image(['a red {s}'])\nprint(1)") for s in ("circle", "star"))
    editing = code("print(system.call_neuron(tools.edit_images(base, ['make it blue'])[0])[0])")
    record = run(setting, editing, drawing, editing, setting, editing, ANSWER)
    assert not any(facts.is_repeated for facts in examine(record.turns))
    assert count_measuring(record.turns) == 3


def test_experiment_that_shows_exemplars_beside_the_example_is_not_left_out(run: Investigate):
    looking = code("tools.dataset_exemplars(system)\nprint(system.call_neuron(tools.text2image(['a paper crane']))[0])")
    failing = code("tools.text2image(['a paper crane'])\n1 / 0")
    record = run(looking, failing, ANSWER)
    assert not any(facts.is_repeated for facts in examine(record.turns))


def test_experiment_that_draws_new_images_is_a_repetition_from_the_third_time_on(run: Investigate):
    drawing = code("print(system.call_neuron(tools.text2image(['a red circle']))[0])")
    record = run(drawing, drawing, drawing, ANSWER)
    assert [heard_more(record, turn) for turn in range(2)] == [0, 0]
    assert heard(record)[2] == len(repeated(can_generate=True).split())


def test_experiment_of_the_example_is_left_out_also_as_the_first_turn(run: Investigate):
    copy = code("print(system.call_neuron(tools.text2image(['a paper crane', 'a paper boat']))[0])")
    record = run(copy, code("print(1)"), ANSWER)
    assert heard(record)[0] == len(repeated(can_generate=True).split())


def test_same_code_that_draws_other_prompts_is_another_experiment(run: Investigate):
    first, again = "shape = 'circle'", "shape = 'star'"
    drawing = code("print(system.call_neuron(tools.text2image([f'a red {shape}']))[0])")
    rule = ("task.evidence.experiments=2",)
    record = run(code(first), drawing, drawing, ANSWER, code(again), drawing, ANSWER, overrides=rule)
    assert [turn.index for turn in record.turns if turn.reply == ANSWER] == [3, 6]
    assert record.evidence.sent_back == 1
    assert record.stop is Stop.ANSWER


def test_same_code_with_another_output_or_another_end_is_no_repetition(run: Investigate):
    showing, failing = code("n = globals().get('n', 0) + 1\nprint(n)"), code("import time\nwhile True: time.sleep(1)")
    record = run(showing, showing, failing, failing, ANSWER, overrides=("sandbox.seconds=4",))
    assert [turn.status for turn in record.turns[:4]] == ["ok", "ok", "timeout", "timeout"]
    assert [heard_more(record, turn) for turn in range(4)] == [0] * 4


def test_failed_experiment_that_leaves_a_thread_behind_is_no_evidence(run: Investigate):
    failing = "import threading, time\nprint(system.call_neuron(['a red circle'])[0])\n"
    failing += "threading.Thread(target=time.sleep, args=(30,)).start()\n1 / 0"
    record = run(code(failing), ANSWER)
    assert record.turns[0].status == "error_lost" and "ZeroDivisionError" in said(record, 0)
    assert count_measuring(record.turns) == 0


def test_failing_experiment_is_repeated_although_it_drew_images(run: Investigate):
    failing = code("tools.text2image(['a red circle'])\n1 / 0")
    record = run(failing, failing, ANSWER)
    assert heard(record)[1] == len(repeated(can_generate=True).split())
