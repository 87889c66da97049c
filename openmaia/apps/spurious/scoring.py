"""The rows of Table 2 for one classifier: accuracies on the test pictures, where the places are exchanged.

All unbalanced rows are fitted on the unbalanced validation pictures. Rows of l1 score the regularised model; random, agent
and probe rows are fitted again without regularisation.
"""

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from openmaia.apps.spurious.sparse import Labels, Scale, plain, tuned, with_units
from openmaia.schema import SpuriousConfig

THREADS = os.cpu_count()
"""Fits are made side by side: scikit-learn's solvers run without the interpreter's lock."""

Fitted = tuple[int, float]
"""How many units a model has, and its accuracy."""

ROWS = ("original", "l1", "random", "l1_n", "agent", "probe", "balanced", "balanced_n")


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """features: (n, d). cells: (n,) the class and place of each picture as one number, for drawing balanced sets."""

    features: npt.NDArray[np.float32]
    labels: Labels
    cells: Labels


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """units: of each of the accuracies, one for a row that has no draws."""

    units: tuple[int, ...]
    accuracies: tuple[float, ...]


def unbalanced(
    asked: SpuriousConfig,
    validation: Seen,
    test: Seen,
    units: Sequence[int],
    agent: Sequence[int],
    probe: Sequence[int],
) -> dict[str, Score]:
    """Every row that knows nothing of balanced data. units: chosen by l1; agent, probe: those of them found selective.
    A row without units is left out."""
    scale = Scale.of(validation.features)
    fit, labels = scale(validation.features), validation.labels
    shown, truth = scale(test.features), test.labels

    def l1(count: int) -> Score:
        model = with_units(fit, labels, count, asked.tolerance)
        return Score(units=(len(model.units),), accuracies=(model.accuracy(shown, truth),))

    def again(chosen: Sequence[int]) -> float:
        return plain(fit, labels, chosen, asked.tolerance).accuracy(shown, truth)

    rows = {"l1": l1(asked.units)}
    n = len(agent)
    if n:
        rng = np.random.default_rng(n)
        drawn = [sorted(rng.choice(units, n, replace=False).tolist()) for _ in range(asked.draws)]
        with ThreadPoolExecutor(THREADS) as threads:
            rows["random"] = Score(units=(n,) * asked.draws, accuracies=tuple(threads.map(again, drawn)))
        rows["l1_n"] = l1(n)
        rows["agent"] = Score(units=(n,), accuracies=(again(agent),))
    if probe:
        rows["probe"] = Score(units=(len(probe),), accuracies=(again(probe),))
    return rows


def balanced(asked: SpuriousConfig, pool: Seen, test: Seen, n: int, seed: int) -> dict[str, Score]:
    """The rows that are fitted on balanced validation sets. n: 0 leaves out the row of as many units as the agent's."""

    def trial(number: int) -> dict[str, Fitted]:
        rng = np.random.default_rng([seed, 2, number])
        chosen = _balanced_set(pool, asked.balanced, rng)
        scale = Scale.of(pool.features[chosen])
        fit, labels = scale(pool.features[chosen]), pool.labels[chosen]
        models = {"balanced": tuned(fit, labels, asked.splits, asked.tolerance, rng)}
        if n:
            models["balanced_n"] = with_units(fit, labels, n, asked.tolerance)
        shown = scale(test.features)
        return {row: (len(model.units), model.accuracy(shown, test.labels)) for row, model in models.items()}

    with ThreadPoolExecutor(THREADS) as threads:
        trials = list(threads.map(trial, range(asked.trials)))
    return {row: _score([one[row] for one in trials]) for row in trials[0]}


def _score(found: Sequence[Fitted]) -> Score:
    return Score(units=tuple(units for units, _ in found), accuracies=tuple(accuracy for _, accuracy in found))


def _balanced_set(pool: Seen, count: int, rng: np.random.Generator) -> Labels:
    cells = np.unique(pool.cells)
    each = count // len(cells)
    return np.concatenate([rng.choice(np.flatnonzero(pool.cells == cell), each, replace=False) for cell in cells])
