"""How the scripted experimenter begins with the words of a bank."""

import hashlib
from collections.abc import Callable

import numpy as np
import pytest

from openmaia.agent.tasks.task import load as load_task
from openmaia.agent.tools.api_text import api_text
from openmaia.core.messages import Chat, Message, assistant, system, user
from openmaia.core.services import BankWord
from openmaia.offline.experimenter.design import screen
from openmaia.offline.experimenter.eyes import Eyes
from openmaia.offline.experimenter.host import ScriptedBackbone
from openmaia.offline.experimenter.judge import hypotheses_of_bank

QUESTION = "Find out what excites the unit."
UNIT = "bird"
WORDS = ("unheard", "bird", "fruit", "red", "ball", "star")


def asked(*words: str) -> str:
    lines = [f"{n}. {word} (bank, AUC 0.9{9 - n} on 30 of 1700 images)" for n, word in enumerate(words, 1)]
    return "\n".join([QUESTION, "Words of what all those images show:", *lines])


def activation(text: str, excites: str) -> float:
    noise = hashlib.sha256(text.encode()).digest()[0] / 2550
    return 2.0 * (excites in text.split()) + noise


def listed(name: str, code: str) -> list[str]:
    body = code.partition(f"{name} = [")[2].partition("\n]")[0]
    return [line.strip().rstrip(",")[1:-1] for line in body.strip().splitlines()]


def observed(code: str, excites: str) -> str:
    def line(stage: str, text: str, key: str) -> str:
        return f"{stage} {activation(text, excites):.5g} (percentile 50) | {key}"

    if "dataset_exemplars" in code:
        return "top 0: 1 (percentile 99)\nrandom 0: 0 (percentile 5)\n"
    if "edit_images" in code:
        edits = zip(listed("bases", code), listed("orders", code), strict=True)
        return "\n".join(
            text
            for base, order in edits
            for text in (
                line("edit", base, f"{base} => as drawn"),
                line("edit", order.rpartition(" with ")[2] if "replace" in order else base, f"{base} => {order}"),
            )
        )
    stage = "control" if "control {shown" in code else "screen"
    return "\n".join(line(stage, prompt, prompt) for prompt in listed("prompts", code))


@pytest.fixture
def reply() -> Callable[[list[Message]], str]:
    """An experimenter whose eyes know no objects."""
    blind = ScriptedBackbone(Eyes(lambda pixels: np.zeros(1000, np.float32)))
    return lambda messages: blind.reply([Chat(conversation="", messages=messages, seed=0, max_tokens=100)])[0].text


def conducted(reply: Callable[[list[Message]], str], question: str, *withheld: str, excites: str = UNIT) -> list[str]:
    """The replies up to the first answer."""
    messages: list[Message] = [system(api_text({}, without=withheld)), user(question)]
    replies: list[str] = []
    while len(replies) < 12:
        replies.append(reply(messages))
        if "[DESCRIPTION]" in replies[-1]:
            return replies
        messages += [assistant(replies[-1]), user(observed(replies[-1], excites))]
    raise AssertionError("no answer")


def labels_of(answer: str) -> set[str]:
    return {line.partition("]: ")[2] for line in answer.splitlines() if line.startswith("[LABEL")}


def drawn(replies: list[str]) -> list[str]:
    return [prompt for each in replies if "text2image" in each for prompt in listed("prompts", each)]


def test_words_of_the_bank_take_the_place_of_the_screening(reply: Callable[[list[Message]], str]):
    with_bank, without = conducted(reply, asked(*WORDS)), conducted(reply, QUESTION)
    assert labels_of(with_bank[-1]) == labels_of(without[-1]) == {UNIT}
    screened = {each.prompt for each in screen()}
    assert screened <= {*drawn(without)} and not any("screen {shown" in each for each in with_bank)
    assert len(drawn(with_bank)) == 12 * len(WORDS[1:]) < len(drawn(without)) / 2


def test_unit_that_no_word_of_the_bank_excites_gets_no_description(reply: Callable[[list[Message]], str]):
    replies = conducted(reply, asked(*WORDS), excites="whale")
    assert replies[-1].endswith("[DESCRIPTION]: NONE")
    experiments = [each for each in replies if "text2image" in each]
    assert len({*experiments}) == load_task("description").rule.demands["experiments"]


def test_experimenter_measures_further_images_if_its_abstention_came_too_early(reply: Callable[[list[Message]], str]):
    messages: list[Message] = [system(api_text({})), user(asked("bird"))]
    for text in conducted(reply, asked("bird"), excites="whale"):
        messages += [assistant(text), user(observed(text, "whale"))]
    messages[-1] = user(load_task("description").missing)
    again = reply(messages)
    assert "system.call_neuron" in again and not {*listed("prompts", again)} & {*drawn([m.text for m in messages])}
    messages += [assistant(again), user(observed(again, "whale"))]
    assert "[DESCRIPTION]: NONE" in reply(messages)


def test_bank_without_a_word_of_the_vocabulary_leaves_the_screening(reply: Callable[[list[Message]], str]):
    assert any("screen {shown" in each for each in conducted(reply, asked("unheard")))


@pytest.mark.parametrize(("question", "labels"), [(asked("unheard", "star", "bird"), {"star"}), (QUESTION, set[str]())])
def test_bank_alone_gives_its_best_word_that_can_be_drawn(
    reply: Callable[[list[Message]], str], question: str, labels: set[str]
):
    replies = conducted(reply, question, "text2image", "edit_images", "dataset_exemplars")
    assert len(replies) == 1 and labels_of(replies[0]) == labels


def test_refuted_word_of_the_bank_is_not_answered_again(reply: Callable[[list[Message]], str]):
    withheld = ("text2image", "edit_images", "dataset_exemplars")
    question = [system(api_text({}, without=withheld)), user(asked("star", "bird"))]
    failed = user("[TEST]: no\n- the label 'star' failed: its near misses …\n")
    assert labels_of(reply([*question, assistant("[DESCRIPTION]: x\n[LABEL 1]: star"), failed])) == {"bird"}


@pytest.mark.parametrize(
    ("word", "names"),
    [
        ("stripes", {"horizontal stripes", "vertical stripes", "diagonal stripes"}),
        ("animal", {"mammal"}),
        ("sign", {"road sign"}),
        ("red circle", {"red circle"}),
        ("circle red", {"red circle"}),
        ("bird grass", set[str]()),
        ("unheard", set[str]()),
    ],
)
def test_word_of_the_bank_stands_for_all_names_that_it_is_part_of(word: str, names: set[str]):
    found = hypotheses_of_bank([BankWord(text=word, auc=0.9, images=30, of=1700)], {})
    assert {each.name for each in found} == names


def test_hypotheses_are_ordered_by_bank_and_exemplars():
    words = [BankWord(text=text, auc=auc, images=30, of=1700) for text, auc in (("bird", 0.9), ("fruit", 0.56))]
    found = hypotheses_of_bank(words, {"fruit": 0.0, "cow": 4.0, "ball": 1.0})
    assert [each.name for each in found] == ["bird", "cow", "fruit"]
