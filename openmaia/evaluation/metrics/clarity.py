"""FADE's clarity (Puri et al. 2025): the absolute Gini coefficient |2 AUC - 1| against photographs."""

from openmaia.evaluation.compared import Evaluation
from openmaia.evaluation.metric import Metric
from openmaia.evaluation.metrics.auc_controls import AUC_RANDOM


def _clarity(evaluation: Evaluation) -> float | None:
    auc = AUC_RANDOM.value(evaluation)
    return None if auc is None else abs(2 * auc - 1)


CLARITY = Metric(
    name="clarity",
    title="clarity",
    project="FADE",
    order=510,
    compute=_clarity,
    bounds=(0, 1),
    shown=frozenset({"summary"}),
)
