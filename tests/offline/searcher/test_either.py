"""Two labels are an answer where each alone excites a unit."""

import pytest

from openmaia.offline.searcher.either import either
from openmaia.offline.searcher.labels import shows
from openmaia.offline.searcher.search import Images

_SENTENCES = Images().screening()
_LABELS = ("night", "boat", "animal", "dog", "grey", "forest", "tree", "dusk")


def _values(**heights: float) -> list[float]:
    # The activation is that of the strongest label that an image shows, and a little noise.
    named = {each.replace("_", " "): height for each, height in heights.items()}
    return [
        max([height for label, height in named.items() if shows(each, label)], default=0.0) + 0.02 * (n % 5)
        for n, each in enumerate(_SENTENCES)
    ]


@pytest.mark.parametrize("weak", [0.4, 0.7, 0.95])
@pytest.mark.parametrize(("strong", "other"), [("night", "animal"), ("grey", "night"), ("animal", "grey")])
def test_two_labels_are_found_where_each_alone_excites_a_unit(strong: str, other: str, weak: float):
    values = _values(**{strong: 1.0, other: weak})
    assert either(_LABELS, _SENTENCES, values) == (strong, other)


@pytest.mark.parametrize(
    "heights",
    [
        {"night": 1.0},
        {"animal": 1.0},  # dogs are animals, and no reason of their own
        {"tree": 1.0},  # forests show trees
        {"grey": 1.0, "night": 0.2},
        {"grey_boat": 1.0},
        {"night_without_animal": 1.0},
        {"two_dogs": 1.0},
        {},
    ],
)
def test_no_second_label_is_found_where_one_explains_as_much(heights: dict[str, float]):
    assert either(_LABELS, _SENTENCES, _values(**heights)) == ()


def test_activations_without_differences_have_no_labels():
    assert either(_LABELS, _SENTENCES, [0.5] * len(_SENTENCES)) == ()
    assert either((), _SENTENCES, [0.5] * len(_SENTENCES)) == ()
