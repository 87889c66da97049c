"""Mean activations on the images of a trial: raw, and in SD of the dataset.

In SD they are known only if the trial is standardised by the dataset, and the unit is not constant over it: with
another standard the numbers would not be comparable.
"""

from openmaia.evaluation.analysis.bootstrap import ClusteredValues
from openmaia.evaluation.compared import Evaluation, raw_group
from openmaia.evaluation.metric import Metric, mean


def _in_sd(evaluation: Evaluation, group: ClusteredValues) -> float | None:
    return mean(group.values) if evaluation.trial.exemplars is not None else None


def _exemplars(evaluation: Evaluation) -> float | None:
    top = evaluation.trial.exemplars
    return mean([top]) if top is not None and evaluation.is_tested else None


def _of_role(name: str, role: str, images: str, column: str, hint: str, order: int, *, visible: bool = False) -> Metric:
    return Metric(
        name=name,
        title=f"mean activation, {images}",
        column=column,
        hint=hint,
        order=order,
        compute=lambda evaluation: _in_sd(evaluation, evaluation.group(role)),
        images=images,
        falls=False,
        shown=frozenset({"means", "table"}),
        visible=visible,
    )


Z_POSITIVE = _of_role(
    "z_positive",
    "positive",
    "images of the description",
    "Own, SD",
    "Mean activation on images of the description, in standard deviations of the dataset",
    240,
    visible=True,
)
Z_NEUTRAL = _of_role(
    "z_neutral", "neutral", "matched neutral images", "Neutral, SD", "The same on matched neutral images", 245
)
Z_AGAINST = Metric(
    name="z_against",
    title="mean activation, images of other units' descriptions",
    order=250,
    compute=lambda evaluation: _in_sd(evaluation, evaluation.foreign()) if evaluation.is_tested else None,
    images="images of other units' descriptions",
    falls=False,
    shown=frozenset({"means"}),
)
Z_UNRELATED = Metric(
    name="z_unrelated",
    title="mean activation, unrelated prompts",
    order=255,
    compute=lambda evaluation: _in_sd(evaluation, evaluation.group("unrelated")),
    images="unrelated prompts",
    falls=False,
    shown=frozenset({"means"}),
)
Z_RANDOM = _of_role("z_random", "random", "photographs", "Photographs, SD", "The same on photographs", 260)
Z_EXEMPLARS = Metric(
    name="z_exemplars",
    title="mean activation, top exemplars",
    column="Exemplars, SD",
    hint="The same on the unit’s top exemplars: as far as images of the dataset excite it",
    order=265,
    compute=_exemplars,
    images="top exemplars",
    falls=False,
    shown=frozenset({"means", "table"}),
    visible=True,
)
RAW_POSITIVE = Metric(
    name="positive",
    title="mean activation, raw, images of the description",
    column="Positive",
    hint="Mean activation on images of the description",
    order=270,
    compute=lambda evaluation: mean(raw_group(evaluation.trial, "positive").values),
    falls=False,
    shown=frozenset({"table", "page"}),
)
RAW_NEUTRAL = Metric(
    name="neutral",
    title="mean activation, raw, neutral images",
    column="Neutral",
    hint="Mean activation on images without its words",
    order=275,
    compute=lambda evaluation: mean(raw_group(evaluation.trial, "neutral").values),
    falls=False,
    shown=frozenset({"table", "page"}),
)
