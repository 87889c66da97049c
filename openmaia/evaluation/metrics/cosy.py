"""CoSy's mean activation difference (Kopf et al. 2024, section 4)."""

from openmaia.evaluation.metric import Metric

MAD = Metric(
    name="mad",
    title="MAD against photographs",
    project="CoSy",
    order=500,
    groups=lambda evaluation: [(evaluation.raw("positive"), evaluation.raw("random"))],
    statistic="mad",
    interval="units",
    shown=frozenset({"summary"}),
)
