"""Measures whether a classifier uses a unit for what its description says, by ablating the unit in the forward pass.

The effect of a unit on an image is the Kullback-Leibler divergence sum p (log p - log q) in nats, where p are the class
probabilities of the unchanged network, and q those with the unit ablated (its response set to 0 at all positions). A
description is faithful as far as the effect is larger on images that show what it names than on its neutral images. The
AUC says how often this is so. As a control, the AUC is also computed with the images of other units' descriptions.
After an activation function such as ReLU, 0 is the response of a unit to images that do not excite it. In other layers
0 has no special meaning, and ablation also changes the output for images that do not excite the unit.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import numpy as np
from scipy import special

from openmaia.core.errors import StoreError
from openmaia.core.images import EncodedImage
from openmaia.core.services import Intervention
from openmaia.core.units import Unit
from openmaia.evaluation.analysis import bootstrap
from openmaia.evaluation.analysis.bootstrap import BootstrapEstimate, ClusteredValues, Interval
from openmaia.evaluation.analysis.statistics import FloatArray
from openmaia.evaluation.claims import Claim
from openmaia.evaluation.scores import partners
from openmaia.evaluation.storage import StoredTrials, evaluation_stamp
from openmaia.evaluation.trials import Stimulus, Trial
from openmaia.runs.run import Run

FILE = "faithfulness.json"
INTERVALS = ("auc", "other", "difference")
"""The fields of UnitFaithfulness and of Faithfulness that are intervals."""
PARTNERS = 2
"""Maximum number of other units whose images are the control of a unit."""
CLASSES = 3
"""Maximum number of classes that are named for each unit."""
SMALLEST_FALL = 0.001
"""Classes are named if the ablation lowers their probability by at least this much on average."""


class Classifier(Protocol):
    """A classification network in which the response of a unit can be multiplied by a factor in the forward pass."""

    def can_intervene(self, layer: str) -> bool:
        """Returns whether the responses of units of a layer can be multiplied by a factor."""
        ...

    def intervene(self, interventions: Sequence[Intervention]) -> list[FloatArray]:
        """Returns the log class probabilities, (classes,), for each intervention (image, unit and factor)."""
        ...

    @property
    def class_names(self) -> Sequence[str]:
        """The names of the classes; empty if they have none."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitFaithfulness:
    """The effect of ablating one unit: how far the class probabilities diverge from those of the unchanged network."""

    unit: Unit
    replicate: int
    """The number of the investigation among the repeated investigations of the unit."""
    labels: tuple[str, ...]
    effect: float
    """Mean effect on the positive images of the unit's description (they show what it names), in nats."""
    neutral: float
    """Mean effect on the neutral images of the description, in nats."""
    auc: Interval
    """How often the effect on a positive image is larger than on a neutral image (AUC)."""
    other: Interval
    """The same AUC for the ablation of this unit, but on the positive and neutral images of other units' descriptions:
    the mean over at most PARTNERS descriptions. NaN if the layer has no other tested unit."""
    difference: Interval
    """`auc` minus `other`; NaN if `other` is."""
    classes: tuple[tuple[str, float], ...]
    """Pairs (name, fall) of the classes whose probability the ablation lowers most on the positive images. `fall` is
    the mean decrease of the probability."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Faithfulness:
    """The effects of ablating the units of a run on a classifier's output.

    If a description is faithful, ablation has a larger effect on images that show what it names than on other images.
    """

    units: tuple[UnitFaithfulness, ...]
    auc: Interval
    """Mean of `UnitFaithfulness.auc` over `units`, with a bootstrap interval over prompts and units."""
    other: Interval
    """The same for `UnitFaithfulness.other`, over the units where it is known."""
    difference: Interval
    """The same for `UnitFaithfulness.difference`, over the units where it is known."""


def measure_faithfulness(
    run: Run,
    target: Classifier,
    resamples: int,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Faithfulness:
    """Ablates the unit of each tested description, and measures how the output on the images of its test changes.

    A description is left out if `target.can_intervene` is False for the layer of its unit, or if its stored test is
    damaged.

    Args:
        run: An evaluated run.
        target: The network to which the units belong.
        resamples: Number of bootstrap resamples.
        progress: Called with the number of descriptions that are done and the number of all that are measured.
    """
    stored = StoredTrials(run)
    described = {trial.claim.investigation: trial.claim for trial in stored if trial.outcome == "tested"}
    scalable = {layer for layer in {each.unit.layer for each in described.values()} if target.can_intervene(layer)}
    tested = {key: claim for key, claim in described.items() if claim.unit.layer in scalable}
    unchanged: dict[str, FloatArray] = {}
    units: list[UnitFaithfulness] = []
    estimates: list[tuple[BootstrapEstimate, BootstrapEstimate | None]] = []
    for done, claim in enumerate(tested.values(), start=1):
        others = [each.investigation for each in partners(claim, list(tested.values()), stored.sharing, PARTNERS)]
        trial, *partner_trials = (stored.readable(each, images=True) for each in (claim.investigation, *others))
        if trial is None:
            progress(done, len(tested))
            continue
        own = _groups(trial, claim.unit, target, unchanged)
        rest = [_groups(each, claim.unit, target, unchanged) for each in partner_trials if each is not None]
        if (estimated := _auc(claim, own, resamples)) is not None:
            controls = [found for each in rest if (found := _auc(claim, each, resamples)) is not None]
            control = bootstrap.average(controls, str(claim.unit)) if controls else None
            estimates.append((estimated, control))
            units.append(_unit(claim, own, estimated, control, target.class_names))
        progress(done, len(tested))
    paired = [(own, other) for own, other in estimates if other is not None]
    return Faithfulness(
        units=tuple(units),
        auc=bootstrap.pooled(own for own, _ in estimates),
        other=bootstrap.pooled(other for _, other in paired),
        difference=bootstrap.pooled(own.minus(other) for own, other in paired),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Group:
    """The effects of ablating a unit on images of one role, and the mean fall of the probability of each class."""

    effects: ClusteredValues
    falls: FloatArray
    """(classes,)"""


def _groups(trial: Trial, unit: Unit, target: Classifier, unchanged: dict[str, FloatArray]) -> tuple[_Group, _Group]:
    """Ablates a unit on the positive and the neutral images of a trial.

    `unchanged` caches the outputs without ablation by the digest of the image.
    """
    positive, neutral = (
        _group([trial.stimuli[row] for row in trial.rows(role, verified=True)], unit, target, unchanged)
        for role in ("positive", "neutral")
    )
    return positive, neutral


def _group(stimuli: Sequence[Stimulus], unit: Unit, target: Classifier, unchanged: dict[str, FloatArray]) -> _Group:
    images = [EncodedImage(data=stimulus.data) for stimulus in stimuli]
    new = {s.digest: image for s, image in zip(stimuli, images, strict=True) if s.digest not in unchanged}
    outputs = target.intervene([Intervention(unit=unit, image=image, factor=1.0) for image in new.values()])
    unchanged |= dict(zip(new, outputs, strict=True))
    ablated = target.intervene([Intervention(unit=unit, image=image) for image in images])
    before = [unchanged[stimulus.digest] for stimulus in stimuli]
    effects = [float(special.rel_entr(np.exp(p), np.exp(q)).sum()) for p, q in zip(before, ablated, strict=True)]
    falls = [np.exp(p) - np.exp(q) for p, q in zip(before, ablated, strict=True)]
    return _Group(
        effects=ClusteredValues.of(effects, [stimulus.cluster for stimulus in stimuli]),
        falls=np.mean(falls, axis=0) if falls else np.zeros(0),
    )


def _auc(claim: Claim, groups: tuple[_Group, _Group], resamples: int) -> BootstrapEstimate | None:
    return bootstrap.estimate("auc", str(claim.unit), groups[0].effects, groups[1].effects, resamples)


def _unit(
    claim: Claim,
    groups: tuple[_Group, _Group],
    own: BootstrapEstimate,
    other: BootstrapEstimate | None,
    classes: Sequence[str],
) -> UnitFaithfulness:
    positive, neutral = groups
    names = classes if len(classes) == len(positive.falls) else ()
    falls = sorted(zip(positive.falls.tolist(), names, strict=False), key=lambda named: -named[0])[:CLASSES]
    return UnitFaithfulness(
        unit=claim.unit,
        replicate=claim.replicate,
        labels=claim.labels,
        effect=float(np.mean(positive.effects.values)),
        neutral=float(np.mean(neutral.effects.values)),
        auc=bootstrap.interval(own),
        other=_interval(other),
        difference=_interval(None if other is None else own.minus(other)),
        classes=tuple((name, fall) for fall, name in falls if fall >= SMALLEST_FALL),
    )


def _interval(found: BootstrapEstimate | None) -> Interval:
    return bootstrap.pooled([]) if found is None else bootstrap.interval(found)


def write_faithfulness(run: Run, faithfulness: Faithfulness) -> None:
    """Stores the effects of ablating units in the run directory."""
    units = [asdict(each) | _interval_lists(each) for each in faithfulness.units]
    document: dict[str, Any] = _interval_lists(faithfulness) | {"units": units, "stamp": evaluation_stamp(run, 0)}
    run.files.write(FILE, json.dumps(document, ensure_ascii=False).encode(errors="replace"))


def read_faithfulness(run: Run) -> Faithfulness | None:
    """Reads the stored effects of ablating units; None if missing, damaged, or older than the run's evaluations."""
    try:
        stored: dict[str, Any] | None = run.files.read_json(FILE)
        return None if stored is None or stored.pop("stamp") != evaluation_stamp(run, 0) else _restored(stored)
    except (StoreError, TypeError, KeyError, ValueError):
        return None


def _restored(stored: dict[str, Any]) -> Faithfulness:
    units: list[dict[str, Any]] = [
        _intervals(row)
        | {
            "unit": Unit(**row["unit"]),
            "labels": tuple(row["labels"]),
            "classes": tuple((str(name), float(fall)) for name, fall in row["classes"]),
        }
        for row in stored["units"]
    ]
    fields: dict[str, Any] = _intervals(stored) | {"units": tuple(UnitFaithfulness(**row) for row in units)}
    return Faithfulness(**fields)


def _interval_lists(measured: Faithfulness | UnitFaithfulness) -> dict[str, Any]:
    return {name: getattr(measured, name).as_list() for name in INTERVALS}


def _intervals(row: dict[str, Any]) -> dict[str, Any]:
    return row | {name: Interval.of(row[name]) for name in INTERVALS}
