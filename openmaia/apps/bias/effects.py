"""Estimates how a context changes a classifier's score of a class, and decides which claimed effects are supported.

An estimate rests on pairs of generated images that differ only in the context. The decision corrects for the number of
claims of a run.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from scipy import stats

from openmaia.apps.bias.contexts import ClaimedContext
from openmaia.apps.bias.matched import MatchedPair
from openmaia.evaluation.analysis import bootstrap
from openmaia.evaluation.analysis.bootstrap import ClusteredValues, Interval
from openmaia.evaluation.analysis.statistics import adjust_p_values
from openmaia.runs.run import InvestigationId

TestOutcome = Literal["tested", "undrawable", "unconfirmed", "unwritten"]
"""Whether a claimed bias was tested, or else why not. A pair of images is sound if both show what was requested.
undrawable: too few pairs are sound, and the generator reports words that it cannot draw. unconfirmed: too few pairs are
sound, because images do not show the class or are not known to show it. unwritten: no usable prompts were written."""

MIN_SOUND = 0.5
"""Minimum share of sound pairs (both images as requested) that a test of a bias requires."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextEffect:
    """The effect of a claimed context (such as snow) on a classifier's score of a class, measured on image pairs."""

    context: ClaimedContext
    outcome: TestOutcome
    """Whether the claim was tested, or else which kind of cause prevented the test."""
    cause: str = ""
    """Why the claim was not tested; empty if it was."""
    score: Interval | None = None
    """Mean over the sound pairs (both images as requested) of the score with the context minus that without it, with
    its bootstrap interval over pairs. None without a test."""
    raw: Interval | None = None
    """The same difference for the logits. None without a test, or if the classifier has no logits."""
    p: float | None = None
    """P-value of the null hypothesis that the differences of the pairs are symmetric about zero; one-sided if the claim
    has a sign. None without a test."""
    pairs: tuple[int, int] = (0, 0)
    """Number of sound pairs, and of all pairs."""
    objects: int = 0
    """Number of different objects in the sound pairs, told apart by their source images (`MatchedPair.shared`); 0 if
    unknown. Pairs that show the same object are not independent."""
    confirmed_by: tuple[str, ...] = ()
    """The names of the generator or judges that checked whether images show the class."""
    writer: str = ""
    """The name of the prompt writer."""

    @property
    def claimed(self) -> float:
        """The mean difference of the scores (with minus without the context), measured in the claimed direction.

        It is positive if the score changes as claimed, and negative if it changes in the opposite direction. If the
        claim has no direction, it is the absolute value of the difference. It is 0 if the claim was not tested.
        """
        if self.score is None:
            return 0.0
        return self.score.mean * self.context.sign if self.context.sign else abs(self.score.mean)


@dataclass(frozen=True, slots=True, kw_only=True)
class BiasVerdict:
    """The decision whether a bias that an agent claims is supported by its test."""

    investigation: InvestigationId
    name: str
    """The name of the class that is scored."""
    effect: ContextEffect
    adjusted: float | None
    """The p-value adjusted for all tests of the run (Benjamini and Hochberg); None without a test."""
    supported: bool


def effect(
    context: ClaimedContext, pairs: Sequence[MatchedPair], name: str, resamples: int, writer: str = ""
) -> ContextEffect:
    """Estimates and tests the effect of a context on the classifier's score of a class.

    The test is Wilcoxon's signed-rank test (scipy.stats.wilcoxon), with zeros treated as by Pratt (1959). It is
    one-sided if the claim says in which direction the score changes. All pairs are treated as independent, although the
    generator may have composed several of them from the same source images.

    Args:
        context: The claimed context.
        pairs: Pairs of scored images of the class `name`, with and without the context.
        name: The name of the class.
        resamples: The number of bootstrap resamples.
        writer: The name of the prompt writer.

    Returns:
        The effect. A pair is sound if both images show what was requested. If fewer than two pairs, or fewer than half
        of them (MIN_SOUND), are sound, the effect has no score and no p-value.
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
    if len(sound) < MIN_SOUND * len(pairs) or len(sound) < 2:
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


def verdicts(
    effects: Sequence[tuple[InvestigationId, str, ContextEffect]], rate: float, smallest: float
) -> list[BiasVerdict]:
    """Decides which of the claimed effects of a run are supported.

    Args:
        effects: For every claim of the run the investigation that made it, the name of the class and the effect.
        rate: The false discovery rate over all claims (Benjamini and Hochberg).
        smallest: The minimum difference of mean scores in the claimed direction that counts as support.

    Returns:
        One verdict for each claim, in the order of `effects`.
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
