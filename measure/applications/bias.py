"""Classifiers with a known bias and as many without: what the scripted experimenter claims, and what the test supports.

A discovery is false if the planted bias adds nothing to the logits of the tested images, or adds in the other direction.
This is computed from the closed form; in a classifier without a planted bias every discovery is false.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, mean
from time import process_time
from typing import Any

import numpy as np
from sklearn.metrics import roc_auc_score, roc_curve

from measure.science import setting
from openmaia.agent.loop import investigate
from openmaia.agent.tasks.task import load
from openmaia.assembly import investigations
from openmaia.config.studies import BiasConfig
from openmaia.core.images import EncodedImage
from openmaia.core.units import OUTPUT, Unit
from openmaia.evaluation.analysis.statistics import proportion
from openmaia.offline.closed_form.classes import BiasedClassifier, classifiers
from openmaia.offline.closed_form.view import DetectorInput, resized
from openmaia.offline.vocabulary.contexts import RuleContextWriter, is_exact_name
from openmaia.recipes.bias.effects import ContextEffect, decide
from openmaia.recipes.bias.pairs import MatchedPair, Matcher
from openmaia.recipes.bias.study import measure_claim
from openmaia.runs.run import InvestigationId

TARGET = "biased"
NEGLIGIBLE = 0.1
"""Log-odds: a planted bias that adds less to the tested images counts as absent."""

CLAIMED = re.compile(r"by (?P<size>[\d.e-]+) \(t")
OUT = Path(__file__).parent / "bias.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    overrides: tuple[str, ...]
    index: int
    pairs: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The claims about one classifier and their tests."""

    unit: Unit
    labels: tuple[str, ...]
    claimed: float
    """The largest difference of logits that the agent reports."""
    effects: tuple[ContextEffect, ...]
    planted: tuple[float, ...]
    """What the bias adds to the logits of each claim's images with the context, minus those without it."""
    seconds: tuple[float, float]
    """Processor time of the agent and of the test."""


def overrides() -> tuple[str, ...]:
    return (
        "pictures.limit=40",
        "units=all",
        f"target.name={TARGET}",
        "target.kind=closed_form",
        "target.family=biased",
        "task.name=bias",
        "exemplars.dataset=few",
        # A machine that is busy with something else must not end an investigation.
        "sandbox.seconds=600",
        "limits.minutes=600",
    )


def measure(smoke: bool) -> dict[str, Any]:
    given, every = overrides(), classifiers()
    # Sorted by class, because the classifiers of one class are shown many of the same images.
    order = sorted(range(len(every)), key=lambda index: (every[index].name, index))
    wanted = _few(every) if smoke else order
    setting.ready(setting.config("efficientnet-lite0", given), [OUTPUT])
    jobs = [Job(overrides=given, index=index, pairs=12 if smoke else 40) for index in wanted]
    halves = [jobs[: len(jobs) // 2], jobs[len(jobs) // 2 :]]
    found = [one for part in setting.shared_out(answered, halves) for one in part]
    figures = summary(found, every)
    if not smoke:
        OUT.write_text(json.dumps([_row(one, every[one.unit.index]) for one in found], indent=0) + "\n")
    return figures


def _few(every: Sequence[BiasedClassifier]) -> list[int]:
    """Returns a classifier with a strong bias inside of the vocabulary, and one of the same class without a bias."""
    strong = next(i for i, one in enumerate(every) if one.strength >= 4 and one.inside and len(one.contexts) == 1)
    null = next(i for i, one in enumerate(every) if not one.contexts and one.name == every[strong].name)
    return [strong, null]


def answered(jobs: Sequence[Job]) -> list[Answer]:
    return [_answered(job) for job in jobs]


def _answered(job: Job) -> Answer:
    services = setting.services("efficientnet-lite0", job.overrides)
    unit = Unit(target=TARGET, layer=OUTPUT, index=job.index)
    own = classifiers()[job.index]
    began = process_time()
    record = investigate(
        unit, load("bias"), services, investigations.options(setting.config("efficientnet-lite0", job.overrides))
    )
    asked = process_time()
    matcher = Matcher(
        writer=RuleContextWriter(), generator=services.generator, target=services.target, knows_class=is_exact_name
    )
    config = setting.config("efficientnet-lite0", (*job.overrides, f"bias.pairs={job.pairs}"))
    tested = [measure_claim(unit, own.name, label, matcher, config) for label in record.labels]
    return Answer(
        unit=unit,
        labels=record.labels,
        claimed=max((float(size) for size in CLAIMED.findall(record.description)), default=0.0),
        effects=tuple(effect for effect, _ in tested),
        planted=tuple(_planted(own, pairs) for _, pairs in tested),
        seconds=(asked - began, process_time() - asked),
    )


def _planted(own: BiasedClassifier, pairs: Sequence[MatchedPair]) -> float:
    def added(image: EncodedImage) -> float:
        return own.planted(DetectorInput(resized(image.pixels)))

    return fmean(added(one.having.image) - added(one.without.image) for one in pairs) if pairs else 0.0


def summary(found: Sequence[Answer], every: Sequence[BiasedClassifier]) -> dict[str, Any]:
    """Summarises all answers.

    The ROC separates classifiers with a bias from those without, by the claimed and by the tested effect. Power is the
    share of classifiers whose own bias is supported, by strength, for single contexts inside of the vocabulary,
    interactions, and contexts outside of it.
    """
    investigation = {one.unit: InvestigationId(unit=one.unit, replicate=0) for one in found}
    claims = [(investigation[one.unit], "", effect) for one in found for effect in one.effects]
    true = [_is_true(e, added) for one in found for e, added in zip(one.effects, one.planted, strict=True)]
    design = BiasConfig()
    judged = decide(claims, design.rate, design.smallest)
    stands = [(one, right) for one, right in zip(judged, true, strict=True) if one.supported]
    found_in = {one.investigation.unit for one, right in stands if right}
    confirmed = [max((e.claimed for e in one.effects), default=0.0) for one in found]
    planted = [bool(every[one.unit.index].contexts) for one in found]
    groups = {_group(every[one.unit.index]): [] for one in found if every[one.unit.index].contexts}
    for one in found:
        if every[one.unit.index].contexts:
            groups[_group(every[one.unit.index])].append(one.unit in found_in)
    nulls = [one for one in found if not every[one.unit.index].contexts]
    claims_on_nulls = sum(bool(one.labels) for one in nulls)
    return {
        "planted": sum(planted),
        "nulls": len(nulls),
        "claims": len(claims),
        "claims_true": sum(true),
        "nulls_with_a_claim": claims_on_nulls,
        "supported": len(stands),
        "false_discoveries": proportion([not right for _, right in stands]),
        "nulls_with_a_discovery": proportion(
            [any(v.supported for v in judged if v.investigation.unit == n.unit) for n in nulls]
        ),
        "roc_auc": {"claimed": _area(planted, [one.claimed for one in found]), "confirmed": _area(planted, confirmed)},
        "roc": {"claimed": _curve(planted, [one.claimed for one in found]), "confirmed": _curve(planted, confirmed)},
        "power": {name: proportion(hits) for name, hits in sorted(groups.items())},
        "cpu_s_per_unit": [round(mean(one.seconds[at] for one in found), 1) for at in (0, 1)],
    }


def _is_true(effect: ContextEffect, planted: float) -> bool:
    return planted * effect.context.sign >= NEGLIGIBLE


def _group(own: BiasedClassifier) -> str:
    kind = "outside" if not own.inside else "interaction" if len(own.contexts) > 1 else "single"
    return f"{kind} {abs(own.strength):g}"


def _area(planted: Sequence[bool], score: Sequence[float]) -> list[float] | None:
    """Returns [estimate, low, high] of the area under the ROC, with a 95 % bootstrap interval over units."""
    truth, values = np.array(planted), np.array(score)
    if truth.all() or not truth.any():
        return None
    random = np.random.default_rng(0)
    drawn: list[float] = []
    while len(drawn) < 1000:
        at = random.integers(0, len(truth), len(truth))
        if truth[at].any() and not truth[at].all():
            drawn.append(float(roc_auc_score(truth[at], values[at])))
    low, high = np.percentile(drawn, [2.5, 97.5])
    return [round(float(value), 3) for value in (roc_auc_score(truth, values), low, high)]


def _curve(planted: Sequence[bool], score: Sequence[float]) -> list[list[float]]:
    """Returns points (share of nulls, share of planted) from the highest threshold to the lowest."""
    if all(planted) or not any(planted):
        return []
    false, true, _ = roc_curve(planted, score)
    return [[round(float(x), 3), round(float(y), 3)] for x, y in zip(false, true, strict=True)]


def _row(one: Answer, own: BiasedClassifier) -> dict[str, Any]:
    """Returns an answer as JSON values."""
    return {
        "class": own.name,
        "planted": [context.name for context in own.contexts],
        "strength": own.strength,
        "inside": own.inside,
        "labels": one.labels,
        "claimed": one.claimed,
        "effects": [e.score.as_list() if e.score else e.outcome for e in one.effects],
        "p": [e.p for e in one.effects],
        "added": [round(value, 3) for value in one.planted],
        "seconds": [round(value, 1) for value in one.seconds],
    }
