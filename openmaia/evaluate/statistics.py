"""Scores of two groups of activations, and intervals over units. Formulas are scipy's."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

CHANCE = 0.5


def auc(positive: Sequence[float], neutral: Sequence[float]) -> float:
    """The probability that a positive image excites the unit more than a neutral one, ties counting half: the
    Mann-Whitney U over the number of pairs (scipy.stats.mannwhitneyu). Chance where a group is empty."""
    if not positive or not neutral:
        return CHANCE
    return float(stats.mannwhitneyu(positive, neutral).statistic) / (len(positive) * len(neutral))


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """A mean with its bootstrap interval (95 %, percentile method)."""

    mean: float
    low: float
    high: float


def mean_interval(values: Sequence[float], resamples: int, seed: int = 0) -> Interval:
    """scipy.stats.bootstrap of the mean over units. With fewer than two different values the interval is the mean."""
    data = np.asarray(values, dtype=np.float64)
    if data.size == 0:
        return Interval(mean=float("nan"), low=float("nan"), high=float("nan"))
    mean = float(data.mean())
    if data.size < 2 or np.ptp(data) == 0:
        return Interval(mean=mean, low=mean, high=mean)
    random = np.random.default_rng(seed)
    result = stats.bootstrap((data,), np.mean, n_resamples=resamples, rng=random, method="percentile")
    return Interval(mean=mean, low=float(result.confidence_interval.low), high=float(result.confidence_interval.high))
