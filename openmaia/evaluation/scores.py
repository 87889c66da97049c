"""Computes the scores of a claim from the activations of its trial and of the trials of other units."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from openmaia.evaluation.analysis import bootstrap
from openmaia.evaluation.analysis.bootstrap import ClusteredValues
from openmaia.evaluation.analysis.sequential import Look, judge_look
from openmaia.evaluation.analysis.statistics import CHANCE, MATCHED, FloatArray, auc, measure
from openmaia.evaluation.claims import Claim, Sharing, following_units
from openmaia.evaluation.prompts import PROMPT_ROLES
from openmaia.evaluation.trials import EXEMPLARS, Trial

MAX_PARTNERS = 4
"""Other units whose images serve as controls of a unit."""

STAND_INS = 16
"""Random words whose images stand in for those of other units' descriptions at a look."""

RESAMPLES = 2000

COUNTED = ("tested", "abstained", "undrawable")
"""Values of `Trial.outcome` that enter averages over all units, in which abstentions and undrawable claims get the AUC
of chance. A claim without usable prompts (`unwritten`) has no score, because that is not the fault of the description.
"""

SIZES = {
    "z_positive": "images of the description",
    "z_neutral": "matched neutral images",
    "z_against": "images of other units' descriptions",
    "z_unrelated": "unrelated prompts",
    "z_random": "photographs",
    "z_exemplars": "top exemplars",
}
"""Mean activations in SD on these images. They are known only if `Trial.standard` is EXEMPLARS: with another standard
the numbers would not be comparable."""
SIZE_OF = {"auc": "z_neutral", "auc_against": "z_against", "auc_unrelated": "z_unrelated", "auc_random": "z_random"}
"""The mean activation on the control images of each AUC."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """A trial, and the trials of other units that it is compared with."""

    trial: Trial
    others: tuple[Trial, ...]
    """Their matrices contain the responses of this trial's unit to their images."""
    words: tuple[Trial, ...] = ()
    """The layer's trials of random words (`openmaia.evaluation.random_words`)."""

    @property
    def scores(self) -> dict[str, Any]:
        """`values` and `controls`, the result of `control_scores` (empty if nothing was tested), as JSON values. Each
        access computes them again.
        """
        tested = self.trial.outcome == "tested"
        unit = self.trial.claim.unit.index
        return self.values | {"controls": control_scores(self.trial, unit, self.others) if tested else {}}

    @property
    def values(self) -> dict[str, Any]:
        """All scores except `controls`, whose bootstrap takes longer. Undefined scores are None.

        `auc`: positive against neutral images; None if nothing was tested.
        `auc_all`: the same, and 0.5 for an abstention and for a description that cannot be drawn.
        `auc_by_label`: the same for the images of each label. `auc_worst`: the lowest of these AUCs.
        `auc_unrelated`, `auc_random`: positive images against unrelated images, and against photographs.
        `auc_against`: positive images against the positive images of `others`.
        `auc_other`: mean over the trials in `others` of their own AUC, positive against neutral images.
        `auc_words`: the same mean over the trials in `words`.

        `positive`, `neutral`: mean activations on the positive and on the neutral images.
        `difference`, `d`: the difference of these means, and Cohen's d.
        `z_difference`: the difference of standardised activations. See SIZES for the other names with `z_`.
        `mad`, `clarity`: positive images against photographs, as in CoSy and FADE.

        See `identification` for `rank`, `units`, `top1`, `top5` and `chance`, and `Trial` for `detection`, `outcome`
        and `cause`.
        """
        trial = self.trial
        scores: dict[str, Any] = {
            "outcome": trial.outcome,
            "cause": trial.cause,
            "protocol": trial.protocol,
            "writer": trial.writer,
            "generator": trial.generator,
            "method": trial.claim.method,
            "standard": trial.standard,
            "looks": list(trial.looks),
            "miss": trial.miss,
            "images": sum(stimulus.role in PROMPT_ROLES for stimulus in trial.stimuli),
            "photographs_checked_by": sorted(
                {trial.stimuli[row].verified_by or "nobody" for row in trial.rows("random")}
            ),
            "others": [other.claim.unit.index for other in self.others],
            "overlap_exact": None if trial.overlap is None else trial.overlap.exact,
            "overlap_words": None if trial.overlap is None else trial.overlap.words,
        }
        scores |= _own_scores(trial) | _label_scores(trial) | _control_scores(trial) | identification(trial)
        scores |= self._sizes()
        others = [auc(*_values(self.groups_of(other))) for other in self.others]
        scores["auc_other"] = float(np.mean(others)) if others else None
        words = [auc(*_values(self.groups_of(each))) for each in self.words]
        scores["auc_words"] = float(np.mean(words)) if words else None
        scores["auc_against"] = self._auc_against() if trial.outcome == "tested" else None
        scores["detection"] = {key: value for key, value in trial.detection.items() if key != "marks"} or None
        return scores

    def groups(self) -> tuple[ClusteredValues, ClusteredValues]:
        """Returns the unit's standardised activations on the positive and on the neutral images of the trial."""
        return self.groups_of(self.trial)

    def groups_of(self, other: Trial) -> tuple[ClusteredValues, ClusteredValues]:
        """Returns the unit's standardised activations on the positive and on the neutral images of any trial of the
        layer.
        """
        unit = self.trial.claim.unit.index
        return _deviations(other, "positive", unit), _deviations(other, "neutral", unit)

    def _sizes(self) -> dict[str, float | None]:
        trial, unit = self.trial, self.trial.claim.unit.index
        # Without exemplars nothing is known of the dataset. A unit that is constant over it has no scale.
        if trial.outcome != "tested" or trial.exemplars is None:
            return dict.fromkeys(SIZES)
        sizes = {
            f"z_{role}": _mean(_deviations(trial, role, unit).values)
            for role in ("positive", "neutral", "unrelated", "random")
        }
        against = _mean(_foreign(trial, unit, self.others).values)
        return sizes | {"z_against": against, "z_exemplars": _mean([trial.exemplars])}

    def _auc_against(self) -> float | None:
        own, foreign = self.groups()[0], _foreign(self.trial, self.trial.claim.unit.index, self.others)
        return auc(own.values, foreign.values) if foreign.values else None


def control_scores(
    trial: Trial, unit: int, others: Sequence[Trial], resamples: int = RESAMPLES
) -> dict[str, dict[str, Any]]:
    """Compares a unit's responses to the positive images of a description with those to each group of controls.

    Args:
        unit: The index of the unit, which may be another one than that of the description.
        others: Trials of other units, whose positive images are one group.

    Returns:
        For each group that is not empty, by the name of its score (`auc`, `auc_against`, `auc_unrelated`,
        `auc_random`): the AUC as `auc`, its interval at the level of the trial's last look as `low` and `high`
        (`bootstrap.widened_interval` over prompts and photographs), the numbers of positive and of control images as
        `n`, the numbers of their prompts as `prompts`, and the mean standardised activations on both as `means`.
    """
    positive = _deviations(trial, "positive", unit)
    groups = {
        "auc": _deviations(trial, "neutral", unit),
        "auc_against": _foreign(trial, unit, others),
        "auc_unrelated": _deviations(trial, "unrelated", unit),
        "auc_random": _deviations(trial, "random", unit),
    }
    scores: dict[str, dict[str, Any]] = {}
    for key, group in groups.items():
        estimate = bootstrap.estimate("auc", str(unit), positive, group, resamples)
        if estimate is not None:
            clusters = len({*positive.clusters}), len({*group.clusters})
            interval = bootstrap.widened_interval(estimate, clusters, trial.miss)
            scores[key] = {
                "auc": round(interval.mean, 6),
                "low": round(interval.low, 6),
                "high": round(interval.high, 6),
                "n": [len(positive.values), len(group.values)],
                "prompts": list(clusters),
                "means": [round(float(np.mean(each.values)), 4) for each in (positive, group)],
            }
    return scores


def _foreign(trial: Trial, unit: int, others: Sequence[Trial]) -> ClusteredValues:
    # Trials that are standardised by their own images are not on a common scale.
    groups = [_deviations(other, "positive", unit) for other in others] if trial.standard == EXEMPLARS else []
    return ClusteredValues.of(
        [value for group in groups for value in group.values], [name for group in groups for name in group.clusters]
    )


def raw_group(trial: Trial, role: str) -> ClusteredValues:
    """Returns the activations of the unit on the images of a role (`Stimulus.role`), not standardised, without images
    that are known not to show what was requested.
    """
    shown = [trial.stimuli[row] for row in trial.rows(role, verified=True)]
    return ClusteredValues.of([each.activation for each in shown], [each.cluster for each in shown])


def _deviations(trial: Trial, role: str, unit: int) -> ClusteredValues:
    rows = trial.rows(role, verified=True)
    values: list[float] = trial.matrix[rows, unit].astype(np.float64).tolist() if rows else []
    return ClusteredValues.of(values, [trial.stimuli[row].cluster for row in rows])


def _values(groups: tuple[ClusteredValues, ClusteredValues]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    return groups[0].values, groups[1].values


def _own_scores(trial: Trial) -> dict[str, Any]:
    """Returns the scores of raw activations and, as `z_…`, of standardised ones. `shown` is the share of positive
    images that were verified.
    """
    positive, neutral = raw_group(trial, "positive").values, raw_group(trial, "neutral").values
    verdicts = [trial.stimuli[row].shows for row in trial.rows("positive")]
    tested = trial.outcome == "tested"
    scores: dict[str, Any] = {
        "positive": _mean(positive),
        "neutral": _mean(neutral),
        "n": [len(positive), len(neutral)],
        "shown": sum(verdict is True for verdict in verdicts) / len(verdicts) if verdicts else None,
        "failed_images": sum(verdict is False for verdict in verdicts),
        "verified_by": sorted({trial.stimuli[row].verified_by for row in trial.rows("positive")} - {""}),
    }
    scores |= {name: measure(name, positive, neutral) if tested else None for name in MATCHED}
    z = [_deviations(trial, role, trial.claim.unit.index).values for role in ("positive", "neutral")]
    scores["z_difference"] = measure("difference", *z) if tested else None
    chance = CHANCE if trial.outcome in COUNTED else None
    scores["auc_all"] = chance if scores["auc"] is None else scores["auc"]
    return scores


def _label_scores(trial: Trial) -> dict[str, Any]:
    """Returns the AUC of each label's positive images against its neutral images, and the lowest of them."""
    labels = dict.fromkeys(s.label for s in trial.stimuli if s.role == "positive" and s.label)
    by_label: dict[str, float | None] = {}
    for label in labels if trial.outcome == "tested" else ():
        own, neutral = (
            [
                trial.stimuli[row].activation
                for row in trial.rows(role, verified=True)
                if trial.stimuli[row].label == label
            ]
            for role in ("positive", "neutral")
        )
        by_label[label] = measure("auc", own, neutral)  # None if no image shows the label
    known = [(value, label) for label, value in by_label.items() if value is not None]
    worst = min(known) if known else (None, None)
    return {"auc_by_label": by_label, "auc_worst": worst[0], "worst_label": worst[1]}


def _control_scores(trial: Trial) -> dict[str, float | None]:
    """Compares positive images with unrelated images and with photographs.

    `mad` is CoSy's mean activation difference (Kopf et al. 2024, section 4), `clarity` that of FADE (Puri et al. 2025),
    the absolute Gini coefficient 2 AUC - 1, both against photographs. Without images, values are None.
    """
    groups = {role: raw_group(trial, role).values for role in ("positive", "unrelated", "random")}
    if trial.outcome != "tested":
        groups = dict.fromkeys(groups, ())
    random = measure("auc", groups["positive"], groups["random"])
    return {
        "auc_unrelated": measure("auc", groups["positive"], groups["unrelated"]),
        "auc_random": random,
        "mad": measure("mad", groups["positive"], groups["random"]),
        "clarity": None if random is None else abs(2 * random - 1),
    }


def identification(trial: Trial) -> dict[str, Any]:
    """Ranks a unit among all units of its layer by the standardised activations on its positive images.

    Returns:
        `rank`: rank of the unit's mean (1 is the highest, ties share their mean rank).
        `units`: number of units of the layer.
        `top1` and `top5`: share of images on which the unit is the highest, or among the five highest. Tied units share
        the remaining places equally.
        `chance`: expected `top1` of a random description.
        If nothing was tested, `units` is missing and all other values are None.
    """
    rows = trial.rows("positive", verified=True)
    if trial.outcome != "tested" or not rows:
        return {"rank": None, "top1": None, "top5": None, "chance": None}
    # Standardised, or a unit with high activations on all images would rank first.
    deviations = trial.matrix[rows].astype(np.float64)
    unit, count = trial.claim.unit.index, deviations.shape[1]
    means = deviations.mean(axis=0)
    return {
        "rank": 1 + float((means > means[unit]).sum()) + 0.5 * float((means == means[unit]).sum() - 1),
        "units": count,
        "top1": float(np.mean(_among_highest(deviations, unit, 1))),
        "top5": float(np.mean(_among_highest(deviations, unit, 5))),
        "chance": 1 / count,
    }


def _among_highest(deviations: FloatArray, unit: int, k: int) -> FloatArray:
    """Returns 1 for each image on which the unit is among the k highest, 0 for others, and a fraction for ties,
    (images,).
    """
    own = deviations[:, [unit]]
    above, equal = (deviations > own).sum(axis=1), (deviations == own).sum(axis=1)
    return np.clip((k - above) / equal, 0.0, 1.0)


def partners(claim: Claim, tested: Sequence[Claim], sharing: Sharing, count: int = MAX_PARTNERS) -> list[Claim]:
    """Returns the tested claims about other units whose images serve as controls of a claim.

    At most `count` claims of the same method and replicate about the units that follow in the layer
    (`following_units`), without claims that are alike.
    """
    same = {
        each.unit: each
        for each in tested
        if (each.method, each.replicate) == (claim.method, claim.replicate) and not each.is_like(claim, sharing)
    }
    return [same[unit] for unit in following_units(claim.unit, same)[:count]]


def unlike(claim: Claim, words: Sequence[Trial], sharing: Sharing) -> tuple[Trial, ...]:
    """Returns the trials of random words that are wrong descriptions where a claim is right."""
    return tuple(each for each in words if not each.claim.is_like(claim, sharing))


def look_at(trial: Trial, words: Sequence[Trial], sharing: Sharing) -> Look:
    """Says whether the AUCs of a trial are clear, hopeless or still open at its last look."""
    # The images of other units' descriptions are not known yet.
    others = unlike(trial.claim, words, sharing)[:STAND_INS]
    controls = [*control_scores(trial, trial.claim.unit.index, others).values()]
    return judge_look(controls, is_first=len(trial.looks) == 1)


def compare_trials(trials: Sequence[Trial], sharing: Sharing) -> list[Evaluation]:
    """Combines each trial with those of its `partners`, in the same order."""
    tested = {trial.claim: trial for trial in trials if trial.outcome == "tested"}
    return [
        Evaluation(
            trial=trial,
            others=tuple(tested[claim] for claim in partners(trial.claim, list(tested), sharing)),
        )
        for trial in trials
    ]


def _mean(values: Sequence[float]) -> float | None:
    return float(f"{sum(values) / len(values):.5g}") if values else None


def flat(scores: Mapping[str, Any]) -> dict[str, Any]:
    """Converts `Evaluation.scores` to a table row of numbers, texts and None. Lists and dictionaries are left out; the
    entries of `detection` become columns such as `detection_auprc`.
    """
    detection = cast(dict[str, Any], scores.get("detection") or {})
    plain = {key: value for key, value in scores.items() if not isinstance(value, (dict, list))}
    return plain | {f"detection_{key}": value for key, value in detection.items()}
