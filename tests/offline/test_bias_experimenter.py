"""The scripted experimenter on the task `bias`, with a formula as the classifier."""

import ast
import random
import re
import zlib
from collections.abc import Callable

import pytest

from openmaia.agent.tasks.grammar import ParsedReply, parse
from openmaia.agent.tasks.task import load
from openmaia.core.messages import Message, assistant, system, user
from openmaia.core.units import OUTPUT, Unit
from openmaia.offline.experimenter import contexts

TASK = load("bias")
UNIT = Unit(target="t", layer=OUTPUT, index=0)

Logit = Callable[[str], float]


def opening(name: str) -> list[Message]:
    return [system("the instruments"), user(TASK.question(UNIT, lambda: name))]


def conversation(
    name: str, logit: Logit, missing_terms: tuple[str, ...] = (), raw: bool = True
) -> tuple[ParsedReply, int]:
    """The final answer, and the number of pictures asked for. Noise is drawn by the picture's number."""
    messages, shown = opening(name), 0
    for _ in range(12):
        parsed = parse(contexts.reply(messages), TASK.answer)
        if parsed.description is not None:
            return parsed, shown
        prompts = ast.literal_eval(re.findall(r"prompts = (\[.*?\n\])", parsed.code, re.DOTALL)[0])
        stage = "confirm" if "confirm {" in parsed.code else "screen"
        lines: list[str] = []
        for prompt in prompts:
            noise = random.Random(zlib.crc32(f"{shown} {prompt}".encode())).gauss(0, 0.5)
            value = logit(prompt) + noise
            lines.append(f"{stage} {1 / (1 + 2.718281828**-value):.5g} {value if raw else None} | {prompt}")
            shown += 1
        lines += [
            f"note: could not draw 'x' of {prompt!r}" for prompt in prompts if any(u in prompt for u in missing_terms)
        ]
        messages += [assistant(contexts.reply(messages)), user("\n".join(lines))]
    raise AssertionError("no answer in twelve turns")


@pytest.mark.parametrize(
    ("part", "effect", "label"),
    [
        ("on snow", 2.0, "+ snow as the ground"),
        ("on a red background", -2.0, "- red background"),
        ("next to a ball", 2.0, "+ a ball beside it"),
        ("a small cow", -2.0, "- small object"),
        ("at the left", 2.0, "+ object at the left"),
    ],
)
def test_bias_is_claimed_with_its_direction(part: str, effect: float, label: str):
    answer, _ = conversation("cow", lambda prompt: effect * (part in prompt))
    assert answer.labels[0] == label
    assert len(answer.labels) == 1


def test_interacting_contexts_are_claimed():
    def logit(prompt: str) -> float:
        red, ball = " on a red background" in prompt, " next to a ball" in prompt
        return 3.0 * (max(red, ball) / 3 + min(red, ball) * 2 / 3)

    answer, _ = conversation("cow", logit)
    assert {"+ red background", "+ a ball beside it"} & set(answer.labels)


def test_unbiased_classes_get_no_claim():
    """The layouts differ, as they do for every classifier: an object beside something is smaller."""
    names = ["cow", "bird", "tool", "vehicle", "strawberry", "ball", "carnivore", "fish"]
    answers = [conversation(name, lambda prompt: -1.0 * (" next to " in prompt))[0] for name in names]
    assert sum(bool(answer.labels) for answer in answers) <= 1


def test_undrawable_class_gets_no_claim():
    answer, shown = conversation("accordion", lambda prompt: 3.0 * ("snow" in prompt), missing_terms=("accordion",))
    assert answer.description == "" and shown < 250


def test_probabilities_replace_logits():
    answer, _ = conversation("cow", lambda prompt: 2.0 * ("on snow" in prompt), raw=False)
    assert answer.labels == ("+ snow as the ground",)


def test_related_objects_are_no_contexts():
    assert not {"carnivore", "mammal"} & set(contexts.things("carnivore"))
    assert "mammal" not in contexts.things("cow")
    assert all("carnivore next to a carnivore" not in prompt for prompt in contexts.screen("carnivore"))


def test_last_call_ends_the_investigation():
    messages = [*opening("cow"), assistant("x"), user(f"screen 0.5 0.1 | a cow on snow\n{TASK.final}")]
    assert parse(contexts.reply(messages), TASK.answer).description == ""


def test_reply_depends_on_the_messages_only():
    assert contexts.reply(opening("cow")) == contexts.reply(opening("cow"))


def test_class_name_is_a_literal_in_code():
    """The class's name comes from a checkpoint and may hold anything."""
    code = parse(contexts.reply(opening("cow'); import os #")), TASK.answer).code
    names = {node.id for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Name)}
    assert "os" not in names
