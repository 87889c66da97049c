"""Questions to language models: answers that parse, answers that do not, and prompts that are written from them."""

import pytest

from openmaia.config.loading import load
from openmaia.config.schema import prompt_writer
from openmaia.core.errors import ServiceError
from openmaia.core.units import Unit
from openmaia.evaluation.analysis.overlap import explored
from openmaia.evaluation.claims import Claim
from openmaia.evaluation.language_model import (
    MAX_ATTEMPTS,
    MalformedAnswer,
    UnansweredQuestion,
    is_foreign,
    parse_list,
    parse_pairs,
)
from openmaia.evaluation.prompts import ModelPromptWriter, PromptPreset, PublishedPromptWriter, parse_numbers
from openmaia.evaluation.services import EvaluationDesign
from tests.evaluation.scripted_model import ScriptedModel, answering, model

UNIT = Unit(target="t", layer="l", index=3)
THREE = "1. a dog\n2. a cat\n3. a cow"
REFUSAL = "I'm sorry, but I can't help with that."
CHINESE = "1. 一只狗\n2. 一只猫\n3. 一头牛"


def claim(*labels: str, description: str = "striped animals", method: str = "agent") -> Claim:
    return Claim(unit=UNIT, labels=labels, description=description, method=method)


# -- parsing -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "answer",
    [
        THREE,
        "a dog\na cat\na cow",
        "- a dog\n- a cat\n\n- a cow\n",
        "Here are the prompts:\n\n1) a dog\n2) a cat\n3) a cow\nEnjoy!",
        '1. "a dog"\n2. **a cat**\n3. a cow',
        "(1) a dog\n(2) a cat\n(3) a cow",
    ],
)
def test_list_parses_common_styles(answer: str):
    assert parse_list(answer, 3) == ["a dog", "a cat", "a cow"]


@pytest.mark.parametrize(
    "answer",
    ["", REFUSAL, "a dog\na cat", THREE + "\n4. a pig", "1. a dog\n2. a dog\n3. A DOG", "1. x\n2. y\n3. " + "z" * 401,
     CHINESE, "1. собака\n2. кошка\n3. корова", "1. 🐕\n2. 🐈\n3. 🐄"],
)  # fmt: skip
def test_list_refuses_other_answers(answer: str):
    with pytest.raises(MalformedAnswer):
        parse_list(answer, 3)


def test_pairs_need_two_different_halves():
    assert parse_pairs("1. a dog | a cup\n2. a cat | a jug", 2) == [("a dog", "a cup"), ("a cat", "a jug")]
    for answer in ("1. a dog | a dog\n2. a cat | a jug", "1. a dog\n2. a cat | a jug", "1. a dog |\n2. a | b"):
        with pytest.raises(MalformedAnswer):
            parse_pairs(answer, 2)


def test_accents_are_not_foreign():
    assert not is_foreign("a café façade, naïve style")


def test_numbers_parse():
    assert parse_numbers("1, 3 and 4.", 5) == {0, 2, 3}
    assert parse_numbers("None.", 5) == frozenset()
    for answer in (REFUSAL, "1, 6", "0", "1-5", "None of the 3 prompts.", "1" * 5000):
        with pytest.raises(MalformedAnswer):
            parse_numbers(answer, 5)


# -- asking --------------------------------------------------------------------------------------------------------------


def test_malformed_answer_is_asked_again_with_reason():
    backbone = answering("a dog", THREE)
    prompts = PublishedPromptWriter(model(backbone), "paper").write(claim(), 3, 0)
    assert [each.prompt for each in prompts[:3]] == ["a dog", "a cat", "a cow"]
    again = backbone.chats[1].messages
    assert again[2].text == "a dog"
    assert "1 lines came where 3 prompts were asked for" in again[3].text


@pytest.mark.parametrize("answer", ["a dog", REFUSAL, "", CHINESE])
def test_answer_that_stays_malformed_is_reported(answer: str):
    backbone = answering(answer)
    with pytest.raises(UnansweredQuestion, match=f"scripted was asked {MAX_ATTEMPTS} times"):
        PublishedPromptWriter(model(backbone), "paper").write(claim(), 3, 0)
    assert len({chat.seed for chat in backbone.chats}) == MAX_ATTEMPTS, "each attempt has a seed of its own"


def test_service_error_is_not_a_malformed_answer():
    class Dead(ScriptedModel):
        def reply(self, chats):  # pyright: ignore[reportIncompatibleMethodOverride, reportMissingParameterType]
            raise ServiceError("gone")

    with pytest.raises(ServiceError, match="gone"):
        PublishedPromptWriter(model(Dead(lambda *_: "")), "paper").write(claim(), 3, 0)


# -- writing prompts -----------------------------------------------------------------------------------------------------


def test_paper_preset_shows_description_and_repo_preset_labels():
    for is_paper, shown, hidden in ((True, "striped animals", "zebra"), (False, "zebra\ntiger", "striped animals")):
        backbone = answering(THREE)
        writer = PublishedPromptWriter(model(backbone), "paper" if is_paper else "repo")
        prompts = writer.write(claim("zebra", "tiger"), 3, 0)
        assert [each.role for each in prompts] == ["positive"] * 3 + ["neutral"] * 3
        for chat in backbone.chats:
            assert shown in chat.messages[1].text
            assert hidden not in chat.messages[1].text


@pytest.mark.parametrize(("preset", "n"), [("repo", 30), ("paper", 7), ("pairing", 7)])
def test_presets_ask_twice_for_the_published_numbers(preset: PromptPreset, n: int):
    """The questions hold every instruction of the published ones: image content only, several concepts, none of the words."""
    count = EvaluationDesign(preset=preset).prompts
    backbone = ScriptedModel(lambda question, _: "\n".join(f"{k}. {len(question)} things {k}" for k in range(1, n + 1)))
    prompts = PublishedPromptWriter(model(backbone), preset).write(claim("zebra"), count, 0)
    positive, neutral = (chat.messages[1].text for chat in backbone.chats)
    assert (count, len(prompts)) == (n, 2 * n)
    for question in (positive, neutral):
        assert f"Write exactly {n} prompts for a text-to-image model." in question
        assert "Say only what the image shows" in question
    assert "excites this neuron as strongly as" in positive and "let different prompts show them" in positive
    assert "leaves this neuron quiet" in neutral and "none of the\ndescription's words" in neutral


def test_language_model_of_the_agent_writes_prompts_by_default():
    base = ["name=x", "units=all", "target.name=t"]
    served = [*base, "backbone.kind=openai", "backbone.model=org/agent"]
    other = ["evaluate.writer.kind=anthropic", "evaluate.writer.model=org/writer"]
    kinds = [
        prompt_writer(load(each)) for each in (base, served, [*served, *other], [*served, "evaluate.writer.kind=rules"])
    ]
    assert [kind.kind for kind in kinds] == ["rules", "openai", "anthropic", "rules"]
    assert [kind.model for kind in kinds[1:3]] == ["org/agent", "org/writer"]


def pairs(question: str, _: int) -> str:
    count = int(question.split("exactly ")[1].split()[0])
    about = question.split("responds to: ")[1].splitlines()[0]
    return "\n".join(f"{n}. {about} number {n} | a cup number {n}" for n in range(1, count + 1))


def test_model_writes_for_each_label():
    backbone = ScriptedModel(pairs)
    prompts = ModelPromptWriter(model(backbone)).write(claim("zebra", "tiger"), 5, 0)
    positive = [each for each in prompts if each.role == "positive"]
    assert [each.label for each in positive] == ["zebra"] * 3 + ["tiger"] * 2
    assert all(each.prompt.startswith(each.label) for each in positive)
    assert [each.seed for each in positive] == [each.seed for each in prompts if each.role == "neutral"]
    assert "tiger" in backbone.chats[0].messages[1].text.split("bar")[-1], "other labels must not be shown"


def test_model_is_asked_once_more_for_prompts_that_the_agent_drew():
    def answer(question: str, _: int) -> str:
        first = 1 if "Do not write these prompts again" not in question else 3
        count = int(question.split("exactly ")[1].split()[0])
        return "\n".join(f"{n}. a Zebra {n} | a cup {n}" for n in range(first, first + count))

    backbone = ScriptedModel(answer)
    drawn = explored(["a zebra 2", "a cup 3"])
    prompts = ModelPromptWriter(model(backbone)).write(claim("zebra"), 4, 0, drawn)
    positive = [each.prompt for each in prompts if each.role == "positive"]
    assert positive == ["a Zebra 1", "a Zebra 4", "a Zebra 4"], (
        "a prompt of the agent is left out, a repeated one is not"
    )
    assert len(backbone.chats) == 2
    assert "exactly 2 pairs" in backbone.chats[1].messages[1].text
    assert "- a Zebra 2\n- a cup 2\n- a Zebra 3\n- a cup 3" in backbone.chats[1].messages[1].text


def test_only_prompts_of_the_agent_leave_a_claim_unwritten():
    drawn = explored(line.split(". ")[1] for line in THREE.splitlines())
    writer = PublishedPromptWriter(model(answering(THREE)), "paper")
    with pytest.raises(UnansweredQuestion, match="all 6 prompts .* the agent drew"):
        writer.write(claim(), 3, 0, drawn)


def test_model_writes_unrelated_prompts_and_finds_related_ones():
    writer = ModelPromptWriter(model(answering(THREE)))
    assert writer.unrelated(3, 0) == ["a dog", "a cat", "a cow"]
    backbone = answering("2")
    assert ModelPromptWriter(model(backbone)).related(claim("zebra"), ["a cup", "a tiger"]) == {1}
    assert "1. a cup\n2. a tiger" in backbone.chats[0].messages[1].text
