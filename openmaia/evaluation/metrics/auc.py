"""The AUC of positive against matched neutral images: for the description, beside wrong ones, and for its worst label.

AUCs are those of standardised activations, because the images of other units' trials are compared on that scale.
"""

from collections.abc import Mapping

from openmaia.evaluation.analysis.statistics import CHANCE, measure
from openmaia.evaluation.compared import Evaluation, GroupPair
from openmaia.evaluation.metric import Control, Metric


def _own(evaluation: Evaluation) -> list[GroupPair]:
    return [(evaluation.group("positive"), evaluation.group("neutral"))]


def _others(evaluation: Evaluation) -> list[GroupPair]:
    return [evaluation.pair_of(each) for each in evaluation.others]


AUC = Metric(
    name="auc",
    title="AUC",
    hint="Images of the description against matched neutral images",
    order=100,
    groups=_own,
    control=Control(name="matched neutral images", short="neutral"),
    assigned=CHANCE,
    bounds=(0, 1),
    shown=frozenset({"comparison", "table"}),
)
AUC_OTHER = Metric(
    name="auc_other",
    title="AUC of other units' descriptions",
    column="Other units",
    hint="Control: the AUC of the descriptions of other units of the layer for this unit",
    order=110,
    groups=_others,
    assigned=CHANCE,
    bounds=(0, 1),
    falls=False,
    shown=frozenset({"table"}),
    visible=True,
)
AUC_MINUS_OTHER = Metric(
    name="auc_minus_other",
    title="AUC, own minus other units'",
    column="Own minus other",
    hint="AUC minus that of the descriptions of other units of the layer for this unit",
    order=120,
    groups=_own,
    minus=_others,
    assigned=CHANCE,
    sanity_of="auc",  # the other AUC does not change with the labels of the unit
    shown=frozenset({"summary"}),
)
AUC_WORDS = Metric(
    name="auc_words",
    title="AUC of random words",
    hint="Control: the AUC of descriptions of one random word for this unit",
    order=130,
    groups=lambda evaluation: [evaluation.pair_of(each) for each in evaluation.words],
    assigned=CHANCE,
    bounds=(0, 1),
    falls=False,
    shown=frozenset(),
)


def by_label(evaluation: Evaluation) -> dict[str, float | None]:
    """Returns the AUC of each label's images; None if none of them shows it."""
    positive = [each for each in evaluation.trial.stimuli if each.role == "positive" and each.label]
    labels = dict.fromkeys(each.label for each in positive) if evaluation.is_tested else {}
    return {
        label: measure("auc", *(evaluation.group(role, label).values for role in ("positive", "neutral")))
        for label in labels
    }


def worst_label(aucs: Mapping[str, float | None]) -> tuple[float, str] | None:
    """Returns the lowest AUC of `by_label` with its label; None if no AUC is known."""
    return min(((auc, label) for label, auc in aucs.items() if auc is not None), default=None)


def _worst(evaluation: Evaluation) -> float | None:
    found = worst_label(by_label(evaluation))
    return found and found[0]


AUC_WORST = Metric(
    name="auc_worst",
    title="AUC of the worst label",
    hint="The lowest AUC of the images of one label against its neutral images",
    order=140,
    compute=_worst,
    bounds=(0, 1),
    shown=frozenset({"summary", "comparison"}),
)
