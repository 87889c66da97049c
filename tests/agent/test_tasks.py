"""Tasks are data: those that ship, one of a user's own, and questions about a whole layer."""

from pathlib import Path

import numpy as np
import pytest

from openmaia.agent.tasks.grammar import parse
from openmaia.agent.tasks.task import load
from openmaia.core.errors import UsageError
from openmaia.core.images import Rendering, draw_outline
from openmaia.core.messages import AnswerFormat
from openmaia.core.selection import select
from openmaia.core.units import NETWORK, WHOLE, Scope, TargetInfo, Unit
from openmaia.runs.records import Stop
from tests.agent.conftest import Investigate
from tests.helpers.investigating import code, said

LAYER = Unit(target="closed_form", layer="mono", index=WHOLE)
INFO = TargetInfo(name="net", layers={"a": 3, "b.c": 2}, digest="0", input_size=(8, 8))


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """A task that the code has never heard of: a verdict in a section of its own."""
    folder = tmp_path / "reliable"
    folder.mkdir()
    (folder / "user.md").write_text("Is unit {unit} of {layer} reliable?")
    (folder / "task.yaml").write_text(
        "rendering: outline\nanswer: {text: WHY, labels: VERDICT, decided_by: VERDICT, choices: [keep, drop]}\n"
    )
    return folder


def test_own_task_runs_end_to_end(own: Path, run: Investigate):
    reply = "[WHY]: it follows\nthe colour\n[VERDICT]: Drop."
    record = run(code("print(1)"), "[VERDICT]: perhaps", reply, overrides=(f"task.name={own}",))
    assert (record.stop, record.description, record.labels) == (Stop.ANSWER, "it follows the colour", ("DROP",))
    assert record.task == "reliable"
    assert record.prompts[1].strip() == "Is unit 0 of mono reliable?"
    assert len(record.turns) == 3, "a verdict outside of the choices is no answer"


def test_choice_that_yaml_does_not_read_as_a_text_is_refused(own: Path):
    (own / "task.yaml").write_text("answer: {labels: VERDICT, decided_by: VERDICT, choices: [yes, no]}\n")
    with pytest.raises(UsageError, match=r"task\.yaml: answer\.choices: YAML reads a choice as True, not as a text"):
        load(str(own))


def test_layer_task_finds_planted_units(own: Path, run: Investigate):
    (own / "task.yaml").write_text("scope: layer\n")
    (own / "user.md").write_text("Which units of {layer} respond to red?")
    look = code(
        "red, blue = (np.full((64, 64, 3), c, dtype=np.uint8) for c in ([255, 0, 0], [0, 0, 255]))\n"
        "a, b = system.responses([red, blue], 'mono')\n"
        "found = [i for i in range(system.layers()['mono']) if a[i] > 2 * b[i] + 0.1]\n"
        "print('units', found)\n"
        "print(len(tools.dataset_exemplars(system.unit('mono', found[0]))), system.unit('mono', 0).neuron([red])[0])"
    ).replace("```python\n", "```python\nimport numpy as np\n")
    answer = "[DESCRIPTION]: unit 0 responds to red\n[LABEL 1]: unit 0"
    record = run(look, answer, unit=LAYER, overrides=(f"task.name={own}",))
    assert "units [0]\n15 [1" in said(record, 0)
    assert record.unit == LAYER
    assert "Which units of mono" in record.prompts[1]
    assert "responses(images" in record.prompts[0]


@pytest.mark.parametrize(
    ("program", "told"),
    [
        ("system.responses([], 'or')", "there is no layer 'or' to ask about"),
        ("system.unit('mono', 99).neuron([])", "has no unit 99"),
        ("tools.dataset_exemplars(system)", "which unit?"),
    ],
)
def test_calls_outside_of_the_scope_are_refused(own: Path, run: Investigate, program: str, told: str):
    (own / "task.yaml").write_text("scope: layer\n")
    record = run(code(program), "[DESCRIPTION]: NONE", unit=LAYER, overrides=(f"task.name={own}",))
    assert told in said(record, 0)


def test_unit_task_reaches_no_other_unit(run: Investigate):
    looks = code("tools.dataset_exemplars(type(system)(system._call, 'mono', 1))")
    record = run(looks, "[DESCRIPTION]: NONE")
    assert "there is no layer 'mono' to ask about" in said(record, 0)


@pytest.mark.parametrize(
    ("said_", "label"),
    [("SPURIOUS", "SPURIOUS"), ("**selective**", "SELECTIVE"), ("It is spurious.", "SPURIOUS")],
)
def test_spurious_verdict_is_read(said_: str, label: str):
    parsed = parse(f"[REASONING]: it follows the grass\n[LABEL]: {said_}", load("spurious").answer)
    assert (parsed.description, parsed.labels) == ("it follows the grass", (label,))


@pytest.mark.parametrize("said_", ["unsure", "SELECTIVE or SPURIOUS", "NONE"])
def test_invalid_verdict_is_refused(said_: str):
    parsed = parse(f"[REASONING]: hm\n[LABEL]: {said_}", load("spurious").answer)
    assert parsed.description is None
    assert "none of SELECTIVE, SPURIOUS" in parsed.problem


def test_verdict_without_reasons_is_a_verdict():
    assert parse("[LABEL]: SPURIOUS", load("spurious").answer).description == "SPURIOUS"


def test_bias_task_accepts_only_a_bias():
    answer = load("bias").answer
    parsed = parse("[BIAS]: higher on snow\n[LABEL 1]: + snow", answer)
    assert (parsed.description, parsed.labels) == ("higher on snow", ("+ snow",))
    assert parse("[DESCRIPTION]: dogs", answer).description is None
    assert parse("[BIAS]: NONE", answer).description == ""


def test_bias_question_names_the_class():
    unit = Unit(target="net", layer="output", index=3)
    assert "The class is: tiger cat\n" in load("bias").question(unit, lambda: "tiger cat")


def test_bias_task_refuses_other_units(run: Investigate):
    with pytest.raises(
        UsageError, match=r"closed_form/mono/0 is none that has a name; give classes .* units=output=NAME"
    ):
        run("[BIAS]: NONE", overrides=("task.name=bias",))


def test_headings_of_other_tasks_end_sections():
    assert parse("[DESCRIPTION]: a\n[BIAS]: b\n[LABEL 1]: c", AnswerFormat()).labels == ("c",)


@pytest.mark.parametrize("name", ["description", "published", "spurious", "bias"])
def test_shipped_task_is_complete(name: str):
    task = load(name)
    assert task.scope is Scope.UNIT
    assert f"[{task.answer.decided_by}" in task.final
    assert "{api}" in task.system


def test_spurious_units_are_outlined():
    assert load("spurious").rendering is Rendering.OUTLINE


@pytest.mark.parametrize(
    ("content", "named"),
    [
        ("scope: galaxy", "'galaxy'; expected unit or layer or network"),
        ("rendering: neon", "expected darken or outline"),
        ("colour: red", "colour"),
        ("answer: {decided_by: OTHER}", "answer.decided_by='OTHER'"),
        ("- a list", "task.yaml"),
        ("scope: [", "task.yaml"),
    ],
)
def test_invalid_task_file_is_named(own: Path, content: str, named: str):
    (own / "task.yaml").write_text(content)
    with pytest.raises(UsageError, match=named.replace("[", r"\[")):
        load(str(own))


def test_layers_are_chosen_by_name():
    assert [u.layer for u in select("b.c:a", INFO, Scope.LAYER).units] == ["b.c", "a"]
    assert [u.layer for u in select("all", INFO, Scope.LAYER).units] == ["a", "b.c"]
    with pytest.raises(UsageError, match="unknown layer"):
        select("nothing", INFO, Scope.LAYER)


def test_of_a_network_there_is_one():
    assert select("all", INFO, Scope.NETWORK).units == (Unit(target="net", layer=NETWORK, index=WHOLE),)
    assert [str(Unit(target="net", layer=name, index=WHOLE)) for name in ("a", NETWORK)] == ["net/a", "net"]


def test_outline_is_red_inside_the_mask_only():
    pixels = np.zeros((20, 20, 3), dtype=np.uint8)
    mask = np.zeros((20, 20), dtype=np.bool_)
    mask[5:15, 5:15] = True
    drawn = draw_outline(pixels, mask)
    red = (drawn == [255, 0, 0]).all(axis=2)
    assert red[5:15, 5:7].all() and red[13:15, 5:15].all()
    assert not red[7:13, 7:13].any() and not red[~mask].any()


def test_outline_closes_at_the_border():
    drawn = draw_outline(np.zeros((8, 8, 3), dtype=np.uint8), np.ones((8, 8), dtype=np.bool_))
    assert (drawn[0] == [255, 0, 0]).all() and (drawn[3:5, 3:5] == 0).all()
