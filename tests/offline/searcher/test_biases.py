"""The search for biases of a class, with a formula as the classifier."""

import ast
import random
import re
from collections.abc import Callable, Sequence

import pytest

from openmaia.agent.tasks.grammar import ParsedReply, parse
from openmaia.agent.tasks.task import load
from openmaia.assembly import investigations
from openmaia.config.loading import load as load_config
from openmaia.core.messages import Chat, Message, assistant, system, user
from openmaia.core.units import OUTPUT, Unit
from openmaia.evaluation.language_model import UnansweredQuestion
from openmaia.offline.scenes.grammar import read
from openmaia.offline.scenes.truth import holds
from openmaia.offline.searcher.contexts import SceneContextWriter, contexts
from openmaia.offline.searcher.host import Searcher
from openmaia.offline.searcher.rules import SceneRules
from openmaia.offline.searcher.writer import SceneContrasts

TASK = load("bias")
UNIT = Unit(target="t", layer=OUTPUT, index=0)


def answered(
    name: str,
    logit: Callable[[str], float],
    last_call: str = "",
    without: Sequence[str] = (),
    drawn: list[str] | None = None,
) -> ParsedReply:
    """The final answer. Noise is drawn by the image's number; `last_call` ends the conversation after the screening. `drawn`
    gets all prompts."""
    noise = random.Random(3)
    messages: list[Message] = [system("the instruments"), user(TASK.question(UNIT, lambda: name))]
    for _ in range(5):
        (reply,) = Searcher("full", without).reply([Chat(conversation="", messages=messages, seed=0, max_tokens=1000)])
        parsed = parse(reply.text, TASK.answer)
        if parsed.description is not None:
            return parsed
        prompts = ast.literal_eval(re.findall(r"prompts = (\[.*?\n\])", parsed.code, re.DOTALL)[0])
        if drawn is not None:
            drawn += prompts
        stage = "screen" if 'show("screen"' in parsed.code else "pair"
        values = " ".join(f"{logit(prompt) + noise.gauss(0, 0.5):.5g}" for prompt in prompts)
        messages += [assistant(reply.text), user(f"{stage}: {values}\n{last_call}")]
    raise AssertionError("no answer in five turns")


@pytest.mark.parametrize(
    ("part", "effect", "label"),
    [
        (" at dusk", 3.0, "+ dusk"),
        (" at night", -3.0, "- night"),
        ("in the snow", 3.0, "+ snow"),
        ("in the fog", -3.0, "- fog"),
        ("by day", 3.0, "+ day"),
    ],
)
def test_planted_context_is_claimed_first_with_its_sign(part: str, effect: float, label: str):
    assert answered("boat", lambda prompt: effect * (part in prompt)).labels[0] == label


def test_class_without_bias_gets_no_claim():
    assert answered("car", lambda prompt: 0.0).labels == ()


def test_search_is_silent_about_classes_that_no_prompt_can_show():
    assert answered("strawberry ice", lambda prompt: 5.0 * ("dusk" in prompt)).labels == ()


def test_search_that_is_told_to_end_claims_nothing_unconfirmed():
    answer = answered(
        "boat", lambda prompt: 3.0 * ("dusk" in prompt), last_call="Write your final answer, in the form [BIAS]: …"
    )
    assert answer.labels == ()


@pytest.mark.parametrize("context", ["dusk", "snow", "fog", "boats look likelier at dusk"])
def test_written_pairs_differ_in_the_context_alone(context: str):
    pairs = SceneContextWriter().write("boat", context, 20, 0)
    word = context.split()[-1]
    for having, without in pairs:
        one, other = (read(text, 5)[0] for text in (having, without))
        assert holds(one, word) is True and holds(other, word) is False
        assert one.figures == other.figures and [each.kind for each in one.figures] == ["boat"]
        settings = [(each.place, each.time, each.weather) for each in (one, other)]
        assert sum(first != second for first, second in zip(*settings, strict=True)) == 1


def test_written_pairs_without_the_class_show_another_kind():
    for pair in SceneContextWriter().write("boat", "dusk", 10, 0, absent=True):
        assert all(holds(read(text, 0)[0], "boat") is False for text in pair)


@pytest.mark.parametrize(("name", "context"), [("boat", "a friendly mood"), ("strawberry ice", "dusk")])
def test_writer_refuses_what_it_cannot_write(name: str, context: str):
    with pytest.raises(UnansweredQuestion):
        SceneContextWriter().write(name, context, 5, 0)


WITHOUT = ("dusk", "snow", "fog", "car", "day")


def test_search_keeps_to_the_words_of_the_generator():
    drawn: list[str] = []
    found = answered("boat", lambda prompt: 4.0 * ("morning" in prompt), without=WITHOUT, drawn=drawn)
    assert found.labels == ("+ morning", "- night") and len(drawn) > 160
    assert {word for prompt in drawn for word in read(prompt, 0, WITHOUT)[1]} == set()


def test_search_claims_nothing_of_a_class_or_a_context_that_the_generator_does_not_know():
    assert answered("car", lambda prompt: 4.0 * ("morning" in prompt), without=WITHOUT).labels == ()
    all_but_one = tuple(each for each in contexts() if each != "night")
    assert answered("boat", lambda prompt: 4.0 * ("night" in prompt), without=all_but_one).labels == ()


@pytest.mark.parametrize("is_absent", [False, True])
def test_written_pairs_keep_to_the_words_of_the_generator(is_absent: bool):
    pairs = SceneContextWriter(WITHOUT).write("boat", "morning", 60, 0, absent=is_absent)
    assert {word for pair in pairs for prompt in pair for word in read(prompt, 0, WITHOUT)[1]} == set()
    assert {read(other, 0)[0].time for _, other in pairs} == {"night"}


@pytest.mark.parametrize(("name", "context"), [("boat", "dusk"), ("car", "morning")])
def test_writer_refuses_what_the_generator_does_not_know(name: str, context: str):
    with pytest.raises(UnansweredQuestion, match="the generator"):
        SceneContextWriter(WITHOUT).write(name, context, 5, 0)


def test_rules_take_the_words_to_leave_out_from_the_generator():
    config = load_config(
        ["name=x", "units=all", "target.name=t", "backbone.kind=searcher", f"generator.without=[{','.join(WITHOUT)}]"]
    )
    made, knows_class = SceneRules.contexts(config.generator)
    assert [knows_class(name) for name in ("boat", "car", "strawberry ice")] == [True, False, False]
    with pytest.raises(UnansweredQuestion, match="the generator"):
        made.write("boat", "dusk", 5, 0)
    finder = investigations.contrasts(config)
    assert isinstance(finder, SceneContrasts)
    assert {word for each in finder.find(["boat"], (), 20) for word in read(each.prompt, 0, WITHOUT)[1]} == set()
