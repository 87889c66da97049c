"""Differences of mean activations on positive and on neutral images."""

from openmaia.evaluation.compared import Evaluation, GroupPair
from openmaia.evaluation.metric import Metric


def _raw(evaluation: Evaluation) -> list[GroupPair]:
    return [(evaluation.raw("positive"), evaluation.raw("neutral"))]


def _standardised(evaluation: Evaluation) -> list[GroupPair]:
    return [(evaluation.group("positive"), evaluation.group("neutral"))]


STANDARDISED = Metric(
    name="z_difference",
    title="mean difference, in standard deviations",
    order=300,
    groups=_standardised,
    statistic="difference",
    shown=frozenset({"summary", "comparison"}),
)
RAW = Metric(
    name="difference",
    title="mean difference, raw activations",
    order=310,
    groups=_raw,
    statistic="difference",
    shown=frozenset({"summary"}),
)
D = Metric(
    name="d",
    title="Cohen's d, raw activations",
    order=320,
    groups=_raw,
    statistic="d",
    shown=frozenset(),
)
STANDARDISED_D = Metric(
    name="z_d",
    title="Cohen's d",
    order=330,
    groups=_standardised,
    statistic="d",
    falls=False,
    sanity_of="d",
    shown=frozenset({"summary"}),
)
