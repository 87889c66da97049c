"""Units of known truth on a real network, and the repeated test: what counts as right, how directions are fitted, what the
figures say."""

import numpy as np
import pytest

from measure.science import classes, planted, repeat, wordnet
from openmaia.config.loading import load
from openmaia.core.units import Unit
from openmaia.evaluation.analysis.verdict import UnitVerdict, Verdict
from openmaia.offline.evaluation.terms import vocabulary_terms
from openmaia.offline.vocabulary.words import BY_NAME
from tests.conftest import REPOSITORY

LION = next(each for each in wordnet.read() if each.index == 291)
SUPPORTED = UnitVerdict(verdict=Verdict.SUPPORTED, reason="")


@pytest.mark.parametrize(
    ("labels", "is_right", "is_exact"),
    [
        (("lion",), True, True),
        (("King of beasts", "carnivore"), True, True),
        (("big cat",), True, False),
        (("tiger",), False, False),
        (("lion", "grass"), False, False),
        ((), False, False),
    ],
)
def test_description_of_class_is_right_by_its_names_and_kinds(labels: tuple[str, ...], is_right: bool, is_exact: bool):
    unit = Unit(target="n", layer="output", index=291)
    found = classes.Described(of=LION, unit=unit, labels=labels, verdict=SUPPORTED)
    assert (found.is_right, found.is_exact) == (is_right, is_exact)


def test_classes_are_named_by_words_of_the_vocabulary():
    for each in wordnet.read():
        assert each.word in BY_NAME and (BY_NAME[each.word].is_exact or not each.is_exact), each
        assert each.is_exact or each.includes_it(each.word), each


def test_config_of_classes_names_those_whose_name_has_a_word():
    """The run compares labels with the name that the network's labels give, without WordNet's synonyms."""
    from openmaia.models.targets.networks.efficientnet import imagenet_labels

    named = [
        each.index
        for each in wordnet.read()
        if each.is_exact
        and each.word in vocabulary_terms(imagenet_labels()[each.index].partition(" (")[0])
        and len(vocabulary_terms(imagenet_labels()[each.index].partition(" (")[0])) == 1
    ]
    units = load([str(REPOSITORY / "configs/classes.yaml")]).units
    assert units == f"output={','.join(map(str, named))}"


def test_fitted_direction_responds_at_one_position():
    random = np.random.default_rng(0)
    positions = random.normal(size=(200, 9, 5))
    shows = np.tile(np.array([0.0, 1.0]), 100)
    positions[1::2, 4, 2] += 6
    weight, bias = planted.fit(positions, shows)
    responses = (positions @ weight + bias).max(axis=1)
    assert responses[1::2].min() > responses[::2].mean()
    assert np.mean(responses[1::2, None] > responses[None, ::2]) > 0.98


@pytest.mark.parametrize(
    ("labels", "is_right", "is_exact"),
    [(("rings",), True, True), (("red rings",), True, False), (("rings", "dots"), False, False), ((), False, False)],
)
def test_description_of_planted_unit_is_right_by_its_concept(labels: tuple[str, ...], is_right: bool, is_exact: bool):
    found = planted.Planted(concept="rings", labels=labels, verdict=SUPPORTED)
    assert (found.is_right, found.is_exact) == (is_right, is_exact)


def test_repeated_test_counts_each_order_of_the_sets():
    pairs = [
        (Verdict.SUPPORTED, Verdict.SUPPORTED),
        (Verdict.SUPPORTED, Verdict.UNDECIDED),
        (Verdict.NOT_SUPPORTED, Verdict.SUPPORTED),
        (Verdict.NOT_SUPPORTED, Verdict.NOT_SUPPORTED),
    ]
    units = [
        repeat.Twice(
            unit=Unit(target="n", layer="a", index=index),
            labels=("red",),
            one=UnitVerdict(verdict=one, reason=""),
            other=UnitVerdict(verdict=other, reason=""),
        )
        for index, (one, other) in enumerate(pairs)
    ]
    found = repeat.summarised(units)
    assert [share[0] for share in found["supported"]] == [0.5, 0.5]
    assert found["supported_again"][0] == 0.5
    assert found["contradicted"][0] == 0.25
    assert found["same"][0] == 0.5
    assert found["transitions"]["not supported, supported"] == 1
