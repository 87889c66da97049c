"""Measures that compare two groups of activations.

Each works on weights too, of shape (resamples, n) with a row per resample, so that a bootstrap is a few products of
matrices. With all weights equal a measure is the plain one of the textbook or paper that its docstring names.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import cast

import numpy as np
import numpy.typing as npt
from scipy import stats

CHANCE = 0.5
"""The AUC of a description that says nothing."""

Values = npt.NDArray[np.float64]

Measure = Callable[[Values, Values, Values, Values], Values]
"""(positive (n,), their weights (b, n), neutral (m,), their weights (b, m)) -> (b,). Not a number where undefined."""


def difference(positive: Values, p: Values, neutral: Values, q: Values) -> Values:
    """Mean of the positive minus mean of the neutral activations: the published MAIA evaluation's two numbers."""
    return _mean(positive, p) - _mean(neutral, q)


def area(positive: Values, p: Values, neutral: Values, q: Values) -> Values:
    """The probability that a positive image excites the unit more than a neutral one, ties counting half (Hanley and
    McNeil 1982): Mann-Whitney's U over the number of pairs."""
    wins = (positive[:, None] > neutral[None]) + 0.5 * (positive[:, None] == neutral[None])
    return ((p @ wins) * q).sum(axis=1) / (p.sum(axis=1) * q.sum(axis=1))


def cohens_d(positive: Values, p: Values, neutral: Values, q: Values) -> Values:
    """Difference of the means over the pooled standard deviation with n + m - 2 degrees of freedom (Cohen 1988, chapter
    2). Undefined without any spread."""
    n, m = len(positive), len(neutral)
    squares = _variance(positive, p) * n + _variance(neutral, q) * m
    return _over(difference(positive, p, neutral, q), np.sqrt(squares / max(n + m - 2, 1)))


def mad(positive: Values, p: Values, neutral: Values, q: Values) -> Values:
    """CoSy's mean activation difference (Kopf et al. 2024, section 4): difference of the means over the standard deviation
    of the control activations, of the population. Undefined for constant controls."""
    return _over(difference(positive, p, neutral, q), np.sqrt(_variance(neutral, q)))


MEASURES: Mapping[str, Measure] = {"difference": difference, "auc": area, "d": cohens_d, "mad": mad}


def measure(name: str, positive: Sequence[float], neutral: Sequence[float]) -> float | None:
    """One of MEASURES on plain values; None where it is undefined, as where a group is empty."""
    if not positive or not neutral:
        return None
    p, q = (np.asarray(values, dtype=np.float64) for values in (positive, neutral))
    found = float(MEASURES[name](p, np.ones((1, len(p))), q, np.ones((1, len(q))))[0])
    return found if np.isfinite(found) else None


def auc(positive: Sequence[float], neutral: Sequence[float]) -> float:
    """The measure `auc`, and chance where a group is empty."""
    found = measure("auc", positive, neutral)
    return CHANCE if found is None else found


def mann_whitney_p(positive: Sequence[float], neutral: Sequence[float]) -> float | None:
    """One-sided: whether positive images excite the unit more (scipy.stats.mannwhitneyu). It takes the images as
    independent, so that it is too small where many share a prompt; intervals are not. 1 where all activations are
    equal, None where a group is empty."""
    if not positive or not neutral:
        return None
    if np.ptp([*positive, *neutral]) == 0:
        return 1.0
    return float(stats.mannwhitneyu(positive, neutral, alternative="greater").pvalue)


def wilson(share: float, n: int) -> tuple[float, float]:
    """95 % interval of a share of n independent trials (Wilson 1927), which has a width also at 0 and 1 and for n = 1. The
    share need not be a whole number of trials (else as scipy.stats.binomtest has it)."""
    z = float(stats.norm.ppf(0.975))
    centre, half = share + z * z / (2 * n), z * float(np.sqrt(share * (1 - share) / n + z * z / (4 * n * n)))
    return max((centre - half) / (1 + z * z / n), 0.0), min((centre + half) / (1 + z * z / n), 1.0)


def discoveries(p: Sequence[float]) -> list[float]:
    """p-values of a sweep adjusted for the false discovery rate, after Benjamini and Hochberg
    (scipy.stats.false_discovery_control): a unit counts as found at 5 % where its value is at most 0.05."""
    if not p:
        return []
    return cast(list[float], np.asarray(stats.false_discovery_control(list(p), method="bh")).tolist())


def _mean(values: Values, weights: Values) -> Values:
    return weights @ values / weights.sum(axis=1)


def _variance(values: Values, weights: Values) -> Values:
    """Of the population. Values are centred first, so that a constant group has exactly none."""
    centred = values - values.mean()
    return np.maximum(_mean(centred**2, weights) - _mean(centred, weights) ** 2, 0.0)


def _over(difference: Values, spread: Values) -> Values:
    # Below this the spread is the rounding of a constant.
    return np.divide(difference, spread, out=np.full_like(difference, np.nan), where=spread > 1e-12)
