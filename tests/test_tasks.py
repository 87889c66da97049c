"""Tasks are data: those that ship, one of a user's own, and questions about a whole layer."""

from pathlib import Path

import numpy as np
import pytest

from openmaia import build, exemplars
from openmaia.agent import investigate
from openmaia.errors import UsageError
from openmaia.images import Rendering, outlined
from openmaia.store.records import Record, Stop
from openmaia.tasks.grammar import Answer, parse
from openmaia.tasks.rule import Rule
from openmaia.tasks.task import load
from openmaia.units import NETWORK, WHOLE, Scope, TargetInfo, Unit, select
from tests.test_loop import code, configured, pictures, said

__all__ = ["pictures"]

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


def run(
    unit: Unit,
    task: Path | str,
    pictures: Path,
    store: Path,
    tmp_path: Path,
    *replies: str,
    overrides: tuple[str, ...] = (),
) -> Record:
    config = configured(pictures, store, tmp_path, replies, overrides)
    services = build.services(config, exemplars.make(config, ["mono"]))
    return investigate(unit, load(str(task)), services, build.options(config))


def test_a_task_of_ones_own_runs_end_to_end(own: Path, pictures: Path, exemplars_folder: Path, tmp_path: Path):
    unit = Unit(target="closed_form", layer="mono", index=0)
    reply = "[WHY]: it follows\nthe colour\n[VERDICT]: Drop."
    record = run(unit, own, pictures, exemplars_folder, tmp_path, code("print(1)"), "[VERDICT]: perhaps", reply)
    assert (record.stop, record.description, record.labels) == (Stop.ANSWER, "it follows the colour", ("DROP",))
    assert record.task == "reliable"
    assert record.prompts[1].strip() == "Is unit 0 of mono reliable?"
    assert len(record.turns) == 3, "a verdict outside of the choices is no answer"


def test_a_question_about_a_layer_finds_the_units_that_were_planted(
    own: Path, pictures: Path, exemplars_folder: Path, tmp_path: Path
):
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
    record = run(LAYER, own, pictures, exemplars_folder, tmp_path, look, answer)
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
def test_outside_of_the_question_nothing_is_answered(
    own: Path, pictures: Path, exemplars_folder: Path, tmp_path: Path, program: str, told: str
):
    (own / "task.yaml").write_text("scope: layer\n")
    record = run(LAYER, own, pictures, exemplars_folder, tmp_path, code(program), "[DESCRIPTION]: NONE")
    assert told in said(record, 0)


def test_one_unit_is_no_way_to_the_others(pictures: Path, exemplars_folder: Path, tmp_path: Path):
    unit = Unit(target="closed_form", layer="mono", index=0)
    looks = code("tools.dataset_exemplars(type(system)(system._call, 'mono', 1))")
    record = run(unit, "description", pictures, exemplars_folder, tmp_path, looks, "[DESCRIPTION]: NONE")
    assert "there is no layer 'mono' to ask about" in said(record, 0)


@pytest.mark.parametrize(
    ("said_", "label"),
    [("SPURIOUS", "SPURIOUS"), ("**selective**", "SELECTIVE"), ("It is spurious.", "SPURIOUS")],
)
def test_the_verdict_of_the_spurious_task_is_read(said_: str, label: str):
    parsed = parse(f"[REASONING]: it follows the grass\n[LABEL]: {said_}", load("spurious").answer)
    assert (parsed.description, parsed.labels) == ("it follows the grass", (label,))


@pytest.mark.parametrize("said_", ["unsure", "SELECTIVE or SPURIOUS", "NONE"])
def test_what_is_no_verdict_is_told_and_not_taken(said_: str):
    parsed = parse(f"[REASONING]: hm\n[LABEL]: {said_}", load("spurious").answer)
    assert parsed.description is None
    assert "none of SELECTIVE, SPURIOUS" in parsed.problem


def test_a_verdict_without_reasons_is_a_verdict():
    assert parse("[LABEL]: SPURIOUS", load("spurious").answer).description == "SPURIOUS"


def test_a_bias_is_the_answer_of_the_bias_task_and_a_description_is_none():
    answer = load("bias").answer
    parsed = parse("[BIAS]: higher on snow\n[LABEL 1]: + snow", answer)
    assert (parsed.description, parsed.labels) == ("higher on snow", ("+ snow",))
    assert parse("[DESCRIPTION]: dogs", answer).description is None
    assert parse("[BIAS]: NONE", answer).description == ""


def test_the_question_about_a_bias_names_the_class():
    unit = Unit(target="net", layer="output", index=3)
    assert "The class is: tiger cat\n" in load("bias").question(unit, Rule(), lambda: "tiger cat")


def test_a_unit_that_is_no_class_cannot_be_asked_about_biases(pictures: Path, exemplars_folder: Path, tmp_path: Path):
    unit = Unit(target="closed_form", layer="mono", index=0)
    with pytest.raises(
        UsageError, match=r"closed_form/mono/0 is none that has a name; give classes .* units=output=NAME"
    ):
        run(unit, "bias", pictures, exemplars_folder, tmp_path, "[BIAS]: NONE")


def test_headings_of_other_tasks_hold_nothing_back():
    assert parse("[DESCRIPTION]: a\n[BIAS]: b\n[LABEL 1]: c", Answer()).labels == ("c",)


@pytest.mark.parametrize("name", ["description", "spurious", "bias"])
def test_what_ships_has_a_question_and_its_own_last_words(name: str):
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
def test_a_task_file_that_cannot_be_understood_is_named(own: Path, content: str, named: str):
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


def test_an_outline_is_red_inside_the_mask_and_nowhere_else():
    pixels = np.zeros((20, 20, 3), dtype=np.uint8)
    mask = np.zeros((20, 20), dtype=np.bool_)
    mask[5:15, 5:15] = True
    drawn = outlined(pixels, mask)
    red = (drawn == [255, 0, 0]).all(axis=2)
    assert red[5:15, 5:7].all() and red[13:15, 5:15].all()
    assert not red[7:13, 7:13].any() and not red[~mask].any()


def test_an_outline_closes_at_the_border():
    drawn = outlined(np.zeros((8, 8, 3), dtype=np.uint8), np.ones((8, 8), dtype=np.bool_))
    assert (drawn[0] == [255, 0, 0]).all() and (drawn[3:5, 3:5] == 0).all()
