"""Measures whether a classifier uses a unit for what its description says, by ablating the unit in the forward pass.

The effect of a unit on an image is the Kullback-Leibler divergence sum p (log p - log q) in nats, where p are the class
probabilities of the unchanged network, and q those with the unit ablated (its response set to 0 at all positions). Of classes
that do not exclude each other, it is the sum over classes of the divergence of (p, 1 - p) from (q, 1 - q). A
description is faithful as far as the effect is larger on positive than on neutral images; the AUC says how often it is.
As a control, the AUC is also computed with the images of other units' descriptions. After an activation function such
as ReLU, 0 is the response of a unit to images that do not excite it. In other layers 0 has no special meaning, and
ablation also changes the output for images that do not excite the unit.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from typing import Any, Protocol

import numpy as np
from scipy import special

from openmaia.core.images import EncodedImage
from openmaia.core.services import Changeable, Classifier, Intervention
from openmaia.core.units import Unit
from openmaia.evaluation.analysis import bootstrap
from openmaia.evaluation.analysis.bootstrap import BootstrapEstimate, ClusteredValues, Interval
from openmaia.evaluation.analysis.statistics import FloatArray
from openmaia.evaluation.claims import Claim
from openmaia.evaluation.compared import Partners
from openmaia.evaluation.storage import StoredTrials, read_result, write_result
from openmaia.evaluation.trials import Stimulus, Trial
from openmaia.runs.run import Run

FAITHFULNESS_FILE = "faithfulness.json"
_INTERVALS = ("auc", "other", "difference")
_PARTNERS = 2
"""Other units whose images are the control of a unit."""
_CLASSES = 3
"""Classes that are named for each unit."""
_SMALLEST_FALL = 0.001
"""Classes are named if the ablation lowers their probability by this much on average."""


class AblatableNetwork(Classifier, Protocol):
    """A classifier that may have names for its classes."""

    @property
    def class_names(self) -> Sequence[str]:
        """Empty if the classes have no names."""
        ...


@dataclass(frozen=True, slots=True)
class ClassEffect:
    """The mean probability of a class on the positive images."""

    name: str
    before: float
    after: float
    """With the unit ablated."""

    @property
    def fall(self) -> float:
        """How much the ablation lowers it."""
        return self.before - self.after


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitFaithfulness:
    """The effects of ablating one unit."""

    unit: Unit
    replicate: int
    labels: tuple[str, ...]
    effect: float
    """Mean effect on the positive images, in nats."""
    neutral: float
    """Mean effect on the neutral images, in nats."""
    auc: Interval
    """Effects on positive against those on neutral images."""
    other: Interval
    """The same AUC of this unit on the images of at most _PARTNERS other units' descriptions, averaged. NaN if the layer
    has no other tested unit."""
    difference: Interval
    """`auc` minus `other`; NaN if `other` is."""
    classes: tuple[ClassEffect, ...]
    """Those whose probability falls most on the positive images."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Faithfulness:
    """Means over units, with bootstrap intervals over prompts and units."""

    units: tuple[UnitFaithfulness, ...]
    auc: Interval
    other: Interval
    """Over the units where it is known."""
    difference: Interval
    """Over the units where it is known."""


def measure_faithfulness(
    run: Run,
    target: AblatableNetwork,
    resamples: int,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Faithfulness:
    """Ablates the unit of each tested description, and measures the effects on the images of its trial.

    A description is left out if the units of its layer cannot be changed, or if its trial is damaged. `progress`
    gets the number of descriptions that are done and that of all.
    """
    stored = StoredTrials(run)
    described = {trial.claim.investigation: trial.claim for trial in stored if trial.outcome == "tested"}
    effects = target.effects()
    tested = {key: claim for key, claim in described.items() if claim.unit.layer in effects.layers}
    partners = Partners(tested.values(), stored.sharing)
    ablating = _Ablating(target, effects.exclude, {})
    units: list[UnitFaithfulness] = []
    estimates: list[tuple[BootstrapEstimate, BootstrapEstimate | None]] = []
    for done, claim in enumerate(tested.values(), start=1):
        others = [each.investigation for each in islice(partners.of(claim), _PARTNERS)]
        trial, *partner_trials = (stored.readable(each, images=True) for each in (claim.investigation, *others))
        if trial is None:
            progress(done, len(tested))
            continue
        own = ablating.groups(trial, claim.unit)
        rest = [ablating.groups(each, claim.unit) for each in partner_trials if each is not None]
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
    """Effects on images of one role, and the mean probability of each class, (classes,) each."""

    effects: ClusteredValues
    before: FloatArray
    after: FloatArray
    """With the unit ablated."""


@dataclass(frozen=True, slots=True)
class _Ablating:
    """Ablates units on images."""

    target: Changeable
    exclude: bool
    """`Effects.exclude`."""
    unchanged: dict[str, FloatArray]
    """Log-probabilities without ablation by `Stimulus.digest`."""

    def groups(self, trial: Trial, unit: Unit) -> tuple[_Group, _Group]:
        """Those of the positive and the neutral images of a trial."""
        positive, neutral = (
            self._group([trial.stimuli[row] for row in trial.rows(role, verified=True)], unit)
            for role in ("positive", "neutral")
        )
        return positive, neutral

    def _group(self, stimuli: Sequence[Stimulus], unit: Unit) -> _Group:
        images = [EncodedImage(data=stimulus.data) for stimulus in stimuli]
        new = {s.digest: image for s, image in zip(stimuli, images, strict=True) if s.digest not in self.unchanged}
        outputs = self.target.intervene([Intervention(unit=unit, image=image, scale=1.0) for image in new.values()])
        self.unchanged.update(zip(new, outputs, strict=True))
        ablated = self.target.intervene([Intervention(unit=unit, image=image) for image in images])
        before = [self.unchanged[stimulus.digest] for stimulus in stimuli]
        effects = [self._divergence(np.exp(p), np.exp(q)) for p, q in zip(before, ablated, strict=True)]
        return _Group(
            effects=ClusteredValues.of(effects, [stimulus.cluster for stimulus in stimuli]),
            before=np.exp(before).mean(axis=0) if before else np.zeros(0),
            after=np.exp(ablated).mean(axis=0) if ablated else np.zeros(0),
        )

    def _divergence(self, p: FloatArray, q: FloatArray) -> float:
        # Rounded probabilities may exceed 1.
        others = 0.0 if self.exclude else special.rel_entr((1 - p).clip(0), (1 - q).clip(0)).sum()
        return float(special.rel_entr(p, q).sum() + others)


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
    names = classes if len(classes) == len(positive.before) else ()
    means = zip(names, positive.before.tolist(), positive.after.tolist(), strict=False)
    falls = sorted((ClassEffect(*mean) for mean in means), key=lambda each: -each.fall)[:_CLASSES]
    return UnitFaithfulness(
        unit=claim.unit,
        replicate=claim.replicate,
        labels=claim.labels,
        effect=float(np.mean(positive.effects.values)),
        neutral=float(np.mean(neutral.effects.values)),
        auc=bootstrap.interval(own),
        other=_interval(other),
        difference=_interval(None if other is None else own.minus(other)),
        classes=tuple(each for each in falls if each.fall >= _SMALLEST_FALL),
    )


def _interval(found: BootstrapEstimate | None) -> Interval:
    return bootstrap.pooled([]) if found is None else bootstrap.interval(found)


def write_faithfulness(run: Run, faithfulness: Faithfulness) -> None:
    """Stores the effects in the run directory."""
    units = [asdict(each) | _interval_lists(each) for each in faithfulness.units]
    write_result(run, FAITHFULNESS_FILE, _interval_lists(faithfulness) | {"units": units})


def read_faithfulness(run: Run) -> Faithfulness | None:
    """Reads the stored effects; None if they are missing, damaged, or older than the run's evaluations."""
    stored = read_result(run, FAITHFULNESS_FILE)
    try:
        return None if stored is None else _restored(stored)
    except (TypeError, KeyError, ValueError):
        return None


def _restored(stored: dict[str, Any]) -> Faithfulness:
    units: list[dict[str, Any]] = [
        _intervals(row)
        | {
            "unit": Unit(**row["unit"]),
            "labels": tuple(row["labels"]),
            "classes": tuple(
                ClassEffect(str(each["name"]), float(each["before"]), float(each["after"])) for each in row["classes"]
            ),
        }
        for row in stored["units"]
    ]
    fields: dict[str, Any] = _intervals(stored) | {"units": tuple(UnitFaithfulness(**row) for row in units)}
    return Faithfulness(**fields)


def _interval_lists(measured: Faithfulness | UnitFaithfulness) -> dict[str, Any]:
    return {name: getattr(measured, name).as_list() for name in _INTERVALS}


def _intervals(row: dict[str, Any]) -> dict[str, Any]:
    return row | {name: Interval.of(row[name]) for name in _INTERVALS}
