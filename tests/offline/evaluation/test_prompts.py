"""Prompts by rules: matched pairs, unrelated prompts, and the claims that they are related to."""

import pytest

from openmaia.core.units import Unit
from openmaia.evaluation.claims import Claim
from openmaia.offline.evaluation.prompts import RulePromptWriter, unrelated_prompts, write_pairs
from openmaia.offline.vocabulary.words import WORDS, WordKind, find, of_kind


@pytest.mark.parametrize("word", [word.name for word in WORDS])
def test_positive_prompt_alone_has_the_word(word: str):
    for pair in write_pairs([word], 10):
        assert word in [found.name for found in find(pair.positive)]
        assert word not in [found.name for found in find(pair.neutral)]


@pytest.mark.parametrize("word", [word.name for word in WORDS])
def test_pair_differs_in_label_words_only(word: str):
    for pair in write_pairs([word], 10):
        kinds = [[found.kind for found in find(prompt)] for prompt in (pair.positive, pair.neutral)]
        assert kinds[0] == kinds[1]


def test_labels_take_turns():
    assert [pair.label for pair in write_pairs(["dog", "red", "grass"], 5)] == ["dog", "red", "grass", "dog", "red"]


def test_neutral_prompt_has_no_label_word():
    labels = [word.name for word in of_kind(WordKind.COLOUR)][:5]
    for pair in write_pairs(labels, 20):
        assert not {found.name for found in find(pair.neutral)} & set(labels)


@pytest.mark.parametrize(
    "label", ["red circle", "blue horizontal stripes", "dog next to a cup", "dog on grass", "zyzzyva", "’☃", "x" * 500]
)
def test_any_label_gets_all_pairs(label: str):
    pairs = write_pairs([label], 7)
    assert len(pairs) == 7
    assert all(pair.positive != pair.neutral for pair in pairs)


@pytest.mark.parametrize("kind", list(WordKind))
def test_all_words_of_a_kind_get_all_pairs(kind: WordKind):
    assert len(write_pairs([word.name for word in of_kind(kind)], 40)) == 40


@pytest.mark.parametrize("word", [word.name for word in of_kind(WordKind.COLOUR, WordKind.SHAPE, WordKind.OBJECT)])
def test_pair_shares_ground(word: str):
    for pair in write_pairs([word], 10):
        grounds = [prompt.partition(" on ")[2] for prompt in (pair.positive, pair.neutral)]
        assert grounds[0] == grounds[1]


@pytest.mark.parametrize("labels", [["dog", "grass"], ["white", "apple"], ["circle", "grey"], ["cup", "sand", "water"]])
def test_grounds_and_carriers_avoid_labels(labels: list[str]):
    for pair in write_pairs(labels, 20):
        assert not {word.name for word in find(pair.neutral)} & set(labels)
        assert {word.name for word in find(pair.positive)} & set(labels) == {pair.label}


def test_thing_stays_in_its_scene():
    (pair,) = write_pairs(["a dog on grass"], 1)
    assert pair.positive == "a dog on grass"
    assert " on " in pair.neutral


@pytest.mark.parametrize("count", [1, 7, 30, 60])
def test_unrelated_prompts_differ(count: int):
    assert len(set(unrelated_prompts(count))) == count


def test_unrelated_prompts_cover_all_kinds():
    assert {word.kind for prompt in unrelated_prompts(30) for word in find(prompt)} == set(WordKind)


def test_related_prompts_share_a_word_with_the_claim():
    claim = Claim(unit=Unit(target="t", layer="l", index=0), description="fish", labels=("a red thing",))
    prompts = ["a red circle", "a dog on grass", "a fish"]
    assert RulePromptWriter().related(claim, prompts) == {0, 2}


@pytest.mark.parametrize(
    "label", ["red fire trucks", "dog collars", "wet grass", "the colour of a red dress", "a dog's tail", "собака dog"]
)
def test_label_with_a_word_outside_the_vocabulary_is_not_replaced_by_a_part_of_it(label: str):
    for pair in write_pairs([label], 5):
        assert pair.positive == f"a photo of {label}"
        assert not {word.name for word in find(label)} & {word.name for word in find(pair.neutral)}


@pytest.mark.parametrize(
    "label",
    [
        "red circles on a grey background",
        "Dogs next to a cup",
        "images of grass",
        "red objects",
        "red circle and red star",
    ],
)
def test_label_in_the_vocabulary_as_a_whole_is_drawn_by_its_words(label: str):
    assert all(pair.positive != f"a photo of {label}" for pair in write_pairs([label], 5))
