"""Whether images of the description excite the unit more than neutral ones on average. Its mean is the share of such units, which
the MAIA papers state.
"""

from statistics import fmean

from openmaia.evaluation.compared import Evaluation, raw_group
from openmaia.evaluation.metric import Metric


def _is_above(evaluation: Evaluation) -> float | None:
    positive, neutral = (raw_group(evaluation.trial, role).values for role in ("positive", "neutral"))
    return float(fmean(positive) > fmean(neutral)) if positive and neutral else None


ABOVE_NEUTRAL = Metric(
    name="above_neutral",
    title="share of units with a positive mean above the neutral one",
    order=305,
    compute=_is_above,
    bounds=(0, 1),
    shown=frozenset({"summary", "comparison"}),
)
