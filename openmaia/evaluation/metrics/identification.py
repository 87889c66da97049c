"""Identification: how a unit ranks among all units of its layer by its standardised activations on positive images.

Standardised, because a unit with high activations on all images would rank first otherwise.
"""

import numpy as np

from openmaia.evaluation.analysis.statistics import FloatArray
from openmaia.evaluation.compared import Evaluation
from openmaia.evaluation.metric import Metric


def responses(evaluation: Evaluation) -> FloatArray | None:
    """Returns the standardised responses of all units to the positive images, (images, units); None if nothing was
    tested.
    """
    rows = evaluation.trial.rows("positive", verified=True)
    return evaluation.trial.matrix[rows].astype(np.float64) if rows and evaluation.is_tested else None


def _rank(evaluation: Evaluation) -> float | None:
    values = responses(evaluation)
    if values is None:
        return None
    means = values.mean(axis=0)
    own = means[evaluation.index]
    return 1 + float((means > own).sum()) + 0.5 * float((means == own).sum() - 1)


def _share_among(evaluation: Evaluation, highest: int) -> float | None:
    values = responses(evaluation)
    if values is None:
        return None
    own = values[:, [evaluation.index]]
    above, equal = (values > own).sum(axis=1), (values == own).sum(axis=1)
    is_among: FloatArray = np.clip((highest - above) / equal, 0.0, 1.0)  # tied units share the remaining places
    return float(np.mean(is_among))


def _chance(evaluation: Evaluation) -> float | None:
    values = responses(evaluation)
    return None if values is None else 1 / values.shape[1]


TOP1 = Metric(
    name="top1",
    title="identification: unit highest of its layer",
    hint="Share of images on which the unit is the highest of its layer",
    order=400,
    compute=lambda evaluation: _share_among(evaluation, 1),
    bounds=(0, 1),
    shown=frozenset({"summary", "comparison", "page"}),
)
TOP5 = Metric(
    name="top5",
    title="identification: among the five highest",
    hint="Share of images on which the unit is among the five highest of its layer",
    order=410,
    compute=lambda evaluation: _share_among(evaluation, 5),
    bounds=(0, 1),
    shown=frozenset({"summary", "page"}),
)
RANK = Metric(
    name="rank",
    title="identification: rank in the layer",
    hint="Rank of the unit's mean; tied units share their mean rank",
    order=420,
    compute=_rank,
    falls=False,
    shown=frozenset({"page"}),
)
IDENTIFICATION_CHANCE = Metric(
    name="chance",
    title="identification by chance, for the highest",
    order=430,
    compute=_chance,
    falls=False,
    shown=frozenset({"summary"}),
)
