"""Does leaving out the least certain units lower the risk?

Risk against coverage follows El-Yaniv and Wiener (2010, "On the foundations of noise-free selective classification",
JMLR 11); the area under it is the mean risk over all coverages, as in Geifman and El-Yaniv (2017, "Selective
classification for deep neural networks").
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from openmaia.evaluate import bootstrap
from openmaia.evaluate.bootstrap import Interval
from openmaia.evaluate.statistics import Values
from openmaia.units import Unit

COVERAGES = (1.0, 0.8, 0.6, 0.4, 0.2)

MOST = 20_000_000
"""Weights at once; of many units there are fewer resamples."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Selective:
    """by: what certainty was measured by. risks: (coverage, mean risk of the most certain units, with its interval). area:
    mean risk over all coverages, gain: what it is below the mean risk; random: the same where units are left out at random, which is the mean risk; oracle: where
    the riskiest go first."""

    by: str
    units: int
    risks: tuple[tuple[float, Interval], ...]
    area: Interval
    gain: Interval
    random: float
    oracle: float


def selective(certainty: Mapping[Unit, float], risk: Mapping[Unit, float], by: str, resamples: int) -> Selective | None:
    """certainty, risk: by unit; only units with both count. None for fewer than two of them."""
    units = sorted(certainty.keys() & risk.keys())
    if len(units) < 2:
        return None
    sure, lost = (np.array([values[unit] for unit in units]) for values in (certainty, risk))
    resamples = min(resamples, max(MOST // len(units), 100))
    weights = np.stack([bootstrap.weights(f"unit {unit}", resamples, 0) for unit in units], axis=1)
    ones, counts = np.ones((1, len(units))), np.arange(1, len(units) + 1, dtype=np.float64)
    area, areas = (most_certain(lost, sure, each, counts).mean(axis=1) for each in (ones, weights))
    at = np.array(COVERAGES) * len(units)
    whole, drawn = most_certain(lost, sure, ones, at)[0], most_certain(lost, sure, weights, at)
    return Selective(
        by=by,
        units=len(units),
        risks=tuple((share, _interval(whole[n], drawn[:, n])) for n, share in enumerate(COVERAGES)),
        area=_interval(area[0], areas),
        gain=_interval(lost.mean() - area[0], weights @ lost / weights.sum(axis=1) - areas),
        random=float(lost.mean()),
        oracle=float(most_certain(lost, -lost, ones, counts).mean()),
    )


def most_certain(risk: Values, sure: Values, weights: Values, counts: Values) -> Values:
    """(resamples, counts) mean risk of so many of the most certain units. weights: (resamples, units). counts: above 0,
    not necessarily whole. Units that are equally certain belong to the most certain in equal parts."""
    order = np.argsort(-sure, kind="stable")
    ends = np.flatnonzero(np.append(np.diff(sure[order]) != 0, True)) + 1
    starts = np.concatenate([[0], ends[:-1]])
    group = np.searchsorted(ends, counts, side="left")
    part = (counts - starts[group]) / (ends - starts)[group]

    def total(values: Values) -> Values:
        below = np.pad(np.cumsum(values[:, order], axis=1)[:, ends - 1], ((0, 0), (1, 0)))
        return below[:, group] + part * (below[:, group + 1] - below[:, group])

    return total(weights * risk) / total(weights)


def _interval(value: float, drawn: Values) -> Interval:
    low, high = np.nanpercentile(drawn, [(100 - bootstrap.LEVEL) / 2, (100 + bootstrap.LEVEL) / 2])
    return Interval(mean=float(value), low=float(low), high=float(high))
