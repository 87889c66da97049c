"""Computes what is stored of an evaluation: facts of its trial, all metrics, and the comparisons with control images."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, cast

import numpy as np

from openmaia.evaluation.analysis import bootstrap
from openmaia.evaluation.analysis.sequential import Look, judge_look
from openmaia.evaluation.claims import Sharing
from openmaia.evaluation.compared import Evaluation, unlike
from openmaia.evaluation.metric import all_metrics
from openmaia.evaluation.metrics.auc import by_label, worst_label
from openmaia.evaluation.prompts import PROMPT_ROLES
from openmaia.evaluation.trials import Trial
from openmaia.runs.facts import DetectionFacts, SightingFacts, TrialFacts, stored_scores

STAND_INS = 16
"""Random words whose images stand in for those of other units' descriptions at a look."""

RESAMPLES = 2000

COUNTED = ("tested", "abstained", "undrawable")
"""Values of `Trial.outcome` that enter averages over all units, in which abstentions and undrawable claims get the value
that their metric assigns. A claim without usable prompts (`unwritten`) has no score, because that is not the fault of
the description.
"""


def measure(evaluation: Evaluation) -> dict[str, float | None]:
    """Computes all metrics, and NAME_all for those that assign a value. Undefined ones are None."""
    values: dict[str, float | None] = {}
    is_counted = evaluation.trial.outcome in COUNTED
    for name, metric in all_metrics().items():
        values[name] = value = metric.value(evaluation)
        if metric.assigned is not None:
            if value is None and is_counted:
                value = metric.value(evaluation, assign=True)
            values[f"{name}_all"] = value if is_counted else None
    return values


def score(evaluation: Evaluation) -> dict[str, Any]:
    """Computes the facts, the metrics and the controls of an evaluation, by name, as JSON values."""
    return stored_scores(score_header(evaluation))


def score_header(evaluation: Evaluation) -> dict[str, Any]:
    """Computes the items `facts`, `metrics` and `controls` of an evaluation's header (`openmaia.runs.facts`)."""
    facts = collect_facts(evaluation)
    return {
        "facts": asdict(facts) | {"n": list(facts.n)},  # JSON has no tuples
        "metrics": measure(evaluation),
        "controls": control_scores(evaluation) if evaluation.is_tested else {},
    }


def collect_facts(evaluation: Evaluation) -> TrialFacts:
    """Collects the facts of an evaluation's trial."""
    trial, labels = evaluation.trial, by_label(evaluation)
    worst = worst_label(labels)
    positive = [trial.stimuli[row] for row in trial.rows("positive")]
    verdicts = [stimulus.shows for stimulus in positive]
    return TrialFacts(
        outcome=trial.outcome,
        cause=trial.cause,
        protocol=trial.protocol,
        writer=trial.writer,
        generator=trial.generator,
        method=trial.claim.method,
        standard=trial.standard,
        looks=list(trial.looks),
        miss=trial.miss,
        images=sum(stimulus.role in PROMPT_ROLES for stimulus in trial.stimuli),
        n=(len(trial.rows("positive", verified=True)), len(trial.rows("neutral", verified=True))),
        shown=sum(verdict is True for verdict in verdicts) / len(verdicts) if verdicts else None,
        failed_images=sum(verdict is False for verdict in verdicts),
        verified_by=sorted({stimulus.verified_by for stimulus in positive} - {""}),
        photographs_checked_by=sorted({trial.stimuli[row].verified_by or "nobody" for row in trial.rows("random")}),
        units=trial.matrix.shape[1] if evaluation.is_tested else None,
        others=[other.claim.unit.index for other in evaluation.others],
        overlap_exact=None if trial.overlap is None else trial.overlap.exact,
        overlap_words=None if trial.overlap is None else trial.overlap.words,
        by_label=labels,
        worst_label=worst and worst[1],
        detection=_detection(trial),
        sightings=_sightings(trial),
    )


def _detection(trial: Trial) -> DetectionFacts | None:
    found = trial.detection
    if not found:
        return None
    judged, known, shown = (found.get(name, 0) for name in ("judged", "known", "shown"))
    return DetectionFacts(
        judge=found.get("judge", ""), judged=judged, known=known, shown=shown, fuzzed=found.get("fuzzed")
    )


def _sightings(trial: Trial) -> SightingFacts | None:
    seen = trial.sightings
    if seen is None:
        return None
    return SightingFacts(shown=sum(seen.known), known=len(seen.known), photographs=[*seen.photographs], by=[*seen.by])


def control_scores(evaluation: Evaluation, resamples: int = RESAMPLES) -> dict[str, dict[str, Any]]:
    """Compares a unit's responses to the positive images of a description with those to each group of controls.

    Returns:
        For each group that is not empty, by the name of its metric: the AUC as `auc`, its interval at the level of the
        trial's last look as `low` and `high` (`bootstrap.widened_interval` over prompts and photographs), the numbers
        of positive and of control images as `n`, the numbers of their prompts as `prompts`, and the mean standardised
        activations on both as `means`.
    """
    scores: dict[str, dict[str, Any]] = {}
    for name, metric in all_metrics().items():
        if metric.control is None or metric.groups is None:
            continue
        estimate = metric.estimate(evaluation, resamples)
        if estimate is not None:
            (groups,) = metric.groups(evaluation)
            clusters = len({*groups[0].clusters}), len({*groups[1].clusters})
            interval = bootstrap.widened_interval(estimate, clusters, evaluation.trial.miss)
            scores[name] = {
                "auc": round(interval.mean, 6),
                "low": round(interval.low, 6),
                "high": round(interval.high, 6),
                "n": [len(each.values) for each in groups],
                "prompts": list(clusters),
                "means": [round(float(np.mean(each.values)), 4) for each in groups],
            }
    return scores


def look_at(trial: Trial, words: Sequence[Trial], sharing: Sharing) -> Look:
    """Says whether the AUCs of a trial are clear, hopeless or still open at its last look."""
    # The images of other units' descriptions are not known yet.
    others = unlike(trial.claim, words, sharing)[:STAND_INS]
    controls = [*control_scores(Evaluation(trial=trial, others=others)).values()]
    return judge_look(controls, is_first=len(trial.looks) == 1)


def flat(scores: Mapping[str, Any]) -> dict[str, Any]:
    """Converts the result of `score` to a table row of numbers, texts and None. Lists and dictionaries are left out;
    the facts of `detection` become columns such as `detection_judge`.
    """
    detection = cast(dict[str, Any], scores.get("detection") or {})
    plain = {key: value for key, value in scores.items() if not isinstance(value, (dict, list, tuple))}
    return plain | {f"detection_{key}": value for key, value in detection.items()}
