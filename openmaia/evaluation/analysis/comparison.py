"""Compares runs on the units that they share: the score of a unit in one run minus its score in the other.

Replicates are averaged first. Intervals come from the bootstrap over prompts and units crossed, in which a prompt that
both runs used has the same weight in both. The p-values are those of Wilcoxon's signed-rank test over units, adjusted
over all pairs of runs and all measures (Benjamini and Hochberg).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np

from openmaia.config.loading import differing_keys
from openmaia.core.units import Unit
from openmaia.evaluation.analysis import bootstrap
from openmaia.evaluation.analysis.bootstrap import BootstrapEstimate, Interval
from openmaia.evaluation.analysis.statistics import adjust_p_values
from openmaia.evaluation.analysis.summary import estimate_scores
from openmaia.evaluation.analysis.verdict import UnitVerdict
from openmaia.evaluation.metric import metrics_shown
from openmaia.evaluation.prompts import PROMPT_ROLES
from openmaia.evaluation.storage import StoredTrials
from openmaia.runs.run import InvestigationId, Run

_TURNS = "turns"


def compared_measures() -> dict[str, str]:
    """Returns the titles of what is compared, by name: columns of metrics, and the number of turns."""
    titles: dict[str, str] = {}
    for metric in metrics_shown("comparison"):
        is_assigned = metric.assigned is not None
        titles[metric.name] = f"{metric.title}, both tested" if is_assigned else metric.title
        if is_assigned:
            titles[f"{metric.name}_all"] = f"{metric.title}, all units, chance for the rest"
    return titles | {_TURNS: "turns"}


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedDifference:
    """The first minus the second run in one measure, over the units for which it is defined in both."""

    measure: str
    """One of `compared_measures`."""
    units: int
    one: Interval
    """Mean of the first run."""
    other: Interval
    """Mean of the second run."""
    difference: Interval
    """Paired by unit."""
    p: float | None
    """Two-sided; None for a single unit."""
    adjusted: float | None
    """For the false discovery rate over all pairs of runs and all measures; None without `p`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunComparison:
    """Two runs and their differences."""

    one: str
    other: str
    units: int
    """Finished in both runs."""
    alone: tuple[int, int]
    """Units finished only in the first run, and only in the second."""
    differing: tuple[str, ...]
    """Keys of the configs."""
    differences: tuple[PairedDifference, ...]
    """Without undefined ones; empty if the runs cannot be compared."""
    cause: str = ""
    """Why the runs cannot be compared; empty if they can."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedVerdicts:
    """How far the verdicts of runs on one investigation differ."""

    investigation: InvestigationId
    is_same: bool
    """Whether all runs with the investigation have the same verdict."""
    difference: float | None
    """The largest minus the smallest AUC against the worst control; None if fewer than two runs have one."""


def compare_verdicts(runs: Sequence[Mapping[InvestigationId, UnitVerdict]]) -> list[ComparedVerdicts]:
    """Compares the investigations that at least two runs contain: different verdicts first, then the largest difference."""
    found: dict[InvestigationId, list[UnitVerdict]] = {}
    for verdicts in runs:
        for investigation, verdict in verdicts.items():
            found.setdefault(investigation, []).append(verdict)
    compared = [_compare_verdicts(each, several) for each, several in sorted(found.items()) if len(several) > 1]
    return sorted(compared, key=lambda each: (each.is_same, -(each.difference or 0.0)))


def _compare_verdicts(investigation: InvestigationId, verdicts: Sequence[UnitVerdict]) -> ComparedVerdicts:
    known = [each.worst.auc for each in verdicts if each.worst]
    return ComparedVerdicts(
        investigation=investigation,
        is_same=len({each.verdict for each in verdicts}) == 1,
        difference=max(known) - min(known) if len(known) > 1 else None,
    )


MeasureEstimates = Mapping[str, Mapping[Unit, BootstrapEstimate]]
"""The estimate of every unit for which it is defined, for each of `compared_measures` and for the mean activation on images of
each of PROMPT_ROLES."""


def compare_runs(runs: Sequence[tuple[Run, str]], resamples: int) -> list[RunComparison]:
    """Compares every pair of named runs in all `compared_measures`."""
    estimates = [unit_estimates(run, resamples) for run, _ in runs]
    pairs = [_compare(runs[a], runs[b], estimates[a], estimates[b]) for a, b in combinations(range(len(runs)), 2)]
    adjusted = iter(adjust_p_values([d.p for pair in pairs for d in pair.differences if d.p is not None]))

    def adjust(difference: PairedDifference) -> PairedDifference:
        return difference if difference.p is None else replace(difference, adjusted=next(adjusted))

    return [replace(pair, differences=tuple(map(adjust, pair.differences))) for pair in pairs]


def _compare(
    one: tuple[Run, str], other: tuple[Run, str], first: MeasureEstimates, second: MeasureEstimates
) -> RunComparison:
    differing = [key for key in differing_keys(one[0].config(), other[0].config()) if key != "name"]
    shared = first[_TURNS].keys() & second[_TURNS].keys()
    targets = [key for key in differing if key.startswith("target.") and key != "target.layers"]
    cause = ""
    if not shared:
        cause = "no unit of the same name is finished in both"
    elif targets:
        cause = f"units of one name are not the same ones: {', '.join(targets)} differ"
    # Descriptions that no agent made took no turns, and nothing is gained by saying that they were faster.
    has_turns = all(any(estimate.value for estimate in each[_TURNS].values()) for each in (first, second))
    names = [name for name in compared_measures() if name != _TURNS or has_turns] if not cause else []
    differences = [paired_difference(name, first[name], second[name]) for name in names]
    return RunComparison(
        one=one[1],
        other=other[1],
        units=len(shared),
        alone=(len(first[_TURNS]) - len(shared), len(second[_TURNS]) - len(shared)),
        differing=tuple(differing),
        differences=tuple(filter(None, differences)),
        cause=cause,
    )


def paired_difference(
    measure: str, first: Mapping[Unit, BootstrapEstimate], second: Mapping[Unit, BootstrapEstimate], seed: int = 0
) -> PairedDifference | None:
    """Compares one measure between two runs, without an adjusted p-value; None if no unit has an estimate in both."""
    shared = sorted(first.keys() & second.keys())
    if not shared:
        return None
    differences = [first[unit].minus(second[unit]) for unit in shared]
    return PairedDifference(
        measure=measure,
        units=len(shared),
        one=bootstrap.pooled((first[unit] for unit in shared), seed),
        other=bootstrap.pooled((second[unit] for unit in shared), seed),
        difference=bootstrap.pooled(differences, seed),
        p=signed_rank_p([each.value for each in differences]),
        adjusted=None,
    )


def signed_rank_p(differences: Sequence[float]) -> float | None:
    """Returns the two-sided p-value of Wilcoxon's signed-rank test, without differences that are zero: 1 if all are,
    None for fewer than two units.
    """
    from scipy import stats  # as in `adjust_p_values`

    # Equal scores of equal images may differ by the last bit.
    values = np.round(np.asarray(differences, dtype=np.float64), 9)
    if len(values) < 2:
        return None
    return float(stats.wilcoxon(values, zero_method="wilcox").pvalue) if values.any() else 1.0


def unit_estimates(run: Run, resamples: int) -> MeasureEstimates:
    """Estimates `MeasureEstimates` of a run. Replicates of a unit are averaged."""
    replicates: dict[str, dict[Unit, list[BootstrapEstimate]]] = {
        name: {} for name in (*compared_measures(), *PROMPT_ROLES)
    }
    for header in run.headers():
        unit = Unit(target=header["target"], layer=header["layer"], index=header["index"])
        turns = bootstrap.constant(str(unit), float(header["turns"]), resamples)
        replicates[_TURNS].setdefault(unit, []).append(turns)
    for evaluation in StoredTrials(run).evaluations():
        for name, estimate in estimate_scores(evaluation, resamples).items():
            if name in replicates:
                replicates[name].setdefault(evaluation.trial.claim.unit, []).append(estimate)
    return {
        name: {unit: bootstrap.average(estimates, str(unit)) for unit, estimates in units.items()}
        for name, units in replicates.items()
    }
