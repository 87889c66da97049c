"""Tests descriptions by permuting them among the units of a layer.

The statistic T(u, d) is the AUC of the responses of unit u to the positive images of description d against those to its
neutral images. It exists for every unit and every description of the layer, because a trial holds the responses of all
units. Unlike a difference of means, it does not depend on the scale of a unit, a few extreme images cannot decide it,
and the comparisons with controls are AUCs as well.

The null distribution consists of all T(v, d) in which d was made for another unit than v, or consists of random words.
Pairs in which d is like a description of v are left out. The distribution is pooled over the tested units of the layer,
because the values of a single unit are too few: with 5 other units and 60 random words, no p-value of a unit alone
could be below 1/66. Before, the values of each unit are standardised (`standardise_rows`), so that a unit that prefers
the positive images of most descriptions, or whose AUCs vary more than those of others, has no advantage. This does not
change the order of the values of a unit. If descriptions are assigned to units at random, the value of a unit's own
description is a random one of all its values, so that P(p <= a) <= a holds on average over the units of a layer.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from openmaia.evaluation.analysis.statistics import CHANCE, FloatArray

_NORMAL_MAD = 1.4826
"""Standard deviation of a normal distribution, divided by its median absolute deviation."""


def effects(positive: npt.NDArray[np.floating], neutral: npt.NDArray[np.floating]) -> FloatArray:
    """Returns the statistic T of all units for one description, (units,), from responses to its positive (n, units) and
    neutral (m, units) images; 0.5 if one kind is missing.
    """
    units = positive.shape[1] if positive.size else neutral.shape[1] if neutral.ndim == 2 else 0
    if not len(positive) or not len(neutral):
        return np.full(units, CHANCE)
    wins = np.zeros(units)
    for row in positive:
        wins += (row > neutral).sum(axis=0) + 0.5 * (row == neutral).sum(axis=0)
    return wins / (len(positive) * len(neutral))


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectTable:
    """The statistic T for each pair of a tested unit and a description of the layer."""

    values: FloatArray
    """(units, descriptions)"""
    is_null: npt.NDArray[np.bool_]
    """Whether the value belongs to the null distribution, (units, descriptions)."""
    images: npt.NDArray[np.int64]
    """The numbers of positive and of neutral images of each description, (descriptions, 2)."""


def standardise_rows(table: EffectTable) -> FloatArray:
    """Standardises the AUCs of each unit over all descriptions, on the logit scale, (units, descriptions).

    The logit keeps values near 1 apart. The unit's median is subtracted, and the result is divided by a standard
    deviation with two parts. One is that of the logit of a true AUC of 0.5 from as many images as the description has
    (Hanley and McNeil 1982). The other is what this leaves unexplained of the unit's scaled median absolute deviation.
    """
    n, m = (np.maximum(table.images[:, column], 1).astype(np.float64) for column in (0, 1))
    pairs = n * m
    # Half a pair is added on both sides (Haldane 1956), so that complete separation has a finite value.
    logits = np.log((table.values * pairs + 0.5) / ((1 - table.values) * pairs + 0.5))
    centred = logits - np.median(logits, axis=1, keepdims=True)
    spread = _NORMAL_MAD * np.median(np.abs(centred), axis=1, keepdims=True)
    sampling = 16 * (n + m + 1) / (12 * pairs)  # a variance; the logit has the slope 4 at an AUC of 0.5
    between = np.maximum(spread**2 - np.median(sampling), 0.0)
    return centred / np.sqrt(between + sampling)


def p_values(table: EffectTable) -> FloatArray:
    """Returns the p-value of every description for every unit, (units, descriptions).

    It is the share of pooled null values that are at least as large, after standardisation. The value itself counts as
    a null value, so that no p-value is 0.
    """
    if not table.values.size:
        return np.ones_like(table.values)
    values, is_null = standardise_rows(table), table.is_null
    # Equal AUCs of one unit must remain ties after standardisation.
    values = np.round(values, 9)
    null = np.sort(values[is_null])
    reached = len(null) - np.searchsorted(null, values, side="left")
    return np.where(is_null, reached, reached + 1) / np.where(is_null, max(len(null), 1), len(null) + 1)
