"""Measures what each tool of the agent contributes: compares investigations of the same units with different tools.

`full`, `exemplars-only` and `generation-only` are those of the MAIA paper's appendix D (table A5); `no-editing` and
`other-generator` are ours, and so are `bank-only` and `no-bank`, where there is a bank: `full` is then the agent with it. All descriptions are tested with images of one generator, even if the agent used another.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from openmaia.core.tools import BANK
from openmaia.core.units import Unit
from openmaia.evaluation.analysis import bootstrap
from openmaia.evaluation.analysis.bootstrap import Interval
from openmaia.evaluation.analysis.comparison import MeasureEstimates, unit_estimates
from openmaia.runs.run import Run

FULL, OTHER = "full", "other-generator"
OF_BANK = ("bank-only", "no-bank")
"""Sets that need a bank."""

SETS: Mapping[str, tuple[str, ...]] = {
    FULL: (),
    "exemplars-only": ("text2image", "edit_images"),
    "generation-only": ("dataset_exemplars", "edit_images"),
    "no-editing": ("edit_images",),
    "bank-only": ("dataset_exemplars", "text2image", "edit_images"),
    "no-bank": (BANK,),
    OTHER: (),
}
"""The tools that the agent lacks. In OTHER it has all tools, with another generator."""

WITHOUT_BANK = ("exemplars-only", "generation-only")
"""Sets that lack the bank, too, where there is one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSetResult:
    """The scores of one tool set, over the units that are evaluated in the runs of all tool sets."""

    name: str
    units: int
    tested: int
    """Units whose description could be tested."""
    positive: Interval
    """Mean activation on positive images, over tested units."""
    neutral: Interval
    """Mean activation on neutral images, over tested units."""
    auc: Interval
    """Positive against neutral images, over tested units."""
    auc_all: Interval
    """Over all units. An abstention, or a description that cannot be drawn, counts as 0.5."""
    positive_against: Interval | None
    """`positive` minus that of the full set, paired by unit; None for the full set, or without a run of it."""
    against: Interval | None
    """`auc` minus that of the full set, over the units that both tested; None as above."""
    against_all: Interval | None
    """`auc_all` minus that of the full set; None as above."""


def ablation_results(runs: Mapping[str, Run], resamples: int) -> list[ToolSetResult]:
    """Compares the runs of tool sets, by their names in SETS, on the units that are evaluated in all of them."""
    estimates = {name: unit_estimates(run, resamples) for name, run in runs.items()}
    common = sorted(set[Unit].intersection(*(set(each["auc_all"]) for each in estimates.values())))
    full = estimates.get(FULL)
    return [_result(name, each, full if name != FULL else None, common) for name, each in estimates.items()]


def _result(name: str, own: MeasureEstimates, full: MeasureEstimates | None, common: Sequence[Unit]) -> ToolSetResult:
    def mean(measure: str) -> Interval:
        return bootstrap.pooled(own[measure][unit] for unit in common if unit in own[measure])

    def against(measure: str) -> Interval | None:
        if full is None:
            return None
        first, second = own[measure], full[measure]
        return bootstrap.pooled(first[unit].minus(second[unit]) for unit in common if unit in first and unit in second)

    return ToolSetResult(
        name=name,
        units=len(common),
        tested=sum(unit in own["positive"] for unit in common),
        positive=mean("positive"),
        neutral=mean("neutral"),
        auc=mean("auc"),
        auc_all=mean("auc_all"),
        positive_against=against("positive"),
        against=against("auc"),
        against_all=against("auc_all"),
    )
