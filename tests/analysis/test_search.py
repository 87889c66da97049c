"""Questions find labels by words, by the words of the run's rules, and by embeddings."""

import dataclasses
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pytest

from openmaia.analysis.search import TextSearch, WordNames, find_lexicon, run_lexicon, stem
from openmaia.config.loading import load
from tests.conftest import REPOSITORY
from tests.helpers.hostile import MEGABYTE, TEXTS

LEXICON = run_lexicon(dataclasses.asdict(load([str(REPOSITORY / "configs/demo.yaml")])))


def found(question: str, *labels: str, lexicon: object = LEXICON) -> list[str]:
    matches = TextSearch(question, lexicon).find([[label] for label in labels])  # pyright: ignore[reportArgumentType]
    return [match.text for match in matches if match]


@pytest.mark.parametrize(
    ("word", "other"),
    [
        ("boxes", "box"),
        ("forests", "Forest"),
        ("houses", "house"),
        ("berries", "berry"),
        ("buses", "bus"),
        ("glasses", "glass"),
    ],
)
def test_stem_of_a_plural_is_that_of_the_singular(word: str, other: str):
    assert stem(word) == stem(other)


def test_words_of_a_question_that_name_nothing_are_not_searched():
    assert TextSearch("Which units respond most strongly to forests?").asked == "forests"
    assert TextSearch("which units fire for fire?").asked == "fire"
    assert TextSearch("?!").asked == "" and TextSearch("?!").find([["a"]]) == [None]


def test_plain_words_find_plurals_and_no_synonyms():
    assert found("which units respond to oceans?", "ocean", "sea", "a cat", lexicon={}) == ["ocean"]


def test_words_of_the_rules_find_synonyms_wider_and_narrower_words():
    assert found("which units respond to oceans?", "ocean", "sea", "forest") == ["ocean", "sea"]
    assert found("animals", "dog", "vehicle", "a creature") == ["dog", "a creature"]
    assert found("dogs", "animal", "cat") == ["animal"]


def test_all_that_is_asked_has_to_be_in_one_label():
    assert found("red boats", "red boat", "red", "boat", "blue boat") == ["red boat"]
    assert TextSearch("red boats", LEXICON).find([["red", "boat"]]) == [None]


def test_what_a_label_denies_does_not_answer():
    assert found("which units respond to the night?", "boat without night", "boat, at night") == ["boat, at night"]
    assert found("boats", "boat without night") == ["boat without night"]


def test_the_label_with_least_else_is_the_best():
    (match,) = TextSearch("boats", LEXICON).find([["a bus and a boat on the sea", "boat", "red boat"]])
    assert match is not None and (match.text, match.score, match.focus) == ("boat", 1.0, 1.0)


def alike(texts: Sequence[str]) -> npt.NDArray[np.float32]:
    """Embeddings in which all words for ships are one."""
    rows = [
        [float(any(word in text for word in ("boat", "ship", "vessel"))), float("cat" in text), 1e-3] for text in texts
    ]
    values = np.array(rows, np.float32)
    return values / np.linalg.norm(values, axis=1, keepdims=True)


def test_meaning_finds_what_has_no_word_in_common():
    (ship, cat, both) = TextSearch("which units respond to boats?", None, alike).find(
        [["a vessel"], ["cat"], ["cat", "ship"]]
    )
    assert ship is not None and ship.score > 0.99 and cat is None and both is not None and both.text == "ship"


def test_words_of_a_report_that_mean_the_same_are_one_thing():
    lexicon = find_lexicon(["a ship", "boat", "cats"], alike)
    assert lexicon["ship"] == lexicon["boat"] and "cat" not in lexicon
    assert find_lexicon(["ship"], None) == {}


@pytest.mark.parametrize("text", [*TEXTS.values(), MEGABYTE])
def test_any_text_can_be_asked_and_searched(text: str):
    assert len(TextSearch(text, LEXICON).find([[text], ["boat"]])) == 2


def test_rules_of_a_vocabulary_are_those_of_its_generator():
    scenes, collage = (
        run_lexicon(dataclasses.asdict(load([str(REPOSITORY / f"configs/{name}.yaml")])))
        for name in ("demo", "efficientnet-lite0")
    )
    assert scenes["ocean"] == scenes["sea"] and scenes["dog"] < scenes["animal"]
    assert collage["puppy"] == collage["dog"] and collage["lawn"] == collage["grass"] and "ocean" not in collage
    config = dataclasses.asdict(load([str(REPOSITORY / "configs/demo.yaml")]))
    config["evaluate"] |= {"sharing": "label", "writer": {"kind": "nobody:Rules"}}
    config["backbone"] |= {"kind": "nobody:Agent"}
    assert run_lexicon(config) == scenes
    assert run_lexicon(config | {"generator": {"kind": "nobody:Generator"}}) == {}


@pytest.mark.parametrize(
    "question",
    [
        "is there a neuron tuned to boats?",
        "what in this model is sensitive to boats, please",
        "I would love a detector that gets excited by a boat",
        "boats",
    ],
)
@pytest.mark.parametrize("lexicon", [LEXICON, {}])
def test_words_of_asking_that_no_text_has_are_not_asked_for(question: str, lexicon: WordNames):
    search = TextSearch(question, lexicon)
    assert [bool(match) for match in search.find([["a boat"], ["a cat"], []])] == [True, False, False]


def test_words_that_nothing_has_are_named_and_alone_find_nothing():
    search = TextSearch("zebras that gallop by boats", {})
    assert search.unknown(["a boat", "a cat"]) == ("zebras", "gallop")
    assert search.find([["a boat"]])[0] is not None
    assert TextSearch("zebras that gallop", {}).find([["a boat"]]) == [None]


def test_word_that_the_lexicon_has_is_asked_for_even_if_no_text_has_it():
    assert TextSearch("boats and cats", LEXICON | {"cat": frozenset(["cat"])}).find([["a boat"]]) == [None]


def test_words_that_texts_beside_have_are_asked_for():
    assert TextSearch("striped boats", {}).find([["a boat"]], ["a striped cat"]) == [None]
