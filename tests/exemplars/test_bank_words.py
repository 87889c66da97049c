"""Which words of the bank tell how much an image excites a unit."""

import pytest

from openmaia.core.images import whole
from openmaia.core.services import Exemplar
from openmaia.exemplars.bank_words import rank_words
from tests.helpers.samples import noise

PROMPTS = [
    "a red bus",
    "a red car in the rain",
    "a blue bus",
    "the sea",
    "a café",
    "a photo of a red bus",
    "a cat",
    "a dog",
]


def ranked(
    activations: list[float], kept: int, count: int = 5, prompts: list[str] = PROMPTS
) -> list[tuple[str, float]]:
    """The words by the activations of all images, of which so many are kept at either end."""
    order = sorted(range(len(prompts)), key=lambda at: -activations[at])
    image = noise(0)
    chosen: list[tuple[Exemplar, str]] = [
        (
            Exemplar(kind=kind, rank=rank, image=image, activation=activations[at], map=None, box=whole(image.pixels)),
            f"{at}",
        )
        for kind, numbers in (("top", order[:kept]), ("bottom", order[::-1][:kept]))
        for rank, at in enumerate(numbers)
    ]
    entries = [(f"{at}", prompt) for at, prompt in enumerate(prompts)]
    found = rank_words(entries, [each for each, _ in chosen], [source for _, source in chosen], count)
    return [(each.text, each.auc) for each in found]


def test_the_word_of_the_strongest_images_comes_first():
    found = ranked([9, 8, 1, 0, 0, 7, 0, 0], 8)
    assert found[0] == ("red", 1.0), "of three images, before words of one"
    assert ranked([0, 0, 1, 0, 9, 0, 0, 0], 8)[0] == ("café", 1.0)


def test_two_words_that_follow_each_other_are_one_hypothesis():
    found = ranked([9, 0.5, 1, 3, 0, 8, 0, 0], 8)
    assert found[0][0] == "red bus" and not {"red", "bus"} & {text for text, _ in found}
    assert "bus a" not in {text for text, _ in found} and "photo" not in {text for text, _ in found}


def test_an_auc_counts_images_that_are_not_kept_as_ties():
    prompts = ["sun", "sun", *["moon"] * 8]
    # The strongest image and one of the eight that tie: (8 + 3.5) of 16 pairs, of which (1 + 0.5) are kept weakest.
    assert ranked([9, 4, 8, 7, 6, 5, 3, 2, 1, 0], 1, prompts=prompts) == [("sun", pytest.approx((8 + 1 + 7 / 2) / 16))]


def test_a_dead_unit_has_no_words():
    assert ranked([0.0] * 8, 2) == []


def test_words_that_tell_nothing_are_no_hypotheses():
    assert ranked([3, 2, 1, 0], 2, prompts=["a cat"] * 4) == []
    assert len(ranked([9, 8, 1, 0, 0, 7, 0, 0], 8, count=1)) == 1


def test_two_words_of_one_image_are_no_hypothesis():
    assert "red car" not in {text for text, _ in ranked([1, 9, 0, 0, 0, 0, 0, 0], 8, count=9)}
