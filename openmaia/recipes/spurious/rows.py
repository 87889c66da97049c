"""Fits linear classifiers to the units that each row of Table 2 selects, and computes their accuracies on the test images.

A row stands for one way to choose units (features that the last linear layer receives) and to fit a new linear layer to
them: logistic regression, with l1 or without. The rows without balanced images are fitted on the validation images, in
which each class is nearly always in one place. Of these, the l1 rows score the L1-regularised model; the others are
fitted to their units without regularisation. `strength` is scikit-learn's C, the inverse of the strength of the
regularisation.
"""

import os
import warnings
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.exceptions import ConvergenceWarning  # pyright: ignore[reportMissingTypeStubs]
from sklearn.linear_model import LogisticRegression  # pyright: ignore[reportMissingTypeStubs]
from sklearn.preprocessing import StandardScaler  # pyright: ignore[reportMissingTypeStubs]

from openmaia.config.studies import SpuriousConfig
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


_THREADS = os.cpu_count()
"""Concurrent fits. Threads suffice, because scikit-learn's solvers release the interpreter's lock."""

TABLE_ROWS = ("original", "l1", "random", "l1_n", "agent", "probe", "balanced", "balanced_n")


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureSet:
    """The features and classes of a set of images."""

    features: npt.NDArray[np.float32]
    """(n images, d units)"""
    labels: ClassLabels
    """The class of each image, (n,)."""
    cells: ClassLabels
    """A number for the class and place of each image, (n,). Balanced sets have equally many images of each number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectionScore:
    """One row for one classifier: an accuracy for each random draw of units or images, or a single one."""

    units: tuple[int, ...]
    """The number of units that the model uses, for each accuracy."""
    accuracies: tuple[float, ...]


def standardise_features(fit: FeatureSet, *others: FeatureSet) -> list[FeatureArray]:
    """Standardises the features of all sets by the means and standard deviations of the first. A feature that is
    constant there becomes 0.
    """
    scaler: Any = StandardScaler().fit(fit.features.astype(np.float64))  # pyright: ignore[reportUnknownMemberType]
    return [scaler.transform(each.features.astype(np.float64)) for each in (fit, *others)]


def score_unbalanced(
    settings: SpuriousConfig,
    validation: FeatureSet,
    test: FeatureSet,
    units: Sequence[int],
    agent: Sequence[int],
    probe: Sequence[int],
) -> dict[str, SelectionScore]:
    """Computes the rows that need no balanced images, by name. Rows without units are left out.

    - `l1`: the L1-regularised model with `settings.units` units
    - `l1_n`: the same with as many units as `agent` has
    - `agent`: a model without regularisation on the units that the agent found selective
    - `probe`: the same on those that the factorial probe found selective
    - `random`: the same on random subsets of `units`, each as large as `agent`, with one accuracy for each of
      `settings.draws`

    Args:
        validation: The images on which the rows are fitted.
        units: The units that l1 selected.
    """
    fit, test_features = standardise_features(validation, test)
    labels = validation.labels

    def l1(count: int) -> SelectionScore:
        model = fit_with_units(fit, labels, count, settings.tolerance)
        return SelectionScore(units=(len(model.units),), accuracies=(model.accuracy(test_features, test.labels),))

    def refitted(chosen: Sequence[int]) -> float:
        return fit_plain(fit, labels, chosen, settings.tolerance).accuracy(test_features, test.labels)

    rows = {"l1": l1(settings.units)}
    n = len(agent)
    if n:
        rng = np.random.default_rng(n)
        draws = [sorted(rng.choice(units, n, replace=False).tolist()) for _ in range(settings.draws)]
        with ThreadPoolExecutor(_THREADS) as threads:
            accuracies = tuple(threads.map(refitted, draws))
        rows["random"] = SelectionScore(units=(n,) * settings.draws, accuracies=accuracies)
        rows["l1_n"] = l1(n)
        rows["agent"] = SelectionScore(units=(n,), accuracies=(refitted(agent),))
    if probe:
        rows["probe"] = SelectionScore(units=(len(probe),), accuracies=(refitted(probe),))
    return rows


def score_balanced(
    settings: SpuriousConfig, pool: FeatureSet, test: FeatureSet, n: int, seed: int
) -> dict[str, SelectionScore]:
    """Computes the rows that are fitted on balanced sets of images of the pool, with one accuracy for each set that is
    drawn.

    `balanced`: the model with the L1 regularisation that is best on held-out images. `balanced_n`: the L1-regularised
    model with n units; left out if n is 0.
    """

    def trial(number: int) -> dict[str, tuple[int, float]]:
        rng = np.random.default_rng([seed, 2, number])
        chosen = _balanced_set(pool, settings.balanced, rng)
        part = FeatureSet(features=pool.features[chosen], labels=pool.labels[chosen], cells=pool.cells[chosen])
        fit, test_features = standardise_features(part, test)
        models = {"balanced": fit_tuned(fit, part.labels, settings.splits, settings.tolerance, rng)}
        if n:
            models["balanced_n"] = fit_with_units(fit, part.labels, n, settings.tolerance)
        return {row: (len(model.units), model.accuracy(test_features, test.labels)) for row, model in models.items()}

    with ThreadPoolExecutor(_THREADS) as threads:
        trials = list(threads.map(trial, range(settings.trials)))
    return {
        row: SelectionScore(
            units=tuple(each[row][0] for each in trials), accuracies=tuple(each[row][1] for each in trials)
        )
        for row in trials[0]
    }


def _balanced_set(pool: FeatureSet, count: int, rng: np.random.Generator) -> ClassLabels:
    cells = np.unique(pool.cells)
    each = count // len(cells)
    return np.concatenate([rng.choice(np.flatnonzero(pool.cells == cell), each, replace=False) for cell in cells])
