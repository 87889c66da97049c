"""From matched pairs to an effect with its interval, and over a whole sweep to verdicts."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from scipy import stats

from openmaia.apps.bias.contexts import Context
from openmaia.apps.bias.matched import Pair
from openmaia.evaluate import bootstrap
from openmaia.evaluate.bootstrap import Group, Interval
from openmaia.evaluate.statistics import discoveries
from openmaia.store.run import Owed

Outcome = Literal["tested", "undrawable", "unconfirmed", "unwritten"]
"""undrawable: the context is not in most of its pictures. unconfirmed: nobody saw the class in most of them. unwritten: no
usable prompts came."""

SOUND = 0.5
"""Share of the pairs that have to be sound for a test."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """Of one context on one class. score: difference of the mean scores, with the context less without, and its bootstrap
    interval over pairs; raw: the same of the logits, None where there are none. p: that the differences are symmetric
    about zero, against the claimed direction. pairs: sound ones, of so many drawn. objects: how many different pictures
    of the class they were made from, 0 where that cannot be told: pairs that share one say less about the others.
    confirmed_by: who says that the class is there."""

    context: Context
    outcome: Outcome
    cause: str = ""
    score: Interval | None = None
    raw: Interval | None = None
    p: float | None = None
    pairs: tuple[int, int] = (0, 0)
    objects: int = 0
    confirmed_by: tuple[str, ...] = ()
    writer: str = ""

    @property
    def claimed(self) -> float:
        """The effect in the direction claimed, 0 where it could not be tested."""
        if self.score is None:
            return 0.0
        return self.score.mean * self.context.sign if self.context.sign else abs(self.score.mean)


def effect(context: Context, pairs: Sequence[Pair], name: str, resamples: int, writer: str = "") -> Effect:
    """The test is Wilcoxon's signed-rank test (scipy.stats.wilcoxon, zeros after Pratt 1959), one-sided where the claim
    says which way. It takes pairs as independent, which they are given the pictures that the generator has parts of."""
    sound = [pair for pair in pairs if pair.is_sound]
    made = Effect(
        context=context,
        outcome="tested",
        pairs=(len(sound), len(pairs)),
        objects=len({pair.shared for pair in sound} - {()}),
        confirmed_by=tuple(sorted({side.confirmed_by for one in pairs for side in (one.having, one.without)} - {""})),
        writer=writer,
    )
    if len(sound) < SOUND * len(pairs) or len(sound) < 2:
        return _untested(made, pairs, name)
    score = _difference([(one.having.value, one.without.value) for one in sound], resamples)
    logits = [
        (one.having.raw, one.without.raw) for one in sound if one.having.raw is not None and one.without.raw is not None
    ]
    raw = _difference(logits, resamples) if len(logits) == len(sound) else None
    return replace(made, score=score, raw=raw, p=_p([one.difference for one in sound], context.sign))


def _untested(made: Effect, pairs: Sequence[Pair], name: str) -> Effect:
    sides = [side for pair in pairs for side in (pair.having, pair.without)]
    lacking = sorted({word for side in sides for word in side.undrawn})
    if lacking:
        return replace(made, outcome="undrawable", cause=f"the generator could not draw {', '.join(lacking)}")
    gone = sum(side.there is False for side in sides)
    cause = f"{name}: {gone} of {len(sides)} pictures lack it" if gone else f"nobody can tell whether {name} is there"
    return replace(made, outcome="unconfirmed", cause=cause)


def _difference(values: Sequence[tuple[float, float]], resamples: int) -> Interval:
    """The two of a pair are one cluster: a resample has both or neither."""
    clusters = [f"pair {at}" for at in range(len(values))]
    having, without = (Group.of([pair[side] for pair in values], clusters) for side in (0, 1))
    drawn = bootstrap.draws("difference", "", having, without, resamples)
    if drawn is None:
        return Interval(mean=0.0, low=0.0, high=0.0)
    return bootstrap.interval(drawn)


def _p(differences: Sequence[float], sign: int) -> float:
    if not np.any(differences):
        return 1.0
    alternative = "greater" if sign > 0 else "less" if sign < 0 else "two-sided"
    return float(stats.wilcoxon(differences, alternative=alternative, zero_method="pratt").pvalue)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """adjusted: p among all contexts that the sweep tested, None where this one was not."""

    owed: Owed
    name: str
    effect: Effect
    adjusted: float | None
    supported: bool


Tested = Sequence[tuple[Owed, str, Effect]]
"""(investigation, name of the class, effect) for every context that was claimed."""


def verdicts(tested: Tested, rate: float, smallest: float) -> list[Verdict]:
    """Supported: found at a false discovery rate of `rate` among all of the sweep (Benjamini and Hochberg), in the direction
    claimed, with a difference of mean scores of at least `smallest`."""
    p = [one.p for _, _, one in tested if one.p is not None]
    adjusted = iter(discoveries(p))
    found: list[Verdict] = []
    for owed, name, one in tested:
        q = None if one.p is None else next(adjusted)
        supported = q is not None and q <= rate and one.claimed >= smallest
        found.append(Verdict(owed=owed, name=name, effect=one, adjusted=q, supported=supported))
    return found
