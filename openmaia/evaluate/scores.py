"""From trials to scores: of a claim on its own images, on controls, on another unit's images, and among all units."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from openmaia.evaluate.bootstrap import Group
from openmaia.evaluate.statistics import CHANCE, MEASURES, Values, auc, mann_whitney_p, measure
from openmaia.evaluate.trials import Trial

OTHERS = 4
"""Units whose images serve as the control of a unit."""

COUNTED = ("tested", "abstained", "undrawable")
"""Outcomes that say something about the description. Abstentions and what cannot be drawn score what chance scores; where
no usable prompts were written that is no fault of the description's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """others: trials of other units, whose images the unit saw too, in the matrix of each."""

    trial: Trial
    others: tuple[Trial, ...]

    @property
    def scores(self) -> dict[str, Any]:
        trial, claim = self.trial, self.trial.claim
        found: dict[str, Any] = {
            "outcome": trial.outcome,
            "cause": trial.cause,
            "protocol": trial.protocol,
            "writer": trial.writer,
            "method": claim.method,
            "standard": trial.standard,
            "others": [other.claim.unit.index for other in self.others],
        }
        found |= _own(trial) | _labels(trial) | _controls(trial) | identification(trial)
        others = [auc(*_plain(self.groups_of(other))) for other in self.others]
        found["auc_other"] = float(np.mean(others)) if others else None
        found["auc_against"] = self._against() if trial.outcome == "tested" else None
        found["detection"] = {key: value for key, value in trial.detection.items() if key != "marks"} or None
        return found

    def groups(self) -> tuple[Group, Group]:
        return groups(self.trial, self.trial.claim.unit.index)

    def groups_of(self, other: Trial) -> tuple[Group, Group]:
        """This unit on the positive and neutral images of another."""
        return groups(other, self.trial.claim.unit.index)

    def _against(self) -> float | None:
        """Own positive images against those of other units, in the same deviations."""
        own = groups(self.trial, self.trial.claim.unit.index)[0].values
        foreign = [value for other in self.others for value in self.groups_of(other)[0].values]
        # Trials that are standardised by their own controls have no scale in common.
        return auc(own, foreign) if foreign and self.trial.standard == "exemplars" else None


def groups(trial: Trial, unit: int) -> tuple[Group, Group]:
    """A unit's deviations on the positive and the neutral images that may show what was asked."""
    rows = [trial.rows(role, verified=True) for role in ("positive", "neutral")]
    return _group(trial, rows[0], unit), _group(trial, rows[1], unit)


def _group(trial: Trial, rows: Sequence[int], unit: int) -> Group:
    values: list[float] = trial.matrix[rows, unit].astype(np.float64).tolist() if rows else []
    return Group.of(values, [trial.stimuli[at].cluster for at in rows])


def _plain(pair: tuple[Group, Group]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    return pair[0].values, pair[1].values


def _raw(trial: Trial, role: str) -> list[float]:
    return [trial.stimuli[at].activation for at in trial.rows(role, verified=True)]


def _own(trial: Trial) -> dict[str, Any]:
    """Raw activations, and deviations beside (z_…). shown: share of positive images verified to show what was asked."""
    positive, neutral = _raw(trial, "positive"), _raw(trial, "neutral")
    verdicts = [trial.stimuli[at].shows for at in trial.rows("positive")]
    found: dict[str, Any] = {
        "positive": _mean(positive),
        "neutral": _mean(neutral),
        "n": [len(positive), len(neutral)],
        "shown": sum(one is True for one in verdicts) / len(verdicts) if verdicts else None,
        "failed_images": sum(one is False for one in verdicts),
        "verified_by": sorted({trial.stimuli[at].verified_by for at in trial.rows("positive")} - {""}),
    }
    tested = trial.outcome == "tested"
    for name in MEASURES:
        found[name] = measure(name, positive, neutral) if tested else None
    z = _plain(groups(trial, trial.claim.unit.index))
    found |= {f"z_{role}": _mean(values) for role, values in zip(("positive", "neutral"), z, strict=True)}
    found["z_difference"] = measure("difference", *z) if tested else None
    found["p"] = mann_whitney_p(positive, neutral) if tested else None
    if not tested:
        found["auc"] = CHANCE if trial.outcome in COUNTED else None
    elif found["auc"] is None:
        found["auc"] = CHANCE
    return found


def _labels(trial: Trial) -> dict[str, Any]:
    """The AUC of each label's images against the neutral ones of the same label, and the worst of them."""
    named = list(dict.fromkeys(s.label for s in trial.stimuli if s.role == "positive" and s.label))
    by_label: dict[str, float | None] = {}
    for label in named if trial.outcome == "tested" else ():
        own, neutral = (
            [trial.stimuli[at].activation for at in trial.rows(role, verified=True) if trial.stimuli[at].label == label]
            for role in ("positive", "neutral")
        )
        # A label none of whose images shows it has said nothing that could be tested.
        by_label[label] = measure("auc", own, neutral)
    known = [(value, label) for label, value in by_label.items() if value is not None]
    worst = min(known) if known else None
    return {
        "auc_by_label": by_label,
        "auc_worst": worst[0] if worst else None,
        "worst_label": worst[1] if worst else None,
    }


def _controls(trial: Trial) -> dict[str, float | None]:
    positive = _raw(trial, "positive")
    return {
        f"auc_{role}": measure("auc", positive, _raw(trial, role)) if trial.outcome == "tested" else None
        for role in ("unrelated", "random")
    }


def identification(trial: Trial) -> dict[str, Any]:
    """How the unit stands among all units of its layer on its own description's images.

    Every unit is measured in deviations above its own mean, so that one that is always high does not win. rank: of the
    mean over the positive images, 1 for the highest, ties shared. top1, top5: share of positive images on which the unit
    is the highest of all, or among the five highest, a tie of k units counting 1/k. chance: of top1, 1 over the units.
    """
    rows = trial.rows("positive", verified=True)
    if trial.outcome != "tested" or not rows:
        return {"rank": None, "top1": None, "top5": None, "chance": None}
    seen = trial.matrix[rows].astype(np.float64)
    unit, count = trial.claim.unit.index, seen.shape[1]
    means = seen.mean(axis=0)
    rank = 1 + float((means > means[unit]).sum()) + 0.5 * float((means == means[unit]).sum() - 1)
    return {
        "rank": rank,
        "units": count,
        "top1": float(np.mean(_among(seen, unit, 1))),
        "top5": float(np.mean(_among(seen, unit, 5))),
        "chance": 1 / count,
    }


def _among(seen: Values, unit: int, k: int) -> Values:
    """For each image the share with which the unit is among the k highest: places left over those who tie for them."""
    own = seen[:, [unit]]
    above, equal = (seen > own).sum(axis=1), (seen == own).sum(axis=1)
    return np.clip((k - above) / equal, 0.0, 1.0)


def partners(trial: Trial, trials: Sequence[Trial], most: int = OTHERS) -> tuple[Trial, ...]:
    """The next units of the same layer, method and replicate that were tested, in the order of indices, starting over at
    the end."""
    own = trial.claim
    same = {
        other.claim.unit.index: other
        for other in trials
        if (other.claim.unit.target, other.claim.unit.layer) == (own.unit.target, own.unit.layer)
        and (other.claim.method, other.claim.replicate) == (own.method, own.replicate)
        and other.claim.unit != own.unit
        and other.outcome == "tested"
    }
    order = sorted(same, key=lambda index: (index < own.unit.index, index))
    return tuple(same[index] for index in order[:most])


def _mean(values: Sequence[float]) -> float | None:
    return float(f"{sum(values) / len(values):.5g}") if values else None


def flat(scores: Mapping[str, Any]) -> dict[str, Any]:
    """For a table of one row per unit."""
    detection = cast(dict[str, Any], scores.get("detection") or {})
    plain = {key: value for key, value in scores.items() if not isinstance(value, (dict, list))}
    return plain | {f"detection_{key}": value for key, value in detection.items()}
