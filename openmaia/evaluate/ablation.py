"""What each instrument adds: the same units investigated with fewer of them, compared unit by unit.

The tool sets are those of the MAIA paper's appendix D (table A5), and two more. All descriptions are tested with images
of one generator, whichever one the agent had.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from openmaia.evaluate import bootstrap
from openmaia.evaluate.bootstrap import Draws, Group, Interval
from openmaia.evaluate.run import trials
from openmaia.evaluate.scores import COUNTED, groups
from openmaia.evaluate.statistics import CHANCE
from openmaia.evaluate.trials import Trial
from openmaia.store.run import Run

FULL, OTHER = "full", "other-generator"

SETS: Mapping[str, tuple[str, ...]] = {
    FULL: (),
    "exemplars-only": ("text2image", "edit_images"),
    "generation-only": ("dataset_exemplars", "edit_images"),
    "no-editing": ("edit_images",),
    OTHER: (),
}
"""Tool set -> the instruments that are left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A tool set. positive, neutral: mean activations over units whose description could be tested. auc: over all units,
    abstentions counting as chance. against: AUC minus the full set's, unit by unit; None for the full set."""

    name: str
    units: int
    tested: int
    positive: Interval
    neutral: Interval
    auc: Interval
    positive_against: Interval | None
    against: Interval | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """By unit and replicate."""

    counted: dict[str, Draws]
    positive: dict[str, Draws]
    neutral: dict[str, Draws]


def rows(runs: Mapping[str, Run], resamples: int) -> list[Row]:
    """runs: by tool set. Only units that all of them have evaluated are compared."""
    found = {name: _measured(trials(run), resamples) for name, run in runs.items()}
    counts = Counter(unit for one in found.values() for unit in one.counted)
    common = [unit for unit, count in counts.items() if count == len(found)]
    return [_row(name, one, found.get(FULL) if name != FULL else None, sorted(common)) for name, one in found.items()]


def _row(name: str, one: Measured, full: Measured | None, common: Sequence[str]) -> Row:
    def over(draws: Mapping[str, Draws]) -> Interval:
        return bootstrap.pooled([draws[key] for key in common if key in draws])

    def minus(own: Mapping[str, Draws], other: Mapping[str, Draws]) -> Interval:
        return bootstrap.pooled([own[key].minus(other[key]) for key in common if key in own and key in other])

    return Row(
        name=name,
        units=len(common),
        tested=sum(key in one.positive for key in common),
        positive=over(one.positive),
        neutral=over(one.neutral),
        auc=over(one.counted),
        positive_against=minus(one.positive, full.positive) if full else None,
        against=minus(one.counted, full.counted) if full else None,
    )


def _measured(found: Sequence[Trial], resamples: int) -> Measured:
    made = Measured(counted={}, positive={}, neutral={})
    for trial in (trial for trial in found if trial.outcome in COUNTED):
        unit, key = str(trial.claim.unit), f"{trial.claim.unit} {trial.claim.replicate}"
        is_tested = trial.outcome == "tested"
        auc = bootstrap.draws("auc", unit, *groups(trial, trial.claim.unit.index), resamples) if is_tested else None
        made.counted[key] = auc or bootstrap.constant(unit, CHANCE, resamples)
        for role, into in (("positive", made.positive), ("neutral", made.neutral)) if is_tested else ():
            at = trial.rows(role, verified=True)
            if at:
                into[key] = _mean(unit, [trial.stimuli[n].activation for n in at], [trial.stimuli[n].cluster for n in at], resamples)  # fmt: skip
    return made


def _mean(unit: str, values: Sequence[float], clusters: Sequence[str], resamples: int) -> Draws:
    weights = Group.of(values, clusters).weights(resamples, 0)
    drawn = weights @ np.asarray(values) / weights.sum(axis=1)
    return Draws(unit=unit, value=float(np.mean(values)), draws=drawn)
