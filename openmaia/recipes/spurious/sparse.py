"""Fits logistic regression with and without l1 to standardised features. `strength` is scikit-learn's C, the inverse of
the strength of the regularisation.
"""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.exceptions import ConvergenceWarning  # pyright: ignore[reportMissingTypeStubs]
from sklearn.linear_model import LogisticRegression  # pyright: ignore[reportMissingTypeStubs]

from openmaia.core.errors import UsageError

FeatureArray = npt.NDArray[np.float64]
"""(n images, d units)"""
ClassLabels = npt.NDArray[np.int64]
"""The class of each image, (n images,)."""

_STEPS, _FACTOR = 40, 1.5
"""`fit_with_units` increases C (the inverse of the regularisation strength) at most _STEPS times by the factor _FACTOR. At
the first value of C, all weights are still 0."""
_HALVINGS = 8
"""Bisections between the last C that gives fewer units than requested and the first that gives enough."""
_ITERATIONS = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class SparseModel:
    """A fitted logistic regression, in which many units may have no weight."""

    weights: npt.NDArray[np.float64]
    """(classes, d units)"""
    bias: npt.NDArray[np.float64]
    """(classes,)"""
    strength: float
    """Infinite without regularisation."""

    @property
    def units(self) -> list[int]:
        """Indices of the units that have a nonzero weight for at least one class."""
        return np.flatnonzero(np.abs(self.weights).max(axis=0)).tolist()

    def accuracy(self, features: FeatureArray, labels: ClassLabels) -> float:
        """Returns the share of correct predictions."""
        return float(((features @ self.weights.T + self.bias).argmax(axis=1) == labels).mean())


def fit_plain(features: FeatureArray, labels: ClassLabels, units: Sequence[int], tolerance: float) -> SparseModel:
    """Fits a logistic regression without regularisation to some columns of the features. The weights of the others are
    0.
    """
    chosen = list(units)
    regression = LogisticRegression(C=np.inf, solver="lbfgs", tol=tolerance, max_iter=_ITERATIONS)
    fitted = _fit(regression, features[:, chosen], labels)
    weights = np.zeros((len(fitted.bias), features.shape[1]))
    weights[:, chosen] = fitted.weights
    return SparseModel(weights=weights, bias=fitted.bias, strength=np.inf)


def fit_with_units(features: FeatureArray, labels: ClassLabels, count: int, tolerance: float) -> SparseModel:
    """Fits an L1-regularised logistic regression with nonzero weights for exactly `count` units.

    The regularisation is approximately the strongest at which at least `count` units have nonzero weights. If more have
    them, only those with the largest weights keep them.

    Raises:
        UsageError: No regularisation that was tried gives that many units nonzero weights.
    """
    path = _RegularisationPath(features, labels, tolerance)
    below = strength = path.first
    model = path.fit(strength)
    most = int((np.abs(features).max(axis=0) > 0).sum())
    for _ in range(_STEPS if most >= count else 0):
        if len(model.units) >= count:
            break
        below, strength = strength, strength * _FACTOR
        model = path.fit(strength)
    if len(model.units) < count:
        has = f"{most} features of the last layer differ between images"
        raise UsageError(
            f"{count} units are to be chosen by l1, and only {has if most < count else f'{len(model.units)} get a weight'}; "
            "lower spurious.units, or give a network with more of them"
        )
    for _ in range(_HALVINGS):
        if len(model.units) == count:
            break
        middle = float(np.sqrt(below * strength))
        tried = path.fit(middle)
        if len(tried.units) >= count:
            strength, model = middle, tried
        else:
            below = middle
    return _largest(model, count)


def fit_tuned(
    features: FeatureArray, labels: ClassLabels, splits: int, tolerance: float, rng: np.random.Generator
) -> SparseModel:
    """Fits an L1-regularised logistic regression, with the strength of ten that is best on held-out images.

    Each is scored by its mean accuracy over `splits` random divisions of the images into halves, of which one is fitted
    and the other scored. Of equally good strengths, the strongest regularisation is chosen.
    """
    whole = _RegularisationPath(features, labels, tolerance)
    strengths = whole.first * np.geomspace(2, 400, 10)
    scores = np.zeros(len(strengths))
    for _ in range(splits):
        fit, held = _halves(labels, rng)
        path = _RegularisationPath(features[fit], labels[fit], tolerance)
        scores += [path.fit(strength).accuracy(features[held], labels[held]) for strength in strengths]
    return whole.fit(float(strengths[int(np.argmax(np.round(scores, 9)))]))


class _RegularisationPath:
    """Fits with decreasing regularisation, each of which starts from the previous solution."""

    def __init__(self, features: FeatureArray, labels: ClassLabels, tolerance: float):
        if len(np.unique(labels)) < 2:
            raise UsageError("the images on which units are chosen show one class only; give more of them")
        self._features, self._labels = features, labels
        self._regression = LogisticRegression(
            l1_ratio=1.0, solver="saga", tol=tolerance, max_iter=_ITERATIONS, warm_start=True, random_state=0
        )
        shares = np.eye(labels.max() + 1)[labels]
        # The gradient at zero weights is the covariance of units and classes; up to 1 / C, l1 keeps a weight at zero.
        self.first = 1.0 / float(np.abs(features.T @ (shares - shares.mean(axis=0))).max() + 1e-12)

    def fit(self, strength: float) -> SparseModel:
        self._regression.C = strength
        return _fit(self._regression, self._features, self._labels)


def _fit(regression: Any, features: FeatureArray, labels: ClassLabels) -> SparseModel:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # separable data have no finite optimum without l1
        regression.fit(features, labels)
    weights, bias = np.array(regression.coef_), np.array(regression.intercept_)
    if len(weights) == 1:  # scikit-learn keeps one row for two classes
        weights, bias = np.concatenate([-weights, weights]) / 2, np.concatenate([-bias, bias]) / 2
    return SparseModel(weights=weights, bias=bias, strength=float(regression.C))


def _largest(model: SparseModel, count: int) -> SparseModel:
    strongest = np.argsort(-np.abs(model.weights).max(axis=0), kind="stable")[:count]
    weights = np.zeros_like(model.weights)
    weights[:, strongest] = model.weights[:, strongest]
    return SparseModel(weights=weights, bias=model.bias, strength=model.strength)


def _halves(labels: ClassLabels, rng: np.random.Generator) -> tuple[ClassLabels, ClassLabels]:
    """Returns the indices of a random half of the images of each class, and those of all other images."""
    groups = [rng.permutation(np.flatnonzero(labels == label)) for label in np.unique(labels)]
    fit = np.concatenate([group[: len(group) // 2] for group in groups])
    return fit, np.setdiff1d(np.arange(len(labels)), fit)
