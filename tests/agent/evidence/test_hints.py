"""Hints about mistakes in the code of an experiment."""

import pytest

from openmaia.agent.evidence.hints import DISPLAY, find_hint
from tests.agent.conftest import Investigate
from tests.helpers.investigating import ANSWER, code, heard_more


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
    assert heard_more(record, 0) == len(find_hint(record.turns[0]).split())


@pytest.mark.parametrize(
    ("text", "is_told"),
    [("print(images[0])", True), ("print(images[0])\ntools.display(images[0])", False), ("print(activations)", False)],
)
def test_agent_that_prints_an_image_is_told_how_to_see_it(run: Investigate, text: str, is_told: bool):
    record = run(code(f"activations, images = system.call_neuron(['a red circle'])\n{text}"), ANSWER)
    assert heard_more(record, 0) == (len(f"Hint: {DISPLAY}.".split()) if is_told else 0)
