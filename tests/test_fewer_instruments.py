"""Agents without some of their instruments."""

from pathlib import Path

import numpy as np
import pytest

from openmaia import build, exemplars
from openmaia.agent import investigate
from openmaia.backbones.eyes import Eyes
from openmaia.backbones.scripted import ScriptedBackbone
from openmaia.messages import Chat, Message, assistant, system, user
from openmaia.store.records import Record
from openmaia.tasks.task import load as load_task
from openmaia.tools.api_text import api_text
from tests.test_loop import ANSWER, UNIT, code, configured, pictures

__all__ = ["pictures"]


@pytest.fixture
def blind() -> ScriptedBackbone:
    """An experimenter whose eyes know no objects."""
    return ScriptedBackbone(Eyes(lambda pixels: np.zeros(1000, np.float32)))


def said(backbone: ScriptedBackbone, without: tuple[str, ...], *messages: Message) -> str:
    opening = (system(api_text({}, without=without)), user("Find out what excites the unit."))
    chat = Chat(conversation="", messages=[*opening, *messages], seed=0, max_tokens=100)
    return backbone.reply([chat])[0].text


def run(without: str, pictures: Path, exemplars_folder: Path, tmp_path: Path, *replies: str) -> Record:
    config = configured(pictures, exemplars_folder, tmp_path, replies, (f"without=[{without}]",))
    services = build.services(config, exemplars.make(config, [UNIT.layer]))
    return investigate(UNIT, load_task("description"), services, build.options(config))


def test_what_is_left_out_cannot_be_called_and_the_prompt_says_so(
    pictures: Path, exemplars_folder: Path, tmp_path: Path
):
    record = run("text2image", pictures, exemplars_folder, tmp_path, code("tools.text2image(['red'])"), ANSWER)
    assert "there is no tool 'text2image'" in (record.turns[0].calls[0].error or "")
    assert "Not available in this investigation: tools.text2image." in record.prompts[0]


def test_nothing_is_drawn_by_way_of_an_edit(pictures: Path, exemplars_folder: Path, tmp_path: Path):
    tried = code("tools.edit_images(['a red circle'], ['make it blue'])")
    record = run("text2image", pictures, exemplars_folder, tmp_path, tried, ANSWER)
    assert "prompts cannot be drawn here" in (record.turns[0].calls[0].error or "")


def test_the_experimenter_begins_with_what_it_has(blind: ScriptedBackbone):
    assert "tools.dataset_exemplars" in said(blind, ())
    assert "tools.dataset_exemplars" not in (reply := said(blind, ("dataset_exemplars",)))
    assert "screen" in reply


def test_with_exemplars_alone_the_experimenter_answers_from_them_or_not_at_all(blind: ScriptedBackbone):
    seen = (assistant("[CODE]: …"), user("top 0: 1 (percentile 99)\nrandom 0: 0 (percentile 5)\n"))
    assert "[DESCRIPTION]: NONE" in said(blind, ("text2image", "edit_images"), *seen)


def test_an_experimenter_whose_abstention_came_too_early_experiments_again(blind: ScriptedBackbone):
    flat = "\n".join(f"screen 1 (percentile 50) | a plain red picture {n}" for n in range(20))
    seen = (assistant("x"), user("top 0: 1 (percentile 99)\n"), assistant("y"), user(flat))
    early = (assistant("[DESCRIPTION]: NONE"), user(load_task("description").missing))
    assert "[DESCRIPTION]: NONE" in said(blind, (), *seen)
    assert "system.call_neuron" in said(blind, (), *seen, *early)
