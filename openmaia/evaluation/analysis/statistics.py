"""Measures that compare the activations of two groups of images, with significance tests and intervals.

A measure takes activations on n positive images, weights `p` for them, activations on m neutral images and weights `q`.
Weights have the shape (resamples, images), so that a whole bootstrap is a few matrix products. With equal weights a
measure equals that of the publication in its docstring.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import cast

import numpy as np
import numpy.typing as npt

CHANCE = 0.5
"""The AUC of a description that carries no information."""

FloatArray = npt.NDArray[np.float64]

Measure = Callable[[FloatArray, FloatArray, FloatArray, FloatArray], FloatArray]
"""(positive (n,), p (b, n), neutral (m,), q (b, m)) -> (b,). Undefined values are NaN."""


def difference(positive: FloatArray, p: FloatArray, neutral: FloatArray, q: FloatArray) -> FloatArray:
    """Returns the mean positive minus the mean neutral activation. The MAIA paper reports both means."""
    return _mean(positive, p) - _mean(neutral, q)


def area(positive: FloatArray, p: FloatArray, neutral: FloatArray, q: FloatArray) -> FloatArray:
    """Returns the area under the ROC curve: Mann-Whitney's U divided by the number of pairs. Ties count half (Hanley
    and McNeil 1982).
    """
    wins = (positive[:, None] > neutral[None]) + 0.5 * (positive[:, None] == neutral[None])
    return np.einsum("bm,bm->b", p @ wins, q) / (_sum(p) * _sum(q))


def cohens_d(positive: FloatArray, p: FloatArray, neutral: FloatArray, q: FloatArray) -> FloatArray:
    """Returns the difference of the means divided by the pooled standard deviation with n + m - 2 degrees of freedom
    (Cohen 1988, chapter 2); NaN if neither group has any variance.
    """
    n, m = len(positive), len(neutral)
    squares = _variance(positive, p) * n + _variance(neutral, q) * m
    return _ratio(difference(positive, p, neutral, q), np.sqrt(squares / max(n + m - 2, 1)))


def mad(positive: FloatArray, p: FloatArray, control: FloatArray, q: FloatArray) -> FloatArray:
    """Returns the mean activation difference of CoSy (Kopf et al. 2024, section 4).

    The difference of the means is divided by the population standard deviation of the control activations; NaN if they
    are constant. CoSy's control images are random images of a dataset.
    """
    return _ratio(difference(positive, p, control, q), np.sqrt(_variance(control, q)))


MEASURES: Mapping[str, Measure] = {"difference": difference, "auc": area, "d": cohens_d, "mad": mad}


def measure(name: str, positive: Sequence[float], neutral: Sequence[float]) -> float | None:
    """Computes one of MEASURES with equal weights; None if it is undefined, for example because one kind of image is
    missing.
    """
    if not positive or not neutral:
        return None
    p, q = (np.asarray(values, dtype=np.float64) for values in (positive, neutral))
    value = float(MEASURES[name](p, np.ones((1, len(p))), q, np.ones((1, len(q))))[0])
    return value if np.isfinite(value) else None


def wilson(share: float, n: int) -> tuple[float, float]:
    """Returns both ends of the 95 % interval of a share of n independent trials (Wilson 1927). Unlike in
    scipy.stats.binomtest, share * n need not be a whole number.
    """
    from scipy import special  # most of what imports this module needs no interval

    z = float(special.ndtri(0.975))
    centre, half = share + z * z / (2 * n), z * float(np.sqrt(share * (1 - share) / n + z * z / (4 * n * n)))
    return max((centre - half) / (1 + z * z / n), 0.0), min((centre + half) / (1 + z * z / n), 1.0)


def share_difference(one: tuple[float, float, float], other: tuple[float, float, float]) -> tuple[float, float, float]:
    """Returns the difference of two independent shares with both ends of its 95 % interval (Newcombe 1998, method 10). Each
    share is given with both ends of its Wilson interval.
    """
    (p, p_low, p_high), (q, q_low, q_high) = one, other
    return p - q, p - q - float(np.hypot(p - p_low, q_high - q)), p - q + float(np.hypot(p_high - p, q - q_low))


def proportion(hits: Sequence[bool]) -> list[float] | None:
    """Returns [share, low, high] of hits, with Wilson's interval, to 4 decimals; None if empty."""
    if not hits:
        return None
    share = sum(hits) / len(hits)
    return [round(value, 4) for value in (share, *wilson(share, len(hits)))]


def adjust_p_values(p: Sequence[float]) -> list[float]:
    """Adjusts p-values for the false discovery rate (Benjamini and Hochberg)."""
    from scipy import stats  # which takes a second, and processes that test one description need no q-value

    if not p:
        return []
    return cast(list[float], np.asarray(stats.false_discovery_control(list(p), method="bh")).tolist())


def _sum(weights: FloatArray) -> FloatArray:
    # Of rows of a few numbers each, as a matrix product: several times as fast as sum().
    return weights @ np.ones(weights.shape[1])


def _mean(values: FloatArray, weights: FloatArray) -> FloatArray:
    return weights @ values / _sum(weights)


def _variance(values: FloatArray, weights: FloatArray) -> FloatArray:
    # Centred first, so that a constant group has exactly zero variance.
    centred = values - values.mean()
    return np.maximum(_mean(centred**2, weights) - _mean(centred, weights) ** 2, 0.0)


def _ratio(difference: FloatArray, deviation: FloatArray) -> FloatArray:
    # Smaller deviations are rounding errors of a constant group.
    return np.divide(difference, deviation, out=np.full_like(difference, np.nan), where=deviation > 1e-12)
