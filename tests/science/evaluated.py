"""The one place where this suite uses the evaluation: what it takes from there, and what it still waits for."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from openmaia.evaluate.predictive import Claim, partner, score, stimuli

from openmaia.evaluate.statistics import mean_interval
from openmaia.evaluate.truth import proportion
from openmaia.units import Unit
from tests.science import setting

RESAMPLES = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class Test:
    """A claim to be tested. images: positive ones, and as many neutral."""

    __test__ = False
    config: str
    overrides: tuple[str, ...]
    unit: Unit
    labels: tuple[str, ...]
    other: Unit | None
    other_labels: tuple[str, ...]
    images: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Scored:
    unit: Unit
    auc: float
    auc_other: float | None


def tested(test: Test) -> Scored:
    services, seed = setting.services(test.config, test.overrides), setting.config(test.config).seed
    claim = Claim(unit=test.unit, replicate=0, labels=test.labels)
    made = stimuli(claim, services.generator, test.images, seed)
    other = None
    if test.other is not None:
        foreign = Claim(unit=test.other, replicate=0, labels=test.other_labels)
        other = (test.other, stimuli(foreign, services.generator, test.images, seed))
    scores = score(claim, made, other, services.target).scores
    return Scored(unit=test.unit, auc=scores["auc"], auc_other=scores["auc_other"])


def partners(labels: Mapping[Unit, Sequence[str]]) -> dict[Unit, Unit]:
    """Another unit of the layer that has a description, for each."""
    described = [unit for unit, said in labels.items() if said]
    found = {unit: partner(unit, described) for unit in labels}
    return {unit: other for unit, other in found.items() if other is not None}


def figures(scores: Sequence[Scored]) -> dict[str, Any]:
    """positive_share: units whose own images excite them more often than the neutral ones do. difference: AUC on a
    description's own images minus AUC on another unit's."""
    both = [one for one in scores if one.auc_other is not None]
    others = [one.auc_other for one in both if one.auc_other is not None]
    return {
        "positive_share": proportion([one.auc > 0.5 for one in scores]),
        "auc": interval([one.auc for one in scores]),
        "auc_other": interval(others),
        "difference": paired([one.auc for one in both], others),
    }


def paired(one: Sequence[float], other: Sequence[float]) -> list[float]:
    return interval((np.array(one) - np.array(other)).tolist())


def interval(values: Sequence[float]) -> list[float]:
    """[mean, low, high] over units."""
    found = mean_interval(values, RESAMPLES)
    return [round(value, 4) for value in (found.mean, found.low, found.high)]


def identification() -> dict[str, Any] | None:
    """To be connected to openmaia.evaluate's response matrix: {"top1": [estimate, low, high], "chance": …}."""
    return None


def sanity(smoke: bool) -> dict[str, Any]:
    """To be connected to openmaia.evaluate.sanity: metric -> {"missing_label": bool, "extra_label": bool}."""
    del smoke
    return {}
