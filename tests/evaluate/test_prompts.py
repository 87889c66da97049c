"""The rule-based prompt writer: matched pairs, and prompts that were written for nothing."""

import pytest

from openmaia.evaluate.prompts import unrelated, write
from openmaia.pictures.vocabulary import WORDS, Kind, find, of_kind


@pytest.mark.parametrize("word", [word.name for word in WORDS])
def test_the_positive_prompt_has_the_word_and_the_neutral_one_has_not(word: str):
    for pair in write([word], 10):
        assert word in [found.name for found in find(pair.positive)]
        assert word not in [found.name for found in find(pair.neutral)]


@pytest.mark.parametrize("word", [word.name for word in WORDS])
def test_a_pair_differs_in_nothing_but_the_words_of_the_label(word: str):
    for pair in write([word], 10):
        kinds = [[found.kind for found in find(prompt)] for prompt in (pair.positive, pair.neutral)]
        assert kinds[0] == kinds[1]


def test_labels_take_turns():
    assert [pair.label for pair in write(["dog", "red", "grass"], 5)] == ["dog", "red", "grass", "dog", "red"]


def test_a_neutral_prompt_has_no_word_of_any_label():
    labels = [word.name for word in of_kind(Kind.COLOUR)][:5]
    for pair in write(labels, 20):
        assert not {found.name for found in find(pair.neutral)} & set(labels)


@pytest.mark.parametrize(
    "label", ["red circle", "blue horizontal stripes", "dog next to a cup", "dog on grass", "zyzzyva", "’☃", "x" * 500]
)
def test_any_label_gets_as_many_pairs_as_asked(label: str):
    pairs = write([label], 7)
    assert len(pairs) == 7
    assert all(pair.positive != pair.neutral for pair in pairs)


@pytest.mark.parametrize("kind", list(Kind))
def test_a_description_that_names_every_word_of_a_kind_can_still_be_written(kind: Kind):
    assert len(write([word.name for word in of_kind(kind)], 40)) == 40


@pytest.mark.parametrize("word", [word.name for word in of_kind(Kind.COLOUR, Kind.SHAPE, Kind.OBJECT)])
def test_a_pair_shares_its_ground(word: str):
    for pair in write([word], 10):
        grounds = [prompt.partition(" on ")[2] for prompt in (pair.positive, pair.neutral)]
        assert grounds[0] == grounds[1]


@pytest.mark.parametrize("labels", [["dog", "grass"], ["white", "apple"], ["circle", "grey"], ["cup", "sand", "water"]])
def test_grounds_and_carriers_hold_no_other_label(labels: list[str]):
    for pair in write(labels, 20):
        assert not {word.name for word in find(pair.neutral)} & set(labels)
        assert {word.name for word in find(pair.positive)} & set(labels) == {pair.label}


def test_a_thing_in_its_scene_is_asked_for_in_its_scene():
    (pair,) = write(["a dog on grass"], 1)
    assert pair.positive == "a dog on grass"
    assert " on " in pair.neutral


@pytest.mark.parametrize("count", [1, 7, 30, 60])
def test_unrelated_prompts_are_as_many_as_asked_and_differ(count: int):
    assert len(set(unrelated(count))) == count


def test_unrelated_prompts_are_of_all_kinds():
    assert {word.kind for prompt in unrelated(30) for word in find(prompt)} == set(Kind)
