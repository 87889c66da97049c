"""Estimates effects of contexts, and decides which claims are supported."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from scipy import stats

from openmaia.evaluation.analysis import bootstrap
from openmaia.evaluation.analysis.bootstrap import ClusteredValues, Interval
from openmaia.evaluation.analysis.statistics import adjust_p_values
from openmaia.recipes.bias.contexts import ClaimedContext
from openmaia.recipes.bias.matched import MatchedPair
from openmaia.runs.run import InvestigationId

TestOutcome = Literal["tested", "undrawable", "unconfirmed", "unwritten"]
"""Whether a claim was tested, or else why not. undrawable: too few pairs are sound, and the generator reports words
that it cannot draw. unconfirmed: too few pairs are sound, because images do not show the class or are not known to show
it. unwritten: no usable prompts were written."""

_MIN_SOUND = 0.5
"""Share of sound pairs that a test requires."""


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
