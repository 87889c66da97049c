"""Risk-coverage curves: the mean risk of units if the least certain ones are left out.

The curve follows El-Yaniv and Wiener (2010, "On the foundations of noise-free selective classification", JMLR 11). The
area under it is the mean risk over all coverages, as in Geifman and El-Yaniv (2017, "Selective classification for deep
neural networks").
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from openmaia.core.units import Unit
from openmaia.evaluation.analysis.bootstrap import Interval, cluster_weights, percentile_interval
from openmaia.evaluation.analysis.statistics import FloatArray

COVERAGES = (1.0, 0.8, 0.6, 0.4, 0.2)

_MAX_WEIGHTS = 20_000_000
"""Resamples times units, because all bootstrap weights are in memory at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RiskCoverage:
    """The curve of one measure of certainty."""

    by: str
    units: int
    """With both a certainty and a risk."""
    risks: tuple[tuple[float, Interval], ...]
    """Pairs (share of units that are kept, their mean risk)."""
    area: Interval
    """Mean risk over all coverages."""
    gain: Interval
    """Mean risk of all units minus the area."""
    random: float
    """The area if units are left out at random, which is the mean risk."""
    oracle: float
    """The area if the units with the highest risk are left out first."""


def selective(
    certainty: Mapping[Unit, float], risk: Mapping[Unit, float], by: str, resamples: int
) -> RiskCoverage | None:
    """Measures the curve over the units with both values; None for fewer than two. Larger certainty is more certain;
    the risk is, for example, 1 minus the AUC.
    """
    units = sorted(certainty.keys() & risk.keys())
    if len(units) < 2:
        return None
    certainties, risks = (np.array([values[unit] for unit in units]) for values in (certainty, risk))
    resamples = min(resamples, max(_MAX_WEIGHTS // len(units), 100))
    weights = np.stack([cluster_weights(f"unit {unit}", resamples, 0) for unit in units], axis=1)
    ones, counts = np.ones((1, len(units))), np.arange(1, len(units) + 1, dtype=np.float64)
    area, areas = (risk_of_most_certain(risks, certainties, each, counts).mean(axis=1) for each in (ones, weights))
    covered = np.array(COVERAGES) * len(units)
    whole, draws = (risk_of_most_certain(risks, certainties, each, covered) for each in (ones, weights))
    return RiskCoverage(
        by=by,
        units=len(units),
        risks=tuple((share, percentile_interval(whole[0, n], draws[:, n])) for n, share in enumerate(COVERAGES)),
        area=percentile_interval(area[0], areas),
        gain=percentile_interval(risks.mean() - area[0], weights @ risks / weights.sum(axis=1) - areas),
        random=float(risks.mean()),
        oracle=float(risk_of_most_certain(risks, -risks, ones, counts).mean()),
    )


def risk_of_most_certain(
    risk: FloatArray, certainty: FloatArray, weights: FloatArray, counts: FloatArray
) -> FloatArray:
    """Returns the mean risk of the most certain units, (resamples, counts).

    Args:
        risk: (units,)
        certainty: (units,). If a group of equally certain units is only partly kept, all of them count with the same
            fraction.
        weights: Bootstrap weights, (resamples, units).
        counts: The numbers of units that are kept, (counts,): positive, not necessarily whole.
    """
    order = np.argsort(-certainty, kind="stable")
    ends = np.flatnonzero(np.append(np.diff(certainty[order]) != 0, True)) + 1
    starts = np.concatenate([[0], ends[:-1]])
    group = np.searchsorted(ends, counts, side="left")
    part = (counts - starts[group]) / (ends - starts)[group]

    def total(values: FloatArray) -> FloatArray:
        below = np.pad(np.cumsum(values[:, order], axis=1)[:, ends - 1], ((0, 0), (1, 0)))
        return below[:, group] + part * (below[:, group + 1] - below[:, group])

    return total(weights * risk) / total(weights)
