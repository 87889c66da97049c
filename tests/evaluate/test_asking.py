"""Language models that write and judge: what they say well, badly, not at all, or in another language."""

import pytest

from openmaia.errors import ServiceError
from openmaia.evaluate.asking import TRIES, Malformed, Unanswered, is_foreign, listed, listed_pairs
from openmaia.evaluate.claims import Claim
from openmaia.evaluate.entailment import paired, picks
from openmaia.evaluate.judges import EyesJudge, ModelJudge, verdicts
from openmaia.evaluate.writers import ModelWriter, PublishedWriter, Shot
from openmaia.pictures.vocabulary import WORDS
from openmaia.units import Unit
from tests.evaluate.talking import Talker, asker, in_turn
from tests.samples import noise

UNIT = Unit(target="t", layer="l", index=3)
THREE = "1. a dog\n2. a cat\n3. a cow"
REFUSAL = "I'm sorry, but I can't help with that."


def claim(*labels: str, description: str = "striped animals", method: str = "agent") -> Claim:
    return Claim(unit=UNIT, labels=labels, description=description, method=method)


# -- lists ---------------------------------------------------------------------------------------------------------------


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
def test_lists_are_read_as_models_write_them(answer: str):
    assert listed(answer, 3) == ["a dog", "a cat", "a cow"]


@pytest.mark.parametrize(
    "answer",
    ["", REFUSAL, "a dog\na cat", THREE + "\n4. a pig", "1. a dog\n2. a dog\n3. A DOG", "1. x\n2. y\n3. " + "z" * 401,
     "1. 一只狗\n2. 一只猫\n3. 一头牛", "1. собака\n2. кошка\n3. корова", "1. 🐕\n2. 🐈\n3. 🐄"],
)  # fmt: skip
def test_what_is_no_list_of_so_many_different_english_prompts_is_refused(answer: str):
    with pytest.raises(Malformed):
        listed(answer, 3)


def test_pairs_have_two_different_halves():
    assert listed_pairs("1. a dog | a cup\n2. a cat | a jug", 2) == [("a dog", "a cup"), ("a cat", "a jug")]
    for answer in ("1. a dog | a dog\n2. a cat | a jug", "1. a dog\n2. a cat | a jug", "1. a dog |\n2. a | b"):
        with pytest.raises(Malformed):
            listed_pairs(answer, 2)


def test_words_with_accents_are_no_other_script():
    assert not is_foreign("a café façade, naïve style")


# -- asking --------------------------------------------------------------------------------------------------------------


def test_a_malformed_list_is_asked_for_again_with_the_reason():
    talker = in_turn("a dog", THREE)
    shots = PublishedWriter(asker(talker), "paper").write(claim(), 3, 0)
    assert [shot.prompt for shot in shots[:3]] == ["a dog", "a cat", "a cow"]
    again = talker.chats[1].messages
    assert [message.text for message in again[2:3]] == ["a dog"]
    assert "1 lines came where 3 prompts were asked for" in again[3].text


@pytest.mark.parametrize("answer", ["a dog", REFUSAL, "", "1. 一只狗\n2. 一只猫\n3. 一头牛"])
def test_what_stays_malformed_is_reported_and_never_padded(answer: str):
    talker = in_turn(answer)
    with pytest.raises(Unanswered, match=f"talker was asked {TRIES} times"):
        PublishedWriter(asker(talker), "paper").write(claim(), 3, 0)
    assert len(talker.chats) == TRIES


def test_another_try_has_another_seed():
    talker = in_turn("")
    with pytest.raises(Unanswered):
        PublishedWriter(asker(talker), "paper").write(claim(), 3, 0)
    assert len({chat.seed for chat in talker.chats}) == TRIES


def test_a_server_that_fails_is_no_malformed_answer():
    class Dead(Talker):
        def reply(self, chats):  # pyright: ignore[reportIncompatibleMethodOverride, reportMissingParameterType]
            raise ServiceError("gone")

    with pytest.raises(ServiceError, match="gone"):
        PublishedWriter(asker(Dead(lambda *_: "")), "paper").write(claim(), 3, 0)


# -- the presets ---------------------------------------------------------------------------------------------------------


def test_paper_gives_the_writer_the_description_and_repo_the_labels():
    for preset, said, unsaid in (("paper", "striped animals", "zebra"), ("repo", "zebra\ntiger", "striped animals")):
        talker = in_turn(THREE)
        PublishedWriter(asker(talker), preset).write(claim("zebra", "tiger"), 3, 0)
        for chat in talker.chats:
            assert said in chat.messages[1].text
            assert unsaid not in chat.messages[1].text


def test_published_presets_write_as_many_positive_as_neutral_prompts():
    shots = PublishedWriter(asker(in_turn(THREE)), "repo").write(claim("zebra"), 3, 0)
    assert [shot.role for shot in shots] == ["positive"] * 3 + ["neutral"] * 3


def pairs_for(question: str, _: int) -> str:
    count = int(question.split("exactly ")[1].split()[0])
    about = question.split("responds to: ")[1].splitlines()[0]
    return "\n".join(f"{at}. {about} number {at} | a cup number {at}" for at in range(1, count + 1))


def test_a_model_writes_for_every_label_by_itself():
    shots = ModelWriter(asker(Talker(pairs_for))).write(claim("zebra", "tiger"), 5, 0)
    positive = [shot for shot in shots if shot.role == "positive"]
    assert [shot.label for shot in positive] == ["zebra"] * 3 + ["tiger"] * 2
    assert all(shot.prompt.startswith(shot.label) for shot in positive)
    assert [shot.seed for shot in positive] == [shot.seed for shot in shots if shot.role == "neutral"]


def test_a_model_is_told_what_else_neither_prompt_may_show():
    talker = Talker(pairs_for)
    ModelWriter(asker(talker)).write(claim("zebra", "tiger"), 4, 0)
    assert "tiger" in talker.chats[0].messages[1].text.split("bar")[-1]


# -- pairing -------------------------------------------------------------------------------------------------------------


def numbers(first: int) -> str:
    return ", ".join(str(at) for at in range(first, first + 7))


def test_picks_are_read():
    assert picks(f"MOST: {numbers(1)}\nLEAST: {numbers(8)}", 14) == (list(range(1, 8)), list(range(8, 15)))
    assert picks(f"**Most:** {numbers(1)}.\n**Least:** {numbers(8)}", 14)[1] == list(range(8, 15))


@pytest.mark.parametrize(
    "answer",
    [REFUSAL, f"MOST: {numbers(1)}", f"MOST: {numbers(1)}\nLEAST: {numbers(7)}", f"MOST: 1, 2\nLEAST: {numbers(8)}",
     f"MOST: {numbers(1)}\nLEAST: {numbers(9)}"],
)  # fmt: skip
def test_picks_that_overlap_are_too_few_or_out_of_range_are_refused(answer: str):
    with pytest.raises(Malformed):
        picks(answer, 14)


def judging(question: str, _: int) -> str:
    """Writes prompts with the description in them; entails those that hold it most."""
    said = question.split("like this:\n\n")[1].splitlines()[0]
    if "prompts from which images were made" not in question:
        kind = "quiet" if "leaves this neuron quiet" in question else "loud"
        return "\n".join(f"{at}. {kind} {said} {at}" for at in range(1, 8))
    lines = [line.split(". ", 1) for line in question.splitlines() if line[:1].isdigit()]
    most = [number for number, prompt in lines if f"loud {said}" in prompt]
    least = [number for number, prompt in lines if "loud" in prompt and said not in prompt][:7]
    return f"MOST: {', '.join(most)}\nLEAST: {', '.join(least)}"


def test_pairing_picks_for_every_description_from_all_methods_prompts():
    claims = [claim(description=text, method=text) for text in ("dogs", "cats", "cows")]
    found = paired(claims, asker(Talker(judging)), 0)
    for own, shots in zip(claims, found, strict=True):
        assert isinstance(shots, list)
        assert [shot.role for shot in shots] == ["positive"] * 7 + ["neutral"] * 7
        assert all(own.description in shot.prompt for shot in shots[:7])
        assert not any(own.description in shot.prompt for shot in shots[7:])


def test_methods_that_pick_one_prompt_see_one_image():
    """Also across descriptions: the seed belongs to the prompt."""
    found = paired([claim(description=text) for text in ("dogs", "cats")], asker(Talker(judging)), 0)
    seeds: dict[str, set[int]] = {}
    for shots in found:
        assert isinstance(shots, list)
        for shot in shots:
            seeds.setdefault(shot.prompt, set()).add(shot.seed)
    assert all(len(numbers) == 1 for numbers in seeds.values())


def test_an_abstention_takes_no_part_in_pairing():
    found = paired([claim(description="dogs"), claim(description=""), claim(description="cats")], asker(Talker(judging)), 0)  # fmt: skip
    assert found[1] == []


def test_a_judge_that_refuses_is_reported():
    def answer(question: str, tried: int) -> str:
        return REFUSAL if "prompts from which images were made" in question else judging(question, tried)

    found = paired([claim(description="dogs"), claim(description="cats")], asker(Talker(answer)), 0)
    assert all(isinstance(one, Unanswered) for one in found)
    assert not any(isinstance(one, Shot) for one in found)


# -- judges --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("answer", ["1: yes\n2: no\n3: unsure", "1. Yes.\n2. No, it is a cup.\n3. unknown"])
def test_verdicts_are_read(answer: str):
    assert verdicts(answer, 3) == (True, False, None)


@pytest.mark.parametrize("answer", ["", REFUSAL, "1: yes", "1: yes\n2: no\n3: perhaps", "yes\nno\nno"])
def test_verdicts_that_leave_out_a_label_are_refused(answer: str):
    with pytest.raises(Malformed):
        verdicts(answer, 3)


def test_a_model_judges_each_picture_by_itself():
    talker = Talker(lambda question, _: "1: yes\n2: no")
    found = ModelJudge(asker(talker)).judge([noise(1), noise(2)], ["dog", "cat"])
    assert found == [(True, False)] * 2
    assert [chat.messages[1].pictures[0].digest for chat in talker.chats] == [noise(1).digest, noise(2).digest]


def test_a_judge_that_refuses_knows_nothing():
    assert ModelJudge(asker(in_turn(REFUSAL))).judge([noise(1)], ["dog", "cat"]) == [(None, None)]


def test_eyes_say_nothing_of_words_that_they_do_not_know():
    judge = EyesJudge(lambda pixels: {word.name: 1.0 for word in WORDS}, "all seeing")
    assert judge.judge([noise(1)], ["zyzzyva", ""]) == [(None, None)]
    assert "all seeing" in judge.name


def test_eyes_see_what_has_evidence_and_only_that():
    seeing, blind = (EyesJudge(lambda pixels, v=v: {word.name: v for word in WORDS}, "eyes") for v in (1.0, 0.0))
    assert seeing.judge([noise(1)], ["red"]) == [(True,)]
    assert blind.judge([noise(1)], ["red"]) == [(False,)]
