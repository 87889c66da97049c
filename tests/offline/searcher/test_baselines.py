"""What the searcher answers without images of its own, and how it begins with the bank."""

import pytest

from openmaia.agent.tools.api_text import api_text
from openmaia.core.messages import Chat, Message, assistant, system, user
from openmaia.offline.searcher.findings import read
from openmaia.offline.searcher.host import Search, Searcher
from openmaia.offline.searcher.search import Images, candidates
from tests.offline.searcher.test_rounds import LOOK, labels_of

WORDS = "Words of what all those images show:\n1. unheard (bank, AUC 0.99 on 3 of 60 images)\n2. whale (bank, AUC 0.90 on 4 of 60 images)"
QUESTION = "Find out what excites the unit."


def answer(question: str, *withheld: str, search: Search = "full", conversation: str = "") -> str:
    messages: list[Message] = [system(api_text({}, without=withheld)), user(question)]
    for _ in range(3):
        chat = Chat(conversation=conversation, messages=messages, seed=0, max_tokens=100)
        text = Searcher(search).reply([chat])[0].text
        if "[DESCRIPTION]" in text:
            return text
        assert "text2image" not in text
        messages += [assistant(text), user(LOOK)]
    raise AssertionError("no answer")


def test_exemplars_alone_give_the_label_that_they_show_most():
    assert labels_of(answer(QUESTION, "text2image", "edit_images")) == {"boat"}


@pytest.mark.parametrize(("question", "labels"), [(f"{QUESTION}\n{WORDS}", {"whale"}), (QUESTION, set[str]())])
def test_the_bank_alone_gives_its_best_word_that_can_be_drawn(question: str, labels: set[str]):
    assert labels_of(answer(question, "text2image", "edit_images", "dataset_exemplars")) == labels


def test_random_words_are_those_of_the_unit():
    given = [labels_of(answer(QUESTION, search="random", conversation=f"t/l/{unit}/0")) for unit in (1, 1, 2, 3, 4)]
    assert given[0] == given[1] and len(set(map(frozenset, given))) > 1 and all(len(each) == 1 for each in given)


def test_only_the_question_names_words_of_the_bank():
    assert read([system(""), user(QUESTION), assistant(WORDS), user(WORDS)]).bank == []
    assert read([system(""), user(f"{QUESTION}\n{WORDS}")]).bank == ["unheard", "whale"]


def test_words_of_the_bank_are_tested_first_and_others_after_them():
    images = Images()
    screened = [float("dog" in prompt) for prompt in images.screening()]
    alone, begun = (candidates(images, screened, (), bank) for bank in ((), ("unheard", "whale")))
    assert begun[0] == "whale" and "dog" in begun and len(begun) < len(alone)
