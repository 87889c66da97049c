"""Decides after each look whether more images are drawn.

A 95 % interval at each look would miss the truth at one of them far more often than in 5 % of tests. So the error is
spent over the looks (Lan and DeMets 1983, "Discrete sequential boundaries for clinical trials", Biometrika 70), by
their function that resembles Pocock's boundaries: after the share t of the images, the probability that one of the
intervals so far missed the truth is ERROR * log(1 + (e - 1) t).
"""

import math
from collections.abc import Mapping, Sequence
from enum import StrEnum
from functools import lru_cache
from typing import Any

import numpy as np

from openmaia.evaluation.analysis.statistics import CHANCE, FloatArray

ERROR = 0.05
"""Probability that the interval of an AUC misses the truth at any of its looks."""


class Look(StrEnum):
    """What the intervals of a description's AUCs say."""

    CLEAR = "clear"
    """All lie above chance."""
    HOPELESS = "hopeless"
    """One lies at or below chance or, after the first look, one AUC does: more images would hardly make it clear."""
    OPEN = "open"


@lru_cache(maxsize=256)
def levels(sizes: tuple[int, ...]) -> tuple[float, ...]:
    """Returns the probability with which the interval of each look may miss the truth, as if it were the only look.

    The estimates are treated as a Brownian motion at the times `sizes` (the increasing numbers of images), whose
    density inside of the boundaries is integrated numerically from look to look (Armitage, McPherson and Rowe 1969).
    """
    from scipy import stats  # which takes a second, and tests without looks need no levels

    times = [size / sizes[-1] for size in sizes]
    spent = [ERROR * math.log1p((math.e - 1) * time) for time in times]
    nodes, weights = np.polynomial.legendre.leggauss(200)
    inside, mass, found = np.zeros(1), np.ones(1), list[float]()  # before the first look, all mass is at 0
    for time, step, error in zip(times, np.diff([0.0, *times]), np.diff([0.0, *spent]), strict=True):
        deviation = math.sqrt(step)
        bound = _bound(inside, mass, deviation, error)
        found.append(2 * float(stats.norm.sf(bound / math.sqrt(time))))
        reached = stats.norm.pdf(bound * nodes[:, None], loc=inside, scale=deviation) @ mass
        inside, mass = bound * nodes, bound * weights * reached
    return tuple(found)


def _bound(inside: FloatArray, mass: FloatArray, deviation: float, error: float) -> float:
    """Returns the bound whose absolute value a normal step from `inside`, weighted by `mass`, exceeds with `error`."""

    from scipy import optimize, stats

    def excess(bound: float) -> float:
        outside = stats.norm.sf((bound - inside) / deviation) + stats.norm.cdf((-bound - inside) / deviation)
        return float(mass @ outside) - error

    return float(optimize.brentq(excess, 0.0, 10.0))


def judge_look(controls: Sequence[Mapping[str, Any]], *, is_first: bool) -> Look:
    """Says what the values of `openmaia.evaluation.scores.control_scores` mean. The first look has too few images to
    give up for an AUC alone.
    """
    if any(each["high" if is_first else "auc"] <= CHANCE for each in controls):
        return Look.HOPELESS
    return Look.CLEAR if controls and all(each["low"] > CHANCE for each in controls) else Look.OPEN
