"""Averages the scores of a run over its units, with intervals."""

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, cast

from openmaia.core.errors import StoreError
from openmaia.evaluation.analysis import bootstrap
from openmaia.evaluation.analysis.bootstrap import BootstrapEstimate, ClusteredValues, Interval, PooledMean
from openmaia.evaluation.analysis.statistics import CHANCE, MATCHED
from openmaia.evaluation.prompts import PROMPT_ROLES
from openmaia.evaluation.scores import COUNTED, SIZES, Evaluation, flat, raw_group
from openmaia.evaluation.storage import StoredTrials, compute_stamp
from openmaia.runs.run import Run

EVALUATION_FILE = "evaluation.json"

_WHOLE = ""
"""Stands for all layers, where other keys are names of layers."""

_RESAMPLED = tuple(name for name in MATCHED if name != "auc")
"""Measures that are computed twice: of raw activations, and under the name `z_NAME` of standardised ones."""
_DETECTION = ("auprc", "responsiveness", "purity", "balanced_accuracy", "fuzzing", "correlation")
_FIXED = (
    *("auc_worst", "mad", "clarity", "top1", "top5", "chance"),
    *(f"detection_{name}" for name in _DETECTION),
)
"""Scores for which only units are resampled, not prompts."""
_WITH_CHANCE = ("auc", "auc_other", "auc_minus_other", "auc_words")
"""Measures that are averaged twice: over the tested descriptions and, as `NAME_all`, over all units, in which units
without a tested description get the AUC of chance for their own description."""
_CONTROLLED = {"auc_unrelated": "unrelated", "auc_random": "random"}
"""The roles of the images with which AUCs compare positive ones. Prompts, photographs and units are resampled."""
_SCORES = (
    *_WITH_CHANCE,
    *(f"{name}_all" for name in _WITH_CHANCE),
    *_CONTROLLED,
    *_RESAMPLED,
    *(f"z_{name}" for name in _RESAMPLED),
    *SIZES,
    *_FIXED,
)

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
    """The mean of each of _SCORES (see `Evaluation.values`); `auc_minus_other` is `auc` minus `auc_other`."""
    counts: dict[str, int]
    """Investigations in the mean of each of _SCORES."""
    activations: LayerActivations


def run_scores(run: Run, resamples: int) -> PooledScores:
    """Returns the mean scores of a run without damaged evaluations. They are stored, and computed again if evaluations
    change.
    """
    stamp = compute_stamp(run, resamples)
    cached: dict[str, Any] = _cached(run)
    if cached.get("stamp") != stamp or "counts" not in cached:
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
            images = len(raw_group(evaluation.trial, role).values)
            for level in (levels[_WHOLE], levels[unit.layer]):
                level[role].add(estimates[role])
                level[f"{role}_images"].add(estimates[role], images)
            units[unit.layer].add(unit.index)
    return PooledScores(
        units=outcomes.total(),
        outcomes=dict(sorted(outcomes.items())),
        measures={name: means[name].interval() for name in _SCORES},
        counts={name: means[name].count for name in _SCORES},
        activations=LayerActivations(
            layers={layer: _intervals(levels[layer]) for layer in sorted(units)},
            whole=_intervals(levels[_WHOLE]),
            units={layer: sorted(units[layer]) for layer in sorted(units)},
        ),
    )


def _intervals(means: Mapping[str, PooledMean]) -> MeanActivations:
    return {name: means[name].interval() for role in PROMPT_ROLES for name in (role, f"{role}_images")}


def estimate_scores(evaluation: Evaluation, resamples: int, seed: int = 0) -> dict[str, BootstrapEstimate]:
    """Estimates _SCORES, and the mean activations `positive` and `neutral`, of one evaluated description, without
    undefined ones. Empty if no usable prompts were written.
    """
    trial, unit = evaluation.trial, str(evaluation.trial.claim.unit)  # replicates of a unit are one cluster
    if trial.outcome not in COUNTED:
        return {}
    tested = trial.outcome == "tested"

    def auc(groups: tuple[ClusteredValues, ClusteredValues]) -> BootstrapEstimate:
        found = bootstrap.estimate("auc", unit, *groups, resamples, seed)
        return found or bootstrap.constant(unit, CHANCE, resamples)

    measured = bootstrap.estimate("auc", unit, *evaluation.groups(), resamples, seed) if tested else None
    own = measured or bootstrap.constant(unit, CHANCE, resamples)
    estimates: dict[str, BootstrapEstimate | None] = {"auc_all": own}
    if evaluation.others:
        other = bootstrap.average([auc(evaluation.groups_of(other)) for other in evaluation.others], unit)
        estimates |= {"auc_other_all": other, "auc_minus_other_all": own.minus(other)}
    if evaluation.words:
        words = [auc(evaluation.groups_of(each)) for each in evaluation.words]
        estimates["auc_words_all"] = bootstrap.average(words, unit)
    if measured:
        estimates |= {name: estimates.get(f"{name}_all") for name in _WITH_CHANCE}
    if tested:
        raw = raw_group(trial, "positive"), raw_group(trial, "neutral")
        for prefix, groups in (("z_", evaluation.groups()), ("", raw)):
            for name in _RESAMPLED:
                estimates[f"{prefix}{name}"] = bootstrap.estimate(name, unit, *groups, resamples, seed)
        for name, role in _CONTROLLED.items():
            estimates[name] = bootstrap.estimate("auc", unit, raw[0], raw_group(trial, role), resamples, seed)
        if all(group.values for group in raw):
            estimates |= {
                role: bootstrap.group_mean(unit, group, resamples, seed)
                for role, group in zip(PROMPT_ROLES, raw, strict=True)
            }
        scores = flat(evaluation.values)
        fixed = {name: scores[name] for name in (*SIZES, *_FIXED) if scores.get(name) is not None}
        estimates |= {name: bootstrap.constant(unit, value, resamples) for name, value in fixed.items()}
    return {name: estimate for name, estimate in estimates.items() if estimate is not None}
