"""Runs against each other on the units that they share: what was found of a unit in one, minus what was found in the other.

Replicates of a unit are averaged first. Intervals come from the bootstrap over prompts and units crossed, in which a prompt
that both runs used weighs the same in both; beside them stands Wilcoxon's signed-rank test over units
(scipy.stats.wilcoxon), adjusted over all pairs of runs and measures by Benjamini and Hochberg.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np
from scipy import stats

from openmaia.config import differing_keys
from openmaia.evaluate import bootstrap, statistics
from openmaia.evaluate.bootstrap import Draws, Interval
from openmaia.evaluate.run import evaluations, own_auc
from openmaia.evaluate.scores import COUNTED, Evaluation, flat
from openmaia.store.run import Run
from openmaia.units import Unit

MEASURES = {
    "auc": "AUC, own images against matched neutral ones",
    "auc_worst": "AUC of each unit's worst label",
    "auc_unrelated": "AUC against images of unrelated prompts",
    "auc_random": "AUC against photographs",
    "z_difference": "mean difference, in standard deviations",
    "top1": "identification: unit highest of its layer",
    "detection_auprc": "detection on photographs: AUPRC",
    "turns": "turns",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """Of two runs by one measure. one, other: means over the shared units, which is what the difference is of. p: two-sided,
    None where no test is possible; adjusted: for the false discovery rate over everything that is compared."""

    measure: str
    units: int
    one: Interval
    other: Interval
    difference: Interval
    p: float | None
    adjusted: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """units: shared ones. alone: units of either run that the other lacks. differing: config keys. cause: why nothing is
    compared, "" otherwise."""

    one: str
    other: str
    units: int
    alone: tuple[int, int]
    differing: tuple[str, ...]
    differences: tuple[Difference, ...]
    cause: str = ""


Values = Mapping[str, Mapping[Unit, Draws]]
"""By measure, a number per unit."""


def compared(runs: Sequence[tuple[Run, str]], resamples: int) -> list[Compared]:
    """Every pair of them, in their order; each run with its name."""
    values = [_values(run, resamples) for run, _ in runs]
    found = [_pair(runs[a], runs[b], values[a], values[b]) for a, b in combinations(range(len(runs)), 2)]
    known = [d.p for pair in found for d in pair.differences if d.p is not None]
    adjusted = iter(statistics.discoveries(known))

    def with_adjusted(one: Difference) -> Difference:
        return one if one.p is None else replace(one, adjusted=next(adjusted))

    return [replace(pair, differences=tuple(map(with_adjusted, pair.differences))) for pair in found]


def _pair(one: tuple[Run, str], other: tuple[Run, str], a: Values, b: Values) -> Compared:
    differing = [key for key in differing_keys(one[0].config(), other[0].config()) if key != "name"]
    shared = sorted(a["turns"].keys() & b["turns"].keys())
    targets = [key for key in differing if key.startswith("target.")]
    cause = ""
    if not shared:
        cause = "no unit of the same name is finished in both"
    elif targets:
        cause = f"units of one name are not the same ones: {', '.join(targets)} differ"
    differences = () if cause else tuple(filter(None, (difference(name, a[name], b[name]) for name in MEASURES)))
    return Compared(
        one=one[1],
        other=other[1],
        units=len(shared),
        alone=(len(a["turns"]) - len(shared), len(b["turns"]) - len(shared)),
        differing=tuple(differing),
        differences=differences,
        cause=cause,
    )


def difference(measure: str, a: Mapping[Unit, Draws], b: Mapping[Unit, Draws], seed: int = 0) -> Difference | None:
    """Over the units that have the measure in both; None where there are none."""
    shared = sorted(a.keys() & b.keys())
    if not shared:
        return None
    minus = [a[unit].minus(b[unit]) for unit in shared]
    return Difference(
        measure=measure,
        units=len(shared),
        one=bootstrap.pooled([a[unit] for unit in shared], seed),
        other=bootstrap.pooled([b[unit] for unit in shared], seed),
        difference=bootstrap.pooled(minus, seed),
        p=signed_rank_p([one.value for one in minus]),
        adjusted=None,
    )


def signed_rank_p(differences: Sequence[float]) -> float | None:
    """Two-sided, after Wilcoxon, zeros left out as he did. 1 where all are zero; None for a single unit, of which no test
    can say anything."""
    # Equal scores of equal images may differ by the last bit.
    values = np.round(np.asarray(differences, dtype=np.float64), 9)
    if len(values) < 2:
        return None
    return float(stats.wilcoxon(values, zero_method="wilcox").pvalue) if values.any() else 1.0


# -- a number per unit -----------------------------------------------------------------------------------------------------


def _values(run: Run, resamples: int) -> dict[str, dict[Unit, Draws]]:
    every: dict[str, dict[Unit, list[Draws]]] = {name: {} for name in MEASURES}

    def add(name: str, unit: Unit, drawn: Draws | None) -> None:
        if drawn is not None:
            every[name].setdefault(unit, []).append(drawn)

    for header in run.headers():
        unit = Unit(target=header["target"], layer=header["layer"], index=header["index"])
        add("turns", unit, bootstrap.constant(str(unit), float(header["turns"]), resamples))
    for one in evaluations(run):
        for name, drawn in _drawn(one, resamples):
            add(name, one.trial.claim.unit, drawn)
    return {
        name: {unit: bootstrap.mean_of(drawn, str(unit)) for unit, drawn in units.items()}
        for name, units in every.items()
    }


def _drawn(one: Evaluation, resamples: int) -> list[tuple[str, Draws | None]]:
    """What has images of its own is resampled over prompts. Only AUC is known of an abstention: what chance scores."""
    if one.trial.outcome not in COUNTED:
        return []
    unit = str(one.trial.claim.unit)
    found: list[tuple[str, Draws | None]] = [("auc", own_auc(one, resamples, 0))]
    if one.trial.outcome == "tested":
        scores = flat(one.scores)
        found.append(("z_difference", bootstrap.draws("difference", unit, *one.groups(), resamples)))
        for name in ("auc_worst", "auc_unrelated", "auc_random", "top1", "detection_auprc"):
            value: float | None = scores.get(name)
            found.append((name, None if value is None else bootstrap.constant(unit, value, resamples)))
    return found
