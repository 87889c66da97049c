"""Tests what answers say of the effects of units: that ablating a unit lowers the classes that its answer names.

Each unit is ablated on the positive images of its description's trial, which no agent has seen. The fall of a class on an
image is the negative of d(c) minus its mean over classes (`openmaia.agent.tools.effects`). The statistic is the AUC of the
falls of the classes that the answer names against those of the other classes that answers of the layer name. Before, the
falls on each image are standardised over all these classes, so that images on which a unit is silent do not hide others.

The p-value of a unit comes from assigning the answers of the layer to other units (`openmaia.evaluation.analysis.permutation`).
As a control, the change is made along random directions of the layer in place of the unit's own, with the same norm. An
effect is supported if q, over all units, is at most LEVEL, and the 95 % interval of the AUC minus that of the control lies
above 0.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np

from openmaia.agent.tools.effects import image_changes
from openmaia.core.images import EncodedImage
from openmaia.core.services import Classifier, Intervention
from openmaia.core.units import Unit
from openmaia.evaluation.analysis import bootstrap, permutation
from openmaia.evaluation.analysis.bootstrap import BootstrapEstimate, ClusteredValues, Interval
from openmaia.evaluation.analysis.permutation import EffectTable
from openmaia.evaluation.analysis.statistics import FloatArray, adjust_p_values, proportion
from openmaia.evaluation.analysis.verdict import LEVEL
from openmaia.evaluation.claims import Claim
from openmaia.evaluation.storage import StoredTrials, read_result, write_result
from openmaia.evaluation.trials import Trial
from openmaia.runs.run import Run

EFFECTS_FILE = "effects.json"
_INTERVALS = ("auc", "random", "difference")
_DIRECTIONS = 3
"""Random directions for each unit."""
_WRONG = 4
"""Assignments of answers to other units, from which it is computed how often wrong ones are supported."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitEffect:
    """The test of what one answer says of the effects of its unit."""

    unit: Unit
    replicate: int
    named: tuple[str, ...]
    """The classes."""
    auc: Interval
    random: Interval
    """The same AUC for random directions, averaged."""
    difference: Interval
    """`auc` minus `random`."""
    p: float
    q: float
    """p adjusted over all units (Benjamini and Hochberg)."""
    supported: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectTests:
    """The tests of all answers of a run that name effects. Means over units have intervals over prompts and units."""

    units: tuple[UnitEffect, ...]
    auc: Interval
    random: Interval
    difference: Interval
    supported: tuple[float, ...] | None
    """The share, with both ends of its 95 % interval. None without units."""
    shuffled: tuple[float, ...] | None
    """The same for answers of other units. None if there are none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ablated:
    """A unit on the images of its trial."""

    claim: Claim
    named: frozenset[int]
    """Indices of the classes."""
    clusters: tuple[str, ...]
    """(images,)"""
    falls: FloatArray
    """(images, classes)"""
    random: tuple[FloatArray, ...]
    """Likewise, for each random direction."""


def measure_effects(
    run: Run,
    target: Classifier,
    resamples: int,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> EffectTests | None:
    """Tests the effects that the answers of a run name. None if no answer names any.

    Answers whose trial is damaged, and those about layers whose units cannot be changed, are left out. `progress` gets the
    number of answers that are done and that of all.
    """
    stored, effects = StoredTrials(run), target.effects()
    claims = [each.claim for each in stored if each.outcome == "tested" and each.claim.unit.layer in effects.layers]
    said = {claim: frozenset(run.record(claim.investigation).effects) for claim in claims}
    numbers = {
        claim: frozenset(at for at, name in enumerate(effects.classes) if name in names)
        for claim, names in said.items()
    }
    named = [claim for claim in claims if numbers[claim]]
    if not named:
        return None
    layers: dict[str, list[_Ablated]] = {}
    for done, claim in enumerate(named, start=1):
        trial = stored.readable(claim.investigation, images=True)
        if trial is not None and (found := _ablated(trial, numbers[claim], target)) is not None:
            layers.setdefault(claim.unit.layer, []).append(found)
        progress(done, len(named))
    return _tested([_Layer(each, resamples) for each in layers.values()], effects.classes)


def _ablated(trial: Trial, named: frozenset[int], target: Classifier) -> _Ablated | None:
    stimuli = [trial.stimuli[row] for row in trial.rows("positive", verified=True)]
    images = [EncodedImage(data=each.data) for each in stimuli]
    if not images:
        return None
    unit, effects = trial.claim.unit, target.effects()

    def falls(seed: int | None) -> FloatArray:
        change = partial(Intervention, unit=unit, random=seed)
        return -image_changes(target, effects, images, lambda image: change(image=image))

    return _Ablated(
        claim=trial.claim,
        named=named,
        clusters=tuple(each.cluster for each in stimuli),
        falls=falls(None),
        random=tuple(falls(seed) for seed in range(_DIRECTIONS)),
    )


class _Layer:
    """The answers of one layer, each of which may be tested for each unit."""

    def __init__(self, ablated: Sequence[_Ablated], resamples: int):
        self.ablated, self._resamples = ablated, resamples
        self._compared = sorted(frozenset[int]().union(*(each.named for each in ablated)))
        self.is_null = np.array([[not (one.named & other.named) for other in ablated] for one in ablated])
        others = [len(self._compared) - len(each.named) for each in ablated]
        values = [[self._auc(one, other.named, one.falls) for other in ablated] for one in ablated]
        self.p = permutation.p_values(
            EffectTable(
                values=np.array(values),
                is_null=self.is_null,
                images=np.array([(len(each.named), n) for each, n in zip(ablated, others, strict=True)]),
            )
        )
        """Of each answer for each unit, (units, answers)."""

    def estimates(self, unit: int, answer: int) -> tuple[BootstrapEstimate, BootstrapEstimate] | None:
        """The AUC of a unit and an answer, and that of random directions. None if all classes that are compared are named."""
        own, named = self.ablated[unit], self.ablated[answer].named
        found = [self._estimate(own, named, falls) for falls in (own.falls, *own.random)]
        known = [each for each in found if each is not None]
        if len(known) < len(found):
            return None
        return known[0], bootstrap.average(known[1:], str(own.claim.unit))

    def _estimate(self, own: _Ablated, named: frozenset[int], falls: FloatArray) -> BootstrapEstimate | None:
        groups = self._groups(own, named, falls)
        return bootstrap.estimate("auc", str(own.claim.unit), *groups, self._resamples)

    def _auc(self, own: _Ablated, named: frozenset[int], falls: FloatArray) -> float:
        found = bootstrap.estimate("auc", str(own.claim.unit), *self._groups(own, named, falls), 1)
        return 0.5 if found is None else found.value

    def _groups(
        self, own: _Ablated, named: frozenset[int], falls: FloatArray
    ) -> tuple[ClusteredValues, ClusteredValues]:
        columns = falls[:, self._compared]
        spread = columns.std(axis=1, keepdims=True)
        standard = np.divide(
            columns - columns.mean(axis=1, keepdims=True), spread, out=np.zeros_like(columns), where=spread > 0
        )
        is_named = np.array([each in named for each in self._compared])
        return _clustered(standard[:, is_named], own.clusters), _clustered(standard[:, ~is_named], own.clusters)


def _clustered(values: FloatArray, clusters: Sequence[str]) -> ClusteredValues:
    return ClusteredValues.of(values.ravel().tolist(), [each for each in clusters for _ in range(values.shape[1])])


def _tested(layers: Sequence[_Layer], classes: Sequence[str]) -> EffectTests:
    places = [(layer, at) for layer in layers for at in range(len(layer.ablated))]
    p = [float(layer.p[at, at]) for layer, at in places]
    units: list[UnitEffect] = []
    known: list[tuple[BootstrapEstimate, BootstrapEstimate]] = []
    for (layer, at), value, q in zip(places, p, adjust_p_values(p), strict=True):
        found, each = layer.estimates(at, at), layer.ablated[at]
        if found is not None:
            known.append(found)
        auc, random, difference = _intervals_of(found)
        units.append(
            UnitEffect(
                unit=each.claim.unit,
                replicate=each.claim.replicate,
                named=tuple(classes[number] for number in sorted(each.named)),
                auc=auc,
                random=random,
                difference=difference,
                p=value,
                q=q,
                supported=_is_supported(q, difference),
            )
        )
    supported = proportion([each.supported for each in units])
    wrong = [hit for turn in range(1, _WRONG + 1) for hit in _shuffled(places, turn)]
    shuffled = proportion(wrong)
    return EffectTests(
        units=tuple(units),
        auc=bootstrap.pooled(own for own, _ in known),
        random=bootstrap.pooled(other for _, other in known),
        difference=bootstrap.pooled(own.minus(other) for own, other in known),
        supported=None if supported is None else tuple(supported),
        shuffled=None if shuffled is None else tuple(shuffled),
    )


def _shuffled(places: Sequence[tuple[_Layer, int]], turn: int) -> list[bool]:
    """Whether the answers of other units, `turn` places further in the layer, are supported."""
    # More turns than a layer has other answers would repeat them.
    pairs = [(layer, at, (at + turn) % len(layer.ablated)) for layer, at in places if turn < len(layer.ablated)]
    wrong = [(layer, at, other) for layer, at, other in pairs if layer.is_null[at, other]]
    q = adjust_p_values([float(layer.p[at, other]) for layer, at, other in wrong])
    return [
        _is_supported(value, _intervals_of(layer.estimates(at, other))[2])
        for (layer, at, other), value in zip(wrong, q, strict=True)
    ]


def _is_supported(q: float, difference: Interval) -> bool:
    return q <= LEVEL and difference.low > 0


def _intervals_of(found: tuple[BootstrapEstimate, BootstrapEstimate] | None) -> tuple[Interval, Interval, Interval]:
    if found is None:
        nothing = bootstrap.pooled([])
        return nothing, nothing, nothing
    own, random = found
    return bootstrap.interval(own), bootstrap.interval(random), bootstrap.interval(own.minus(random))


def write_effects(run: Run, tests: EffectTests) -> None:
    """Stores the tests in the run directory."""
    units = [asdict(each) | _lists(each) for each in tests.units]
    write_result(run, EFFECTS_FILE, asdict(tests) | _lists(tests) | {"units": units})


def read_effects(run: Run) -> EffectTests | None:
    """Reads the stored tests; None if they are missing, damaged, or older than the run's evaluations."""
    stored = read_result(run, EFFECTS_FILE)
    if stored is None:
        return None
    try:
        units = tuple(UnitEffect(**_restored(row), **_of_unit(row)) for row in stored.pop("units"))
        shares: dict[str, Any] = {name: value and tuple(map(float, value)) for name, value in _others(stored).items()}
        return EffectTests(units=units, **_restored(stored), **shares)
    except (TypeError, KeyError, ValueError, AttributeError):
        return None


def _of_unit(row: Mapping[str, Any]) -> dict[str, Any]:
    return _others(row) | {"unit": Unit(**row["unit"]), "named": tuple(map(str, row["named"]))}


def _others(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name not in _INTERVALS}


def _lists(measured: EffectTests | UnitEffect) -> dict[str, Any]:
    return {name: getattr(measured, name).as_list() for name in _INTERVALS}


def _restored(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: Interval.of(row[name]) for name in _INTERVALS}
