"""Which units are chosen by l1 and by the factorial probe."""

import numpy as np
import pytest

from openmaia.core.errors import UsageError
from openmaia.recipes.spurious import rows
from openmaia.recipes.spurious.rows import FeatureSet, standardise_features
from openmaia.recipes.spurious.study import find_selective


def _planted(informative: int = 6, noise: int = 30, count: int = 240) -> tuple[rows.FeatureArray, rows.ClassLabels]:
    """Features of which only the first ones distinguish the four classes."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 4, count)
    centres = 2.5 * rng.standard_normal((4, informative))
    return np.hstack(
        [centres[labels] + rng.standard_normal((count, informative)), rng.standard_normal((count, noise))]
    ), labels


def test_l1_chooses_informative_units():
    features, labels = _planted()
    model = rows.fit_with_units(features, labels, 5, 1e-4)
    assert len(model.units) == 5 and set(model.units) <= set(range(6))


def test_too_few_units_are_refused():
    features, labels = _planted(informative=2, noise=1)
    with pytest.raises(UsageError, match="50 units are to be chosen by l1, and only 3 features"):
        rows.fit_with_units(features, labels, 50, 1e-3)


def test_plain_model_uses_its_units_only():
    features, labels = _planted()
    model = rows.fit_plain(features, labels, [1, 4], 1e-4)
    changed = features.copy()
    changed[:, [0, 2, 3, *range(5, 36)]] = 99.0
    assert model.units == [1, 4]
    assert model.accuracy(features, labels) == model.accuracy(changed, labels) > 0.4


def test_constant_feature_is_standardised_to_zero():
    features = np.array([[1.0, 7.0], [3.0, 7.0]], np.float32)
    images = FeatureSet(features=features, labels=np.array([0, 1]), cells=np.array([0, 1]))
    assert standardise_features(images)[0].tolist() == [[-1.0, 0.0], [1.0, 0.0]]


def test_probe_keeps_units_that_follow_the_class():
    rng = np.random.default_rng(0)
    activations = 0.1 * rng.standard_normal((4, 6, 3, 2))
    activations[1, :, :, 0] += 2.0
    activations[:, 2, :, 1] += 2.0
    assert find_selective(activations, [0, 1]) == [0]
