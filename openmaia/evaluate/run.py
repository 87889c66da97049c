"""Evaluates what a run has found, and says how it stands as a whole."""

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from openmaia.evaluate import bootstrap, certainty
from openmaia.evaluate.bootstrap import Draws, Interval
from openmaia.evaluate.claims import Claim, claims
from openmaia.evaluate.protocol import Design, Instruments, Progress, try_claims
from openmaia.evaluate.scores import COUNTED, Evaluation, partners
from openmaia.evaluate.statistics import CHANCE, MEASURES, discoveries
from openmaia.evaluate.stored import read_trial, to_parquet
from openmaia.evaluate.trials import Scale, Trial
from openmaia.store.exemplars import ExemplarStore
from openmaia.store.records import dumps
from openmaia.store.run import Owed, Run
from openmaia.units import TargetInfo

SUMMARY = "evaluation.json"


def evaluate(run: Run, instruments: Instruments, design: Design, progress: Progress = lambda done, total: None) -> None:
    """Every record without an evaluation gets one. Finished evaluations are not repeated.

    Trials come first, each kept as it is done, since a unit is scored on the images of others, too.
    """
    found = claims(run)
    owed = [claim for claim in found if _owed(claim) not in run.evaluated()]
    if not owed:
        return
    tried = run.tried()
    untried = [claim for claim in owed if _owed(claim) not in tried]
    done = len(owed) - len(untried)
    for trial in try_claims(untried, instruments, design):
        run.write_trial(_owed(trial.claim), to_parquet(trial))
        done += 1
        progress(done, len(owed))
    _score(run, owed)
    certainty.keep(run, instruments.asker)


def _score(run: Run, owed: Sequence[Claim]) -> None:
    """Layer by layer, so that the responses of one are in memory at a time."""
    everything = sorted(run.tried() | run.evaluated())
    for layer in sorted({(claim.unit.target, claim.unit.layer) for claim in owed}):
        members = [one for one in everything if (one.unit.target, one.unit.layer) == layer]
        light = [_trial(run, one, light=True) for one in members]
        for claim in (claim for claim in owed if (claim.unit.target, claim.unit.layer) == layer):
            whole = _trial(run, _owed(claim), light=False)
            run.write_evaluation(_owed(claim), to_parquet(Evaluation(trial=whole, others=partners(whole, light))))
    for claim in owed:
        run.delete_trial(_owed(claim))


def trials(run: Run) -> list[Trial]:
    """Of everything that was evaluated, without images."""
    return [_trial(run, owed, light=True) for owed in sorted(run.evaluated())]


def _trial(run: Run, owed: Owed, *, light: bool) -> Trial:
    data = run.evaluation(owed) or run.trial(owed)
    assert data is not None
    return read_trial(data, light=light)


def _owed(claim: Claim) -> Owed:
    return Owed(unit=claim.unit, replicate=claim.replicate)


def scales(store: ExemplarStore, info: TargetInfo, layers: Sequence[str]) -> dict[str, Scale]:
    """Of the layers whose exemplars are there, for all units."""
    found: dict[str, Scale] = {}
    for layer in layers:
        spread = store.spread(layer)
        if len(spread) == info.layers.get(layer):
            values = np.array([spread[index] for index in range(len(spread))])
            found[layer] = values[:, 0], values[:, 1]
    return found


# -- the run as a whole --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Pooled:
    """Means over units with their intervals. units: evaluated ones. found: share of units whose positive images excite
    them more at a false discovery rate of 5 %."""

    units: int
    outcomes: dict[str, int]
    measures: dict[str, Interval]
    found: float | None

    @property
    def difference(self) -> Interval:
        """AUC on own images minus AUC on other units', over the units that could be compared."""
        return self.measures["auc_minus_other"]


def pooled(run: Run, resamples: int) -> Pooled:
    """Kept in the run directory until another evaluation is added."""
    now = stamp(run, resamples)
    kept: dict[str, Any] = run.files.read_json(SUMMARY) or {}
    if kept.get("stamp") == now:
        measures = {name: Interval.of(values) for name, values in kept["measures"].items()}
        return Pooled(units=kept["units"], outcomes=kept["outcomes"], measures=measures, found=kept["found"])
    made = pool(evaluations(run), resamples)
    document: dict[str, Any] = {
        "stamp": now,
        "units": made.units,
        "outcomes": made.outcomes,
        "measures": {name: one.as_list() for name, one in made.measures.items()},
        "found": made.found,
    }
    run.files.write(SUMMARY, json.dumps(document).encode())
    return made


def evaluations(run: Run) -> list[Evaluation]:
    """All of them, without images."""
    every = trials(run)
    return [Evaluation(trial=trial, others=partners(trial, every)) for trial in every]


def stamp(run: Run, resamples: int) -> str:
    """Changes with what is evaluated."""
    return hashlib.sha256(dumps([resamples, [str(owed) for owed in sorted(run.evaluated())]]).encode()).hexdigest()


def differences(run: Run, resamples: int) -> Interval:
    return pooled(run, resamples).difference


def pool(evaluations: Sequence[Evaluation], resamples: int, seed: int = 0) -> Pooled:
    """auc, auc_other, auc_minus_other, auc_worst; difference, d and mad of deviations (z) and of raw activations;
    identification. Abstentions and what could not be drawn count as chance in AUCs and nowhere else."""
    counted = [one for one in evaluations if one.trial.outcome in COUNTED]
    tested = [one for one in counted if one.trial.outcome == "tested"]
    scores = {id(one): one.scores for one in counted}
    own = {id(one): own_auc(one, resamples, seed) for one in counted}
    other = {id(one): _other(one, resamples, seed) for one in counted if one.others}
    minus = [own[key].minus(other[key]) for key in other]
    measures = {
        "auc": bootstrap.pooled(list(own.values()), seed),
        "auc_other": bootstrap.pooled(list(other.values()), seed),
        "auc_minus_other": bootstrap.pooled(minus, seed),
    }
    for name in MEASURES:
        if name != "auc":
            drawn = [bootstrap.draws(name, _name(one), *one.groups(), resamples, seed) for one in tested]
            measures[f"z_{name}"] = bootstrap.pooled([one for one in drawn if one], seed)
            measures[name] = bootstrap.pooled([one for one in map(_raw(name, resamples, seed), tested) if one], seed)
    for name in ("auc_worst", "top1", "top5", "chance"):
        values = [scores[id(one)][name] for one in tested]
        measures[name] = bootstrap.mean_interval([value for value in values if value is not None], resamples, seed)
    p = [scores[id(one)]["p"] for one in tested]
    adjusted = discoveries([value for value in p if value is not None])
    outcomes = [one.trial.outcome for one in evaluations]
    return Pooled(
        units=len(evaluations),
        outcomes={outcome: outcomes.count(outcome) for outcome in sorted(set(outcomes))},
        measures=measures,
        found=sum(value <= 0.05 for value in adjusted) / len(counted) if counted else None,
    )


def _name(evaluation: Evaluation) -> str:
    """Replicates of a unit are one cluster."""
    return str(evaluation.trial.claim.unit)


def own_auc(one: Evaluation, resamples: int, seed: int) -> Draws:
    """Chance where nothing was tested."""
    found = (
        bootstrap.draws("auc", _name(one), *one.groups(), resamples, seed) if one.trial.outcome == "tested" else None
    )
    return found or bootstrap.constant(_name(one), CHANCE, resamples)


def _other(one: Evaluation, resamples: int, seed: int) -> Draws:
    seen = [bootstrap.draws("auc", _name(one), *one.groups_of(other), resamples, seed) for other in one.others]
    return bootstrap.mean_of([draws or bootstrap.constant(_name(one), CHANCE, resamples) for draws in seen], _name(one))


def _raw(name: str, resamples: int, seed: int) -> Callable[[Evaluation], Draws | None]:
    def drawn(one: Evaluation) -> Draws | None:
        trial = one.trial
        rows = [trial.rows(role, verified=True) for role in ("positive", "neutral")]
        positive, neutral = (
            bootstrap.Group.of(
                [trial.stimuli[at].activation for at in part], [trial.stimuli[at].cluster for at in part]
            )
            for part in rows
        )
        return bootstrap.draws(name, _name(one), positive, neutral, resamples, seed)

    return drawn
