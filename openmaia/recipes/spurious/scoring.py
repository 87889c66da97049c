"""Computes the rows of Table 2 for one classifier: accuracies on the test images.

A row stands for one way to choose units (features that the last linear layer receives) and to fit a new linear layer to
them. The rows without balanced images are fitted on the validation images, in which each class is nearly always in one
place. Of these, the l1 rows score the L1-regularised model; the others are fitted to their units without
regularisation.
"""

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.preprocessing import StandardScaler  # pyright: ignore[reportMissingTypeStubs]

from openmaia.config.studies import SpuriousConfig
from openmaia.recipes.spurious.sparse import ClassLabels, FeatureArray, fit_plain, fit_tuned, fit_with_units

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

    `score_balanced`: the model with the L1 regularisation that is best on held-out images. `balanced_n`: the L1-regularised
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
