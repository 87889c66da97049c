"""Averages the scores of a run over its units, with intervals."""

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from statistics import fmean
from typing import Any, cast

from openmaia.core.errors import StoreError
from openmaia.evaluation.analysis import bootstrap
from openmaia.evaluation.analysis.bootstrap import BootstrapEstimate, Interval, PooledMean
from openmaia.evaluation.compared import Evaluation
from openmaia.evaluation.metric import all_metrics, columns
from openmaia.evaluation.prompts import PROMPT_ROLES
from openmaia.evaluation.scores import COUNTED
from openmaia.evaluation.storage import StoredTrials, compute_stamp
from openmaia.runs.run import Run

EVALUATION_FILE = "evaluation.json"

_WHOLE = ""
"""Stands for all layers, where other keys are names of layers."""

MeanActivations = Mapping[str, Interval]
"""Means of raw activations. `positive` and `neutral` average the images of each unit first, as the tables of the MAIA
papers do. `positive_images` and `neutral_images` average all images at once, as the published MAIA code does. They
differ if units have different numbers of images."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerActivations:
    """Mean activations on test images, over tested units with both kinds, as in the tables of the MAIA papers."""

    layers: Mapping[str, MeanActivations]
    whole: MeanActivations
    """Over all layers."""
    units: Mapping[str, list[int]]
    """Indices of the units of each layer. A unit with several replicates is listed once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PooledScores:
    """The scores of a run, averaged over its units."""

    units: int
    """Evaluated investigations."""
    outcomes: dict[str, int]
    """Investigations by `Trial.outcome`."""
    measures: dict[str, Interval]
    """The mean of each column of metrics over the investigations for which it is defined: over tested descriptions or, for
    NAME_all, over all units."""
    counts: dict[str, int]
    """Investigations in each mean."""
    activations: LayerActivations


def run_scores(run: Run, resamples: int) -> PooledScores:
    """Returns the mean scores of a run without damaged evaluations. They are stored, and computed again if evaluations
    change.
    """
    stamp = compute_stamp(run, resamples)
    cached: dict[str, Any] = _cached(run)
    if cached.get("stamp") != stamp or {*cached.get("counts", {})} != {*columns()}:
        scores = pool_scores(StoredTrials(run).evaluations(), resamples)
        cached = {"stamp": stamp, "units": scores.units, "outcomes": scores.outcomes}
        cached |= {
            "counts": scores.counts,
            "measures": _to_json(scores.measures),
            "activations": _to_json(scores.activations.whole),
        }
        cached["layers"] = {layer: _to_json(means) for layer, means in scores.activations.layers.items()}
        cached["layer_units"] = scores.activations.units
        with suppress(StoreError):  # of a run directory that may only be read, they are computed each time
            run.files.write(EVALUATION_FILE, json.dumps(cached).encode())
    return PooledScores(
        units=cached["units"],
        outcomes=cached["outcomes"],
        measures=_from_json(cached["measures"]),
        counts=cached["counts"],
        activations=LayerActivations(
            layers={layer: _from_json(means) for layer, means in cached["layers"].items()},
            whole=_from_json(cached["activations"]),
            units=cached["layer_units"],
        ),
    )


def mean_scores(scores: Iterable[Mapping[str, Any]]) -> dict[str, tuple[float, int]]:
    """Returns the mean of each column of metrics over the values of `Run.scores`, and the number of these, without columns
    that none has.

    It is the mean of `PooledScores`. An interval would need all activations.
    """
    rows = list(scores)
    values = {name: [row[name] for row in rows if row.get(name) is not None] for name in columns()}
    return {name: (fmean(each), len(each)) for name, each in values.items() if each}


def _cached(run: Run) -> dict[str, Any]:
    try:
        stored: Any = run.files.read_json(EVALUATION_FILE)
    except StoreError:
        return {}
    return cast(dict[str, Any], stored) if isinstance(stored, dict) else {}


def _to_json(intervals: Mapping[str, Interval]) -> dict[str, list[float | None]]:
    return {name: interval.as_list() for name, interval in intervals.items()}


def _from_json(lists: Mapping[str, list[float | None]]) -> dict[str, Interval]:
    return {name: Interval.of(values) for name, values in lists.items()}


def pool_scores(evaluations: Iterable[Evaluation], resamples: int, seed: int = 0) -> PooledScores:
    """Averages the scores over units. Only one of the evaluations is in memory at a time."""
    outcomes: Counter[str] = Counter()
    means: defaultdict[str, PooledMean] = defaultdict(lambda: PooledMean(seed))
    levels: defaultdict[str, defaultdict[str, PooledMean]] = defaultdict(lambda: defaultdict(lambda: PooledMean(seed)))
    units: defaultdict[str, set[int]] = defaultdict(set)
    for evaluation in evaluations:
        unit = evaluation.trial.claim.unit
        outcomes[evaluation.trial.outcome] += 1
        estimates = estimate_scores(evaluation, resamples, seed)
        for name, estimate in estimates.items():
            means[name].add(estimate)
        for role in PROMPT_ROLES if "positive" in estimates else ():
            images = len(evaluation.raw(role).values)
            for level in (levels[_WHOLE], levels[unit.layer]):
                level[role].add(estimates[role])
                level[f"{role}_images"].add(estimates[role], images)
            units[unit.layer].add(unit.index)
    return PooledScores(
        units=outcomes.total(),
        outcomes=dict(sorted(outcomes.items())),
        measures={name: means[name].interval() for name in columns()},
        counts={name: means[name].count for name in columns()},
        activations=LayerActivations(
            layers={layer: _intervals(levels[layer]) for layer in sorted(units)},
            whole=_intervals(levels[_WHOLE]),
            units={layer: sorted(units[layer]) for layer in sorted(units)},
        ),
    )


def _intervals(means: Mapping[str, PooledMean]) -> MeanActivations:
    return {name: means[name].interval() for role in PROMPT_ROLES for name in (role, f"{role}_images")}


def estimate_scores(evaluation: Evaluation, resamples: int, seed: int = 0) -> dict[str, BootstrapEstimate]:
    """Estimates the columns of all metrics, and the mean activations `positive` and `neutral`, of one evaluated
    description, without undefined ones. Empty if no usable prompts were written.
    """
    if evaluation.trial.outcome not in COUNTED:
        return {}
    estimates: dict[str, BootstrapEstimate | None] = {}
    for name, metric in all_metrics().items():
        measured = metric.estimate(evaluation, resamples, seed) if evaluation.is_tested else None
        estimates[name] = measured
        if metric.assigned is not None:
            estimates[f"{name}_all"] = measured or metric.estimate(evaluation, resamples, seed, assign=True)
    # The published means are those of units with both kinds of images.
    raw = {role: evaluation.raw(role) for role in PROMPT_ROLES}
    has_both = all(group.values for group in raw.values())
    unit = str(evaluation.trial.claim.unit)
    estimates |= {
        role: bootstrap.group_mean(unit, group, resamples, seed) if has_both else None for role, group in raw.items()
    }
    return {name: estimate for name, estimate in estimates.items() if estimate is not None}
