"""Prompts by rules: matched pairs, unrelated prompts, and the claims that they are related to."""

from collections import Counter

import pytest

from openmaia.core.units import Unit
from openmaia.evaluation.analysis.overlap import explored, fold
from openmaia.evaluation.claims import Claim
from openmaia.evaluation.language_model import UnansweredQuestion
from openmaia.offline.evaluation.prompts import RulePromptWriter, unrelated_prompts, write_pairs
from openmaia.offline.vocabulary.phrases import rivals
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
    assert [pair.label for pair in write_pairs(["fish", "red", "grass"], 5)] == ["fish", "red", "grass", "fish", "red"]


def test_neutral_prompt_has_no_label_word():
    labels = [word.name for word in of_kind(WordKind.COLOUR)][:5]
    for pair in write_pairs(labels, 20):
        assert not {found.name for found in find(pair.neutral)} & set(labels)


@pytest.mark.parametrize(
    "label",
    ["red circle", "blue horizontal stripes", "fish next to a tool", "fish on grass", "zyzzyva", "’☃", "x" * 500],
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


def test_labels_that_name_all_objects_leave_neutral_prompts():
    objects = " ".join(word.name for word in of_kind(WordKind.OBJECT))
    assert len(list(write_pairs(["zorgblat", objects], 6))) == 6


@pytest.mark.parametrize(
    "labels", [["fish", "grass"], ["white", "fruit"], ["circle", "grey"], ["tool", "sand", "water"]]
)
def test_grounds_and_carriers_avoid_labels(labels: list[str]):
    for pair in write_pairs(labels, 20):
        assert not {word.name for word in find(pair.neutral)} & set(labels)
        assert {word.name for word in find(pair.positive)} & set(labels) == {pair.label}


def test_thing_stays_in_its_scene():
    for pair in write_pairs(["a fish on grass"], 5):
        assert "fish" in pair.positive and pair.positive.endswith(" on grass")
        assert " on " in pair.neutral


# -- independence of the exploration -------------------------------------------------------------------------------------

LABELS = [
    ["red"],
    ["dots"],
    ["star"],
    ["bird"],
    ["grass"],
    ["red circle"],
    ["red dots"],
    ["zyzzyva"],
    ["red", "bird", "snow"],
]


@pytest.mark.parametrize("labels", LABELS)
def test_prompts_of_the_investigation_are_not_used(labels: list[str]):
    first = write_pairs(labels, 20)
    drawn = explored(f" {prompt.upper()}  " for pair in first for prompt in (pair.positive, pair.neutral))
    again = write_pairs(labels, 20, explored=drawn)
    assert len(again) == 20
    assert not drawn & {fold(prompt) for pair in again for prompt in (pair.positive, pair.neutral)}


@pytest.mark.parametrize("labels", LABELS)
def test_no_prompt_occurs_twice(labels: list[str]):
    pairs = write_pairs(labels, 30)
    assert len({prompt for pair in pairs for prompt in (pair.positive, pair.neutral)}) == 60


def test_prompts_are_repeated_equally_often_after_the_last_new_one():
    counts = Counter(pair.positive for pair in write_pairs(["a bird on grass"], 33))
    assert set(counts.values()) == {3}


@pytest.mark.parametrize("word", [word.name for word in WORDS])
def test_neutral_prompts_show_many_other_words(word: str):
    kind = next(each.kind for each in WORDS if each.name == word)
    shown = {other for pair in write_pairs([word], 30) for other in find(pair.neutral) if other.kind is kind}
    assert len(shown) >= min(len(rivals(word, [word])), 10)


def test_prompts_depend_on_the_seed():
    assert write_pairs(["bird"], 10) == write_pairs(["bird"], 10)
    assert write_pairs(["bird"], 10) != write_pairs(["bird"], 10, run_seed=1)
    assert unrelated_prompts(10) != unrelated_prompts(10, 1)


def test_label_whose_prompts_were_all_drawn_has_none():
    claim = Claim(unit=Unit(target="t", layer="l", index=0), labels=("wet grass",))
    drawn = explored(pair.positive for pair in write_pairs(["wet grass"], 50))
    assert [pair.label for pair in write_pairs(["wet grass", "bird"], 10, explored=drawn)] == ["bird"] * 5
    with pytest.raises(UnansweredQuestion, match="did not draw"):
        RulePromptWriter().write(claim, 10, 0, drawn)


# -- unrelated prompts and other labels ----------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 7, 30, 60])
def test_unrelated_prompts_differ(count: int):
    assert len(set(unrelated_prompts(count))) == count


def test_unrelated_prompts_cover_all_kinds():
    assert {word.kind for prompt in unrelated_prompts(30) for word in find(prompt)} == set(WordKind)


def test_related_prompts_share_a_word_with_the_claim():
    claim = Claim(unit=Unit(target="t", layer="l", index=0), description="fish", labels=("a red thing",))
    prompts = ["a red circle", "a tool on grass", "a fish"]
    assert RulePromptWriter().related(claim, prompts) == {0, 2}


def test_related_prompts_show_more_general_words_and_special_cases():
    claim = Claim(unit=Unit(target="t", layer="l", index=0), labels=("carnivore",))
    prompts = ["a lion on grass", "a mammal on sand", "a camel on grass", "a tool"]
    assert RulePromptWriter().related(claim, prompts) == {0, 1}


@pytest.mark.parametrize(
    "label", ["red fire trucks", "fish bones", "wet grass", "the colour of a red dress", "a fish's tail", "рыба fish"]
)
def test_label_with_a_word_outside_the_vocabulary_is_not_replaced_by_a_part_of_it(label: str):
    for pair in write_pairs([label], 5):
        assert label in pair.positive
        assert not {word.name for word in find(label)} & {word.name for word in find(pair.neutral)}


@pytest.mark.parametrize(
    "label",
    [
        "red circles on a grey background",
        "Tools next to a fish",
        "images of grass",
        "red objects",
        "red circle and red star",
    ],
)
def test_label_in_the_vocabulary_as_a_whole_is_drawn_by_its_words(label: str):
    assert not any(label in pair.positive and "photo" in pair.positive for pair in write_pairs([label], 5))
