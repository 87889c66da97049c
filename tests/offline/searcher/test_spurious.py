"""The search's judgement whether a unit is selective for an object or spurious, with a formula as the unit."""

import ast
import re
from collections.abc import Callable, Mapping

import pytest

from openmaia.agent.tasks.grammar import ParsedReply, parse
from openmaia.agent.tasks.task import load
from openmaia.core.messages import Chat, Message, assistant, system, user
from openmaia.core.units import Unit
from openmaia.offline.searcher.host import Searcher

TASK = load("spurious")
UNIT = Unit(target="t", layer="l", index=0)
EXEMPLARS = "\n".join(f"top exemplar: 1\n[image] A {kind} in a meadow at dusk." for kind in ("boat", "boat", "dog"))


def judged(
    unit: Mapping[str, float], *, leaves: Callable[[str], float] = lambda prompt: 0.0, last: str = ""
) -> ParsedReply:
    """The final answer about a unit that sums what each text in a prompt adds.

    Args:
        leaves: Activation after an edit of the image of a prompt.
        last: Ends the conversation after the first measurements.
    """
    messages: list[Message] = [system("the instruments"), user(TASK.question(UNIT, lambda: ""))]
    for _ in range(5):
        (reply,) = Searcher("full").reply([Chat(conversation="", messages=messages, seed=0, max_tokens=1000)])
        parsed = parse(reply.text, TASK.answer)
        if parsed.description is not None:
            return parsed
        if "dataset_exemplars" in parsed.code:
            seen = EXEMPLARS
        else:
            prompts = ast.literal_eval(re.findall(r"prompts = (\[.*?\n\])", parsed.code, re.DOTALL)[0])
            values = [sum(amount for text, amount in unit.items() if text in prompt) for prompt in prompts]
            is_edit = "edit_images" in parsed.code
            if is_edit:
                values = [
                    each for value, prompt in zip(values, prompts, strict=True) for each in (value, leaves(prompt))
                ]
            seen = f"{'edit' if is_edit else 'screen'}: {' '.join(map(str, values))}\n{last}"
        messages += [assistant(reply.text), user(seen)]
    raise AssertionError("no answer in five turns")


def test_unit_of_an_object_is_selective():
    answer = judged({"boat": 5, "dusk": 1})
    assert answer.labels == ("SELECTIVE",)
    assert "highest for a boat" in (answer.description or "")


@pytest.mark.parametrize("context", ["at dusk", "on the beach"])
def test_unit_of_what_comes_along_is_spurious(context: str):
    answer = judged({"boat": 1, context: 5})
    assert answer.labels == ("SPURIOUS",)
    assert context.split()[-1] in (answer.description or "")


def test_unit_that_keeps_its_activation_without_the_object_is_spurious():
    assert judged({"boat": 5}, leaves=lambda prompt: 4.0).labels == ("SPURIOUS",)


def test_objects_of_the_exemplars_are_tried():
    # The dog is among six of dozens of kinds, because an exemplar shows it.
    assert "highest for a dog" in (judged({"dog": 5}).description or "")


def test_search_that_is_told_to_end_answers_by_what_it_has():
    answer = judged({"boat": 5}, last="Write your final answer now, in the form [REASONING]: … [LABEL]: SELECTIVE or …")
    assert answer.labels == ("SELECTIVE",) and "Without the boat" not in (answer.description or "")
