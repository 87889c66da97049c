"""`openmaia.open`: a person with the agent's tools, in-process."""

from pathlib import Path
from typing import Any

import pytest
from IPython.core.interactiveshell import InteractiveShell

import openmaia
from openmaia.core.errors import UsageError
from openmaia.interop import histories
from openmaia.runs.parquet import read_record
from openmaia.runs.records import Stop
from tests.conftest import small_sources
from tests.helpers.mine import TRANSFORM, redness


@pytest.fixture
def sources(settings: list[str], tmp_path: Path) -> list[str]:
    return small_sources(settings, tmp_path / "runs")


def test_the_record_of_a_person_holds_what_they_did(sources: list[str], capsys: pytest.CaptureFixture[str]):
    system, tools = openmaia.open(sources, "_conv_head=66")
    images = tools.text2image(["a guitar on grass", "grass", "a zyzzyva"])
    assert "could not draw 'zyzzyva'" in capsys.readouterr().out
    activations, seen = system.call_neuron(images)
    assert activations[0] > activations[1]
    assert 0 <= activations[0].percentile <= 100
    assert seen[0].pil().size == (224, 224)
    assert seen[0].masked.pil().size == (224, 224)
    edited, captions = tools.edit_images([images[0]], ["replace the guitar with a dog"])
    assert captions == ["Original Image", "Editing Prompt: replace the guitar with a dog"]
    assert system.call_neuron([edited[1]])[0][0] < activations[0]
    tools.display("a note", seen[0])
    assert "[image-4, masked]" in capsys.readouterr().out

    path = tools.answer("stringed instruments", "guitar")
    for again in (lambda: tools.answer("once more", "guitar"), tools.close, lambda: tools.text2image(["grass"])):
        with pytest.raises(ValueError, match=f"has ended with the record {path}"):
            again()
    record = read_record(Path(path).read_bytes())
    assert record.backbone == "human"
    assert record.stop is Stop.ANSWER
    assert record.labels == ("guitar",)
    assert [message.role.value for message in histories.rebuild_conversation(record)] == ["assistant", "user"]
    assert record.tool_calls == {"call_neuron": 2, "display": 1, "edit_images": 1, "text2image": 1}


def test_a_wrong_call_says_what_was_expected(sources: list[str]):
    system, tools = openmaia.open(sources, "_conv_head=66")
    with pytest.raises(ValueError, match="expected one of top, bottom, random, ladder"):
        tools.dataset_exemplars(system, kind="best")
    with pytest.raises(TypeError, match="expected an image"):
        system.call_neuron([3])


def test_exactly_one_unit_is_opened(sources: list[str]):
    with pytest.raises(UsageError, match="names 2 units"):
        openmaia.open(sources, "_conv_head=66,67")


def test_second_session_adds_to_the_run_of_the_first(photos: list[Path], places: dict[str, Any]):
    model = redness().train()
    paths: list[str] = []
    for unit in (0, 0, 1):
        system, tools = openmaia.open(model, "maps", unit, images=photos, preprocess=TRANSFORM, **places)
        assert not model.training
        system.call_neuron(tools.text2image(["a red square", "a blue square"]))
        paths.append(tools.answer(f"answer {len(paths)}", "red"))
        assert model.training
    run = openmaia.load(f"{places['paths']['runs']}/redness-human")
    assert len(set(paths)) == 3
    assert [run.record("maps=0", replicate).description for replicate in (0, 1)] == ["answer 0", "answer 1"]
    assert run.record("maps=1").description == "answer 2"
    assert list(run.units().backbone) == ["human"] * 3
    assert run.run.pending() == []


def test_every_cell_of_a_notebook_is_a_turn(photos: list[Path], places: dict[str, Any]):
    """In a real shell of IPython, in this process."""
    shell = InteractiveShell.instance()
    try:
        shell.user_ns |= {
            "openmaia": openmaia,
            "model": redness(),
            "photos": photos,
            "transform": TRANSFORM,
            "places": places,
        }
        cells = [
            "system, tools = openmaia.open(model, 'maps', 0, person=' ada ', images=photos, preprocess=transform, **places)",
            "images = tools.text2image(['a red square'])\nvalues, seen = system.call_neuron(images)",
            "1 + 1",
            "values, seen = system.call_neuron(images + tools.text2image(['a blue square']))",
            "path = tools.answer('red things', 'red')",
        ]
        for cell in cells:
            shell.run_cell(cell, store_history=True, silent=False).raise_error()
        record = read_record(Path(shell.user_ns["path"]).read_bytes())
    finally:
        InteractiveShell.clear_instance()
    assert record.backbone == "human: ada"
    assert [(turn.index, turn.code) for turn in record.turns] == [(0, cells[1]), (1, cells[3])]
    assert [[call.name for call in turn.calls] for turn in record.turns] == [
        ["text2image", "call_neuron"], ["text2image", "call_neuron"],
    ]  # fmt: skip
    assert [len(turn.images) for turn in record.turns] == [1, 1]  # each image once
    assert all(turn.spent["generator"].requests == 1 for turn in record.turns)


def test_people_investigate_the_units_that_they_were_given(photos: list[Path], places: dict[str, Any]):
    model, given = redness(), {"images": photos, "preprocess": TRANSFORM} | places
    with pytest.raises(UsageError, match="call openmaia.assign first"):
        openmaia.open(model, person="mary", **given)
    shares = openmaia.assign(model, "maps=0,1", ["mary", "grace"], each=2, preprocess=TRANSFORM, **places)
    assert {name: sorted(units) for name, units in shares.items()} == {
        name: ["maps=0", "maps=1"] for name in ("mary", "grace")
    }
    for unit in shares["mary"]:
        _, tools = openmaia.open(model, person="mary", **given)
        record = read_record(Path(tools.close()).read_bytes())
        assert f"{record.unit.layer}={record.unit.index}" == unit
    with pytest.raises(UsageError, match="mary has investigated all 2 units"):
        openmaia.open(model, person="mary", **given)
    with pytest.raises(UsageError, match="eve has no units; openmaia.assign gave some to mary, grace"):
        openmaia.open(model, person="eve", **given)
    with pytest.raises(UsageError, match="no unit is named"):
        openmaia.open(model, **given)
