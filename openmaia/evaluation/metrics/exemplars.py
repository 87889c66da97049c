"""How many pictures of the dataset show a label: of the unit's top exemplars, and of random ones."""

from openmaia.evaluation.compared import Evaluation
from openmaia.evaluation.metric import Metric, mean


def _in_exemplars(evaluation: Evaluation) -> float | None:
    seen = evaluation.trial.sightings
    return mean(seen.known) if seen is not None and evaluation.is_tested else None


def _in_photographs(evaluation: Evaluation) -> float | None:
    seen = evaluation.trial.sightings
    if seen is None or not seen.photographs[1] or not evaluation.is_tested:
        return None
    return mean([seen.photographs[0] / seen.photographs[1]])


IN_EXEMPLARS = Metric(
    name="in_exemplars",
    title="top exemplars that show a label",
    column="In its exemplars",
    hint="Share of the unit’s top exemplars that show a label, beside that of random pictures (base)",
    order=230,
    compute=_in_exemplars,
    bounds=(0, 1),
    visible=True,
)
IN_PHOTOGRAPHS = Metric(
    name="in_photographs",
    title="random pictures that show a label",
    column="In random pictures",
    hint="The base: share of random pictures that show a label",
    order=235,
    compute=_in_photographs,
    bounds=(0, 1),
    falls=False,
    shown=frozenset({"summary", "table", "page"}),
)
