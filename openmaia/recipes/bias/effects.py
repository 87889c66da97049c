"""Estimates effects of contexts, decides which claims are supported, and finds the errors that a supported bias causes.

missed       The classifier does not predict the class of the object, because the context lowers the score of the class,
             or because the context that raises it is missing.
false alarm  The classifier predicts the class without such an object, because the context raises its score.

Each failure rate is compared with that of the matched images, which differ only in the context.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from scipy import stats

from openmaia.core.services import LayerProbe, Target
from openmaia.core.units import Unit
from openmaia.evaluation.analysis import bootstrap
from openmaia.evaluation.analysis.bootstrap import ClusteredValues, Interval
from openmaia.evaluation.analysis.statistics import adjust_p_values, proportion
from openmaia.recipes.bias.pairs import ClaimedContext, MatchedPair, Matcher, PairSide
from openmaia.runs.run import InvestigationId

TestOutcome = Literal["tested", "undrawable", "unconfirmed", "unwritten"]
"""Whether a claim was tested, or else why not. undrawable: too few pairs are sound, and the generator reports words
that it cannot draw. unconfirmed: too few pairs are sound, because images do not show the class or are not known to show
it. unwritten: no usable prompts were written."""

_MIN_SOUND = 0.5
"""Share of sound pairs that a test requires."""

FailureKind = Literal["missed", "false alarm"]
Side = Literal["with", "without"]

_KEPT = 24
"""Misclassified images of a failure mode."""
_SUM_TOLERANCE = 1e-2
"""Outputs whose sum differs from 1 by less than this count as a softmax over the classes."""
_THRESHOLD = 0.5
"""Probability at which a classifier with one independent (sigmoid) output per class predicts a class."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextEffect:
    """The measured effect of one claimed context."""

    context: ClaimedContext
    outcome: TestOutcome
    cause: str = ""
    """Empty if the claim was tested."""
    score: Interval | None = None
    """Mean difference (with minus without the context) over the sound pairs, with its bootstrap interval. None without
    a test."""
    raw: Interval | None = None
    """The same for the logits; also None if the classifier has none."""
    p: float | None = None
    """P-value of differences that are symmetric about zero; one-sided if the claim has a sign. None without a test."""
    pairs: tuple[int, int] = (0, 0)
    """Number of sound pairs, and of all pairs."""
    objects: int = 0
    """Different objects in the sound pairs, told apart by their source images (`MatchedPair.shared`); 0 if unknown.
    Pairs that show the same object are not independent."""
    confirmed_by: tuple[str, ...] = ()
    """The generator or judges that checked whether images show the class."""
    writer: str = ""

    @property
    def claimed(self) -> float:
        """The mean difference in the claimed direction, negative if the score changes the other way. Without a
        direction its absolute value; 0 if the claim was not tested.
        """
        if self.score is None:
            return 0.0
        return self.score.mean * self.context.sign if self.context.sign else abs(self.score.mean)


@dataclass(frozen=True, slots=True, kw_only=True)
class BiasVerdict:
    """Whether the test of one claim supports it."""

    investigation: InvestigationId
    name: str
    """The class."""
    effect: ContextEffect
    adjusted: float | None
    """P-value adjusted for all tests of the run (Benjamini and Hochberg); None without a test."""
    supported: bool

    @property
    def outcome(self) -> str:
        """Whether the test supports the claim, or why there was none, in a word or two."""
        if self.effect.score is None:
            return self.effect.outcome
        return "supported" if self.supported else "not supported"


def estimate_effect(
    context: ClaimedContext, pairs: Sequence[MatchedPair], name: str, resamples: int, writer: str = ""
) -> ContextEffect:
    """Estimates and tests the effect of a context on the score of the class `name`.

    The test is Wilcoxon's signed-rank test, with zeros treated as by Pratt (1959). It is one-sided if the claim has a
    direction. All pairs are treated as independent, although the generator may have composed several of them from the
    same source images. If fewer than two pairs, or a smaller share than _MIN_SOUND, are sound, the effect has no score
    and no p-value.
    """
    sound = [pair for pair in pairs if pair.is_sound]
    untested = ContextEffect(
        context=context,
        outcome="unconfirmed",
        pairs=(len(sound), len(pairs)),
        objects=len({pair.shared for pair in sound} - {()}),
        confirmed_by=tuple(
            sorted({side.confirmed_by for pair in pairs for side in (pair.having, pair.without)} - {""})
        ),
        writer=writer,
    )
    if len(sound) < _MIN_SOUND * len(pairs) or len(sound) < 2:
        return _explained(untested, pairs, name)
    differences = [pair.difference for pair in sound]
    logits = [pair.raw_difference for pair in sound if pair.raw_difference is not None]
    return replace(
        untested,
        outcome="tested",
        score=_interval(differences, resamples),
        raw=_interval(logits, resamples) if len(logits) == len(sound) else None,
        p=_p(differences, context.sign),
    )


def decide(
    effects: Sequence[tuple[InvestigationId, str, ContextEffect]], rate: float, smallest: float
) -> list[BiasVerdict]:
    """Decides which of the claimed effects of a run are supported, in their order.

    Args:
        effects: For every claim the investigation that made it, the class and the effect.
        rate: The false discovery rate over all claims (Benjamini and Hochberg).
        smallest: Difference of mean scores in the claimed direction that counts as support.
    """
    adjusted = iter(adjust_p_values([each.p for _, _, each in effects if each.p is not None]))
    decided: list[BiasVerdict] = []
    for investigation, name, each in effects:
        q = None if each.p is None else next(adjusted)
        supported = q is not None and q <= rate and each.claimed >= smallest
        decided.append(
            BiasVerdict(investigation=investigation, name=name, effect=each, adjusted=q, supported=supported)
        )
    return decided


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureMode:
    """How frequent one kind of error is, and on which images it occurs."""

    context: ClaimedContext
    kind: FailureKind
    prone: Side
    """Whether images with or without the context are prone to the failure."""
    rate: list[float] | None
    """Share of wrong predictions on the prone images with Wilson's interval, [share, low, high]; None without pairs."""
    base: list[float] | None
    """The same for the other image of each pair."""
    n: int
    """Number of sound pairs."""
    wrong: tuple[PairSide, ...]
    """Misclassified prone images, at most _KEPT, the largest errors first."""


def find_failures(verdict: BiasVerdict, matcher: Matcher, n: int, run_seed: int) -> list[FailureMode]:
    """Searches n new pairs of images for errors of the kind `missed` and, if the context raises the score, n for `false
    alarm`.

    Raises:
        UnansweredQuestion: No usable prompts could be written.
    """
    unit, name, context = verdict.investigation.unit, verdict.name, verdict.effect.context
    raises = verdict.effect.score is not None and verdict.effect.score.mean > 0
    pairs = [pair for pair in matcher.pairs(unit, name, context, n, run_seed + 1) if pair.is_sound]
    modes = [_mode(verdict, "missed", "without" if raises else "with", pairs, matcher.target)]
    if raises:
        pairs = [  # whether the class is absent is not checked
            pair
            for pair in matcher.pairs(unit, name, context, n, run_seed + 2, absent=True)
            if not (pair.having.missing_terms or pair.without.missing_terms)
        ]
        modes.append(_mode(verdict, "false alarm", "with", pairs, matcher.target))
    return modes


def _mode(
    verdict: BiasVerdict, kind: FailureKind, prone: Side, pairs: Sequence[MatchedPair], target: Target
) -> FailureMode:
    sides = [pair.having if prone == "with" else pair.without for pair in pairs]
    others = [pair.without if prone == "with" else pair.having for pair in pairs]
    predicted, base = (_predictions(group, verdict.investigation.unit, target) for group in (sides, others))

    def is_wrong(name: str) -> bool:
        return (name != verdict.name) == (kind == "missed")

    wrong = [replace(side, predicted=name) for side, name in zip(sides, predicted, strict=True) if is_wrong(name)]
    wrong.sort(key=lambda side: side.value if kind == "missed" else -side.value)
    return FailureMode(
        context=verdict.effect.context,
        kind=kind,
        prone=prone,
        rate=proportion([is_wrong(name) for name in predicted]),
        base=proportion([is_wrong(name) for name in base]),
        n=len(pairs),
        wrong=tuple(wrong[:_KEPT]),
    )


def _predictions(sides: Sequence[PairSide], unit: Unit, target: Target) -> list[str]:
    """Returns the predicted class of each image: the most probable one of a softmax, or of the unit's head if there are
    several; otherwise the class of the unit or "no CLASS".
    """
    info = target.info()
    names, rivals = info.classes, info.head(unit.index)
    predicted: list[str] = []
    for scores in target.respond([LayerProbe(layer=unit.layer, image=side.image) for side in sides]):
        if info.heads or abs(float(scores.sum()) - 1) < _SUM_TOLERANCE:
            predicted.append(names[rivals[int(np.argmax(scores[rivals]))]])
        else:
            predicted.append(names[unit.index] if scores[unit.index] >= _THRESHOLD else f"no {names[unit.index]}")
    return predicted


def _explained(untested: ContextEffect, pairs: Sequence[MatchedPair], name: str) -> ContextEffect:
    sides = [side for pair in pairs for side in (pair.having, pair.without)]
    missing = sorted({word for side in sides for word in side.missing_terms})
    if missing:
        return replace(untested, outcome="undrawable", cause=f"the generator could not draw {', '.join(missing)}")
    absent = sum(side.shows_class is False for side in sides)
    cause = (
        f"{absent} of {len(sides)} images do not show {name}" if absent else f"it is unknown whether {name} is visible"
    )
    return replace(untested, cause=cause)


def _interval(differences: Sequence[float], resamples: int) -> Interval:
    group = ClusteredValues.of(differences, [f"pair {number}" for number in range(len(differences))])
    return bootstrap.interval(bootstrap.group_mean("", group, resamples))


def _p(differences: Sequence[float], sign: int) -> float:
    if not np.any(differences):
        return 1.0
    alternative = "greater" if sign > 0 else "less" if sign < 0 else "two-sided"
    return float(stats.wilcoxon(differences, alternative=alternative, zero_method="pratt").pvalue)
