"""Mean activations to positive and neutral images, per layer and over a run: the two numbers of the papers' tables."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from openmaia.evaluate import bootstrap
from openmaia.evaluate.bootstrap import Draws, Group, Interval
from openmaia.evaluate.run import stamp
from openmaia.evaluate.stored import read_trial
from openmaia.evaluate.trials import Trial
from openmaia.evaluate.writers import ROLES, Role
from openmaia.store.run import Run
from openmaia.units import Unit

KEPT = "levels.json"

Level = dict[Role, Interval]
"""Raw activations: the mean over units of each unit's mean over its images."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Levels:
    """units: that were tested, by layer, each once however many replicates it has."""

    layers: dict[str, Level]
    whole: Level
    units: dict[str, tuple[int, ...]]


def levels(run: Run, resamples: int) -> Levels:
    """Kept in the run directory until another evaluation is added. Raises StoreError for a damaged evaluation."""
    now = stamp(run, resamples)
    kept: dict[str, Any] = run.files.read_json(KEPT) or {}
    if kept.get("stamp") == now:
        return _read(kept)
    trials = (read_trial(run.evaluation(owed) or b"", light=True) for owed in sorted(run.evaluated()))
    made = of(trials, resamples)
    document: dict[str, Any] = {
        "stamp": now,
        "layers": {layer: _written(one) for layer, one in made.layers.items()},
        "whole": _written(made.whole),
        "units": made.units,
    }
    run.files.write(KEPT, json.dumps(document).encode())
    return made


def of(trials: Iterable[Trial], resamples: int, seed: int = 0) -> Levels:
    """Abstentions and what could not be drawn have no images, and count in neither mean."""
    found: dict[Unit, list[dict[Role, Draws]]] = {}
    for trial in trials:
        if trial.outcome == "tested" and (drawn := _drawn(trial, resamples, seed)):
            found.setdefault(trial.claim.unit, []).append(drawn)
    layers = sorted({unit.layer for unit in found})

    def pooled(layer: str | None) -> Level:
        members = [each for unit in sorted(found) if layer in (None, unit.layer) for each in found[unit]]
        return {role: bootstrap.pooled([drawn[role] for drawn in members], seed) for role in ROLES}

    return Levels(
        layers={layer: pooled(layer) for layer in layers},
        whole=pooled(None),
        units={layer: tuple(unit.index for unit in sorted(found) if unit.layer == layer) for layer in layers},
    )


def _drawn(trial: Trial, resamples: int, seed: int) -> dict[Role, Draws]:
    """{} unless there are images of both kinds."""
    groups: dict[Role, Group] = {role: _group(trial, role) for role in ROLES}
    if not all(group.values for group in groups.values()):
        return {}
    unit = str(trial.claim.unit)
    return {role: bootstrap.level(unit, group, resamples, seed) for role, group in groups.items()}


def _group(trial: Trial, role: Role) -> Group:
    shown = [trial.stimuli[at] for at in trial.rows(role, verified=True)]
    return Group.of([one.activation for one in shown], [one.cluster for one in shown])


def _written(one: Level) -> dict[str, list[float | None]]:
    return {role: interval.as_list() for role, interval in one.items()}


def _read(kept: dict[str, Any]) -> Levels:
    def level(values: dict[str, list[float | None]]) -> Level:
        return {role: Interval.of(values[role]) for role in ROLES}

    return Levels(
        layers={layer: level(values) for layer, values in kept["layers"].items()},
        whole=level(kept["whole"]),
        units={layer: tuple(indices) for layer, indices in kept["units"].items()},
    )
