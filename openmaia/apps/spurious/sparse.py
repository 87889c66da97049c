"""Logistic regression on features, with and without l1, by scikit-learn.

The strength of l1 is given as scikit-learn's C, its inverse. Features are standardised by whoever calls.
"""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.exceptions import ConvergenceWarning  # pyright: ignore[reportMissingTypeStubs]
from sklearn.linear_model import LogisticRegression  # pyright: ignore[reportMissingTypeStubs]

from openmaia.errors import UsageError

Floats = npt.NDArray[np.float64]
Labels = npt.NDArray[np.int64]

STEPS, FACTOR = 40, 1.5
"""Of the path of C, which begins where the first unit enters."""

HALVINGS = 8
"""Of the step in which the number of units passes the one that is wanted."""

ITERATIONS = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """weights: (classes, d). units: indices of those with a weight other than 0."""

    weights: Floats
    bias: Floats
    strength: float

    @property
    def units(self) -> list[int]:
        return np.flatnonzero(np.abs(self.weights).max(axis=0)).tolist()

    def accuracy(self, features: Floats, labels: Labels) -> float:
        return float(((features @ self.weights.T + self.bias).argmax(axis=1) == labels).mean())


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """Standardisation; a feature that never changes stays 0."""

    mean: Floats
    deviation: Floats

    @classmethod
    def of(cls, features: npt.NDArray[Any]) -> "Scale":
        values = features.astype(np.float64)
        return cls(mean=values.mean(axis=0), deviation=values.std(axis=0))

    def __call__(self, features: npt.NDArray[Any]) -> Floats:
        moving = self.deviation > 1e-9
        return np.where(moving, (features - self.mean) / np.where(moving, self.deviation, 1.0), 0.0)


def plain(features: Floats, labels: Labels, units: Sequence[int], tolerance: float) -> Model:
    """On some units alone, without regularisation, by lbfgs."""
    chosen = list(units)
    fitted = _fitted(
        LogisticRegression(C=np.inf, solver="lbfgs", tol=tolerance, max_iter=ITERATIONS), features[:, chosen], labels
    )
    weights = np.zeros((len(fitted.bias), features.shape[1]))
    weights[:, chosen] = fitted.weights
    return Model(weights=weights, bias=fitted.bias, strength=np.inf)


def with_units(features: Floats, labels: Labels, count: int, tolerance: float) -> Model:
    """The strongest l1 under which at least so many units have weights, by saga. Where more of them enter at once, those with
    the largest weights stay. Raises UsageError where so many never enter."""
    path = _Path(features, labels, tolerance)
    below = strength = path.first
    model = path.at(strength)
    most = int((np.abs(features).max(axis=0) > 0).sum())
    for _ in range(STEPS if most >= count else 0):
        if len(model.units) >= count:
            break
        below, strength = strength, strength * FACTOR
        model = path.at(strength)
    if len(model.units) < count:
        has = f"{most} features of the last layer differ between pictures"
        raise UsageError(
            f"{count} units are to be chosen by l1, and only {has if most < count else f'{len(model.units)} get a weight'}; "
            "lower spurious.units, or give a network with more of them"
        )
    for _ in range(HALVINGS):
        if len(model.units) == count:
            break
        middle = float(np.sqrt(below * strength))
        tried = path.at(middle)
        if len(tried.units) >= count:
            strength, model = middle, tried
        else:
            below = middle
    return _largest(model, count)


def tuned(features: Floats, labels: Labels, splits: int, tolerance: float, rng: np.random.Generator) -> Model:
    """With the strength of l1 that does best on halves held out; of equally good ones the strongest."""
    whole = _Path(features, labels, tolerance)
    strengths = whole.first * np.geomspace(2, 400, 10)
    scores = np.zeros(len(strengths))
    for _ in range(splits):
        fit, held = _halves(labels, rng)
        path = _Path(features[fit], labels[fit], tolerance)
        scores += [path.at(strength).accuracy(features[held], labels[held]) for strength in strengths]
    return whole.at(float(strengths[int(np.argmax(np.round(scores, 9)))]))


class _Path:
    """Fits that begin where the one before ended."""

    def __init__(self, features: Floats, labels: Labels, tolerance: float):
        if len(np.unique(labels)) < 2:
            raise UsageError("the pictures that units are chosen on show one class only; give more of them")
        self._features, self._labels = features, labels
        self._regression = LogisticRegression(
            l1_ratio=1.0, solver="saga", tol=tolerance, max_iter=ITERATIONS, warm_start=True, random_state=0
        )
        shares = np.eye(labels.max() + 1)[labels]
        # At weights of 0 the gradient of a unit is its covariance with the classes; l1 holds it there up to 1 / C.
        self.first = 1.0 / float(np.abs(features.T @ (shares - shares.mean(axis=0))).max() + 1e-12)

    def at(self, strength: float) -> Model:
        self._regression.C = strength
        return _fitted(self._regression, self._features, self._labels)


def _fitted(regression: Any, features: Floats, labels: Labels) -> Model:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # separable data have no finite optimum without l1
        regression.fit(features, labels)
    weights, bias = np.array(regression.coef_), np.array(regression.intercept_)
    if len(weights) == 1:  # of two classes scikit-learn keeps one row
        weights, bias = np.concatenate([-weights, weights]) / 2, np.concatenate([-bias, bias]) / 2
    return Model(weights=weights, bias=bias, strength=float(regression.C))


def _largest(model: Model, count: int) -> Model:
    strongest = np.argsort(-np.abs(model.weights).max(axis=0), kind="stable")[:count]
    weights = np.zeros_like(model.weights)
    weights[:, strongest] = model.weights[:, strongest]
    return Model(weights=weights, bias=model.bias, strength=model.strength)


def _halves(labels: Labels, rng: np.random.Generator) -> tuple[Labels, Labels]:
    """Of each class half, at random."""
    fit = np.concatenate(
        [rng.permutation(np.flatnonzero(labels == one))[: (labels == one).sum() // 2] for one in np.unique(labels)]
    )
    return fit, np.setdiff1d(np.arange(len(labels)), fit)
