"""What explains activations is found among words, compounds, alternatives and exceptions."""

from random import Random

import pytest

from openmaia.offline.searcher.explanations import explanations
from openmaia.offline.searcher.labels import shows
from openmaia.offline.searcher.search import Images

_IMAGES = Images()


def _explained(truth: str, without: tuple[str, ...] = (), *more: str) -> tuple[set[str], float]:
    # The best explanation of a unit that is excited by one of several labels, the first one most, and its fit.
    labels, stream = truth.split("; "), Random(truth)
    sentences = (*_IMAGES.screening(), *_IMAGES.prompts([*labels, *more]))
    heights = [max((0.5**n for n, each in enumerate(labels) if shows(text, each)), default=0.0) for text in sentences]
    values = tuple(height + stream.gauss(0, 0.03) for height in heights)
    best = explanations(sentences, values, without)[0]
    return {*best.labels}, best.fit


@pytest.mark.parametrize(
    "truth",
    [
        "animal",
        "tree",  # forests show trees
        "pixelated",
        "three dogs",
        "red boat",
        "plant at dusk",
        "boat and dog",
        "dotted background",
        "night; animal",
        "grey; boat",
        "forest without night",
        "cup without animal",
    ],
)
def test_the_label_that_excites_a_unit_explains_it_best(truth: str):
    assert _explained(truth) == ({*truth.split("; ")}, pytest.approx(1, abs=0.02))


def test_a_label_explains_before_two_that_fit_hardly_better():
    # Two images of a boat that another object hides.
    sentences, left = _IMAGES.screening(), 2
    values: list[float] = []
    for text in sentences:
        is_shown = shows(text, "boat")
        values.append(float(is_shown and not left))
        left -= is_shown and left > 0
    assert explanations(sentences, tuple(values))[0].labels == ("boat",)


def test_no_word_that_the_generator_lacks_is_part_of_an_explanation():
    sentences = _IMAGES.screening()
    values = tuple(float(shows(each, "dog")) for each in sentences)
    found = explanations(sentences, values, ("dog", "animal"))
    assert found and not any(word in label for each in found for label in each.labels for word in ("dog", "animal"))


def test_noise_has_no_explanation_that_fits():
    stream, sentences = Random(0), _IMAGES.screening()
    assert explanations(sentences, tuple(stream.gauss(0, 1) for _ in sentences))[0].fit < 0.8
    assert explanations(sentences, (0.5,) * len(sentences))[0].fit == 0
