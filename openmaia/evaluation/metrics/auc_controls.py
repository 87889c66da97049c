"""The AUC of positive images against further kinds of control images."""

from openmaia.evaluation.metric import Control, Metric

AUC_AGAINST = Metric(
    name="auc_against",
    title="AUC against images of other units' descriptions",
    column="Other images",
    hint="AUC against images of other units’ descriptions",
    order=200,
    groups=lambda evaluation: [(evaluation.stored("positive"), evaluation.foreign())],
    control=Control(name="images of other units' descriptions", short="others"),
    bounds=(0, 1),
    falls=False,
    shown=frozenset(),
)
AUC_UNRELATED = Metric(
    name="auc_unrelated",
    title="AUC against images of unrelated prompts",
    column="Unrelated",
    hint="AUC against images of unrelated prompts",
    order=210,
    groups=lambda evaluation: [(evaluation.group("positive"), evaluation.group("unrelated"))],
    control=Control(name="unrelated prompts", short="unrelated"),
    bounds=(0, 1),
    shown=frozenset({"comparison", "table"}),
)
AUC_RANDOM = Metric(
    name="auc_random",
    title="AUC against photographs",
    column="Photographs",
    hint="AUC against photographs",
    project="CoSy",
    order=220,
    groups=lambda evaluation: [(evaluation.group("positive"), evaluation.group("random"))],
    control=Control(name="photographs", short="photos"),
    bounds=(0, 1),
    shown=frozenset({"summary", "comparison", "table"}),
)
