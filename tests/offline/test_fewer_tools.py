"""The scripted experimenter without some of its tools."""

import numpy as np
import pytest

from openmaia.agent.tasks.task import load as load_task
from openmaia.agent.tools.api_text import api_text
from openmaia.core.messages import Chat, Message, assistant, system, user
from openmaia.offline.experimenter.eyes import Eyes
from openmaia.offline.experimenter.host import ScriptedBackbone


@pytest.fixture
def blind() -> ScriptedBackbone:
    """An experimenter whose eyes know no objects."""
    return ScriptedBackbone(Eyes(lambda pixels: np.zeros(1000, np.float32)))


def said(backbone: ScriptedBackbone, without: tuple[str, ...], *messages: Message) -> str:
    opening = (system(api_text({}, without=without)), user("Find out what excites the unit."))
    chat = Chat(conversation="", messages=[*opening, *messages], seed=0, max_tokens=100)
    return backbone.reply([chat])[0].text


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
