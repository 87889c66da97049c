"""p-values from descriptions of other units and of random words: calibrated, powerful, and ties count against them."""

import numpy as np
import pytest

from openmaia.evaluation.analysis.permutation import EffectTable, effects, p_values
from openmaia.evaluation.analysis.statistics import adjust_p_values, measure
from openmaia.evaluation.analysis.verdict import LEVEL

N = 10
"""Positive and neutral images of a description."""


def simulated(random: np.random.Generator, units: int, words: int, shift: float, true: float = 1.0) -> EffectTable:
    """A layer whose units differ: in how much they prefer all positive images, and in how selective they are.

    Every description shifts the responses of every unit by a random amount, because real images differ in more than what
    a label names. A share `true` of the units responds to its own description by `shift` more.
    """
    descriptions = units + words
    preference = random.normal(0, 0.3, (units, 1))
    spread = random.gamma(2.0, 0.25, (units, 1))
    means = preference + spread * random.normal(0, 1, (units, descriptions)) + random.normal(0, 0.2, descriptions)
    chosen = random.random(units) < true
    means[np.arange(units), np.arange(units)] += shift * chosen
    columns = [
        effects(random.normal(means[:, d], 1, (N, units)), random.normal(0, 1, (N, units))) for d in range(descriptions)
    ]
    return table(np.stack(columns, axis=1))


def table(values: np.ndarray) -> EffectTable:
    """The first descriptions are those of the units in order, all others are of random words."""
    return EffectTable(
        values=values, is_null=~np.eye(*values.shape, dtype=bool), images=np.full((values.shape[1], 2), N)
    )


def own(p: np.ndarray) -> np.ndarray:
    return p[np.arange(len(p)), np.arange(len(p))]


def test_effects_are_aucs_of_every_unit():
    random = np.random.default_rng(0)
    positive, neutral = random.integers(0, 5, (6, 4)), random.integers(0, 5, (7, 4))
    expected = [measure("auc", positive[:, unit].tolist(), neutral[:, unit].tolist()) for unit in range(4)]
    assert effects(positive.astype(float), neutral.astype(float)) == pytest.approx(expected)
    assert effects(np.zeros((0, 4)), neutral.astype(float)).tolist() == [0.5] * 4


@pytest.mark.parametrize(("units", "words"), [(6, 10), (40, 10), (12, 0)])
def test_wrong_descriptions_are_significant_as_often_as_stated(units: int, words: int):
    """The demo has layers of 6 units. Without an effect p <= 0.05 happens at most that often, up to the simulation's error."""
    random = np.random.default_rng(1)
    layers = max(1200 // units, 10)
    found = np.concatenate([own(p_values(simulated(random, units, words, 0.0))) for _ in range(layers)])
    for level in (0.05, 0.1, 0.5):
        error = 3 * np.sqrt(level * (1 - level) / len(found))
        assert level - 0.03 - error < (found <= level).mean() < level + error


def test_no_wrong_description_is_supported_after_adjustment():
    random = np.random.default_rng(2)
    shares = [
        np.mean([q <= LEVEL for q in adjust_p_values(own(p_values(simulated(random, 100, 10, 0.0))).tolist())])
        for _ in range(10)
    ]
    assert np.mean(shares) < 0.01


def test_false_discoveries_are_rare_among_true_ones():
    """Half of the units respond to their description; of those declared, at most about 5 % may be others."""
    random = np.random.default_rng(3)
    false = found = 0
    for _ in range(10):
        true = np.arange(60) < 30
        values = simulated(random, 60, 10, 0.0).values
        values[true, true.nonzero()[0]] = 1.0
        p = own(p_values(table(values)))
        declared = np.array(adjust_p_values(p.tolist())) <= LEVEL
        false, found = false + (declared & ~true).sum(), found + declared.sum()
    assert found > 60
    assert false / found < 0.08


@pytest.mark.parametrize(("units", "words"), [(6, 10), (40, 10)])
def test_true_descriptions_are_found(units: int, words: int):
    random = np.random.default_rng(4)
    layers = [simulated(random, units, words, 3.0) for _ in range(max(120 // units, 3))]
    found = np.concatenate([own(p_values(each)) for each in layers])
    assert (found <= 0.05).mean() > 0.6


def test_ties_count_against_a_description():
    """A unit that every description excites completely says nothing about its own."""
    assert own(p_values(table(np.ones((3, 5))))).tolist() == [1.0] * 3


def test_constant_units_have_no_significant_description():
    assert own(p_values(table(np.full((4, 14), 0.5)))).min() == 1.0


def test_excluded_descriptions_are_not_in_the_null():
    """Two replicates of every unit with equal effects: neither is the tie of the other."""
    single = simulated(np.random.default_rng(5), 8, 10, 3.0)
    is_null = np.concatenate([single.is_null[:, :8], single.is_null], axis=1)
    values = np.concatenate([single.values[:, :8], single.values], axis=1)
    p = p_values(EffectTable(values=values, is_null=is_null, images=np.full((values.shape[1], 2), N)))
    assert own(p[:, :8]) == pytest.approx(own(p[:, 8:16]))
    assert p[~is_null].min() == pytest.approx(1 / (is_null.sum() + 1))


def test_smallest_p_is_one_over_the_number_of_comparisons():
    values = np.full((2, 3), 0.5)
    values[0, 0] = 1.0
    assert p_values(table(values))[0, 0] == pytest.approx(1 / 5)
