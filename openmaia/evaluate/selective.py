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
    weights = np.stack([bootstrap.weights(f"unit {unit}", resamples, 0) for unit in units], axis=1)
    ones = np.ones((1, len(units)))
    order = np.argsort(-sure, kind="stable")
    area = _interval(_area(lost, sure, ones)[0], _area(lost, sure, weights))
    spared = _mean(lost, weights) - _area(lost, sure, weights)
    return Selective(
        by=by,
        units=len(units),
        risks=tuple((share, _kept(share, lost, sure, order, weights)) for share in COVERAGES),
        area=area,
        gain=_interval(float(lost.mean() - area.mean), spared),
        random=float(lost.mean()),
        oracle=float(_area(lost, -lost, ones)[0]),
    )


def _kept(share: float, risk: Values, sure: Values, order: Values, weights: Values) -> Interval:
    """Of the most certain share; units that tie at its end count in part."""
    part = _shares(sure, share)
    return _interval(_mean(risk, part[None])[0], _mean(risk, weights * part))


def _shares(sure: Values, share: float) -> Values:
    """(units,) how far each belongs to the most certain share."""
    wanted = share * len(sure)
    above = (sure[None] > sure[:, None]).sum(axis=1)
    equal = (sure[None] == sure[:, None]).sum(axis=1)
    return np.clip((wanted - above) / equal, 0.0, 1.0)


def _area(risk: Values, sure: Values, weights: Values) -> Values:
    """(resamples,) mean over the coverages 1/n, 2/n, … 1 of the risk of the most certain."""
    steps = np.arange(1, len(risk) + 1) / len(risk)
    return np.mean([_mean(risk, weights * _shares(sure, step)) for step in steps], axis=0)


def _mean(values: Values, weights: Values) -> Values:
    return weights @ values / weights.sum(axis=1)


def _interval(value: float, drawn: Values) -> Interval:
    low, high = np.nanpercentile(drawn, [(100 - bootstrap.LEVEL) / 2, (100 + bootstrap.LEVEL) / 2])
    return Interval(mean=float(value), low=float(low), high=float(high))
