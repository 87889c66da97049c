"""From a bias that stood the test: pictures that the classifier gets wrong because of it.

missed       an object of the class, in the context that lowers its score, or out of the one that raises it
false alarm  no object of the class, but the context that raises its score

The base rate is that of the matched pictures, which differ in nothing but the context.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from openmaia.apps.bias.contexts import Context, Writer
from openmaia.apps.bias.effects import Verdict
from openmaia.apps.bias.matched import Matcher, Pair, Side
from openmaia.evaluate.truth import proportion
from openmaia.services import LayerProbe
from openmaia.units import Unit

Kind = Literal["missed", "false alarm"]

KEPT = 24
"""Wrong pictures that are kept of each kind, the most wrong first."""

ONE = 1e-2
"""Outputs that add up to 1 but for this are one choice."""

DECIDED = 0.5
"""Probability from which a classifier says a class that it decides about by itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wrong:
    """said: the class that it was taken for, or that the class was not seen. value: the score of the class."""

    side: Side
    said: str

    @property
    def value(self) -> float:
        return self.side.value


@dataclass(frozen=True, slots=True, kw_only=True)
class Failures:
    """Of one bias and one kind. prone: how the pictures stand to the context that are prone to it. rate, base: share of
    wrong ones with Wilson's interval, [estimate, low, high], among those pictures and the matched others; None without
    sound pairs."""

    context: Context
    kind: Kind
    prone: Literal["with", "without"]
    rate: list[float] | None
    base: list[float] | None
    n: int
    wrong: tuple[Wrong, ...]


def failures(verdict: Verdict, writer: Writer, matcher: Matcher, n: int, run_seed: int) -> list[Failures]:
    """n pairs of each kind: new ones, not those that the bias was tested on. Raises Unanswered."""
    context, unit, name = verdict.effect.context, verdict.owed.unit, verdict.name
    rises = verdict.effect.score is not None and verdict.effect.score.mean > 0
    prompts = writer.write(name, context, n, run_seed + 1)
    found = [_found(context, "missed", not rises, matcher.pairs(unit, name, prompts), unit, name, matcher)]
    if rises:
        prompts = writer.write(name, context, n, run_seed + 2, absent=True)
        found.append(_found(context, "false alarm", True, matcher.pairs(unit, name, prompts), unit, name, matcher))
    return found


def _found(
    context: Context, kind: Kind, with_context: bool, pairs: Sequence[Pair], unit: Unit, name: str, matcher: Matcher
) -> Failures:
    """with_context: which of the two is prone."""
    sound = [pair for pair in pairs if _is_sound(pair, kind)]
    prone = [pair.having if with_context else pair.without for pair in sound]
    others = [pair.without if with_context else pair.having for pair in sound]
    said, said_of_others = (_said(sides, unit, matcher) for sides in (prone, others))

    def is_wrong(one: str) -> bool:
        return (one != name) == (kind == "missed")

    wrong = [Wrong(side=side, said=one) for side, one in zip(prone, said, strict=True) if is_wrong(one)]
    ordered = sorted(wrong, key=lambda one: one.value if kind == "missed" else -one.value)
    return Failures(
        context=context,
        kind=kind,
        prone="with" if with_context else "without",
        rate=proportion([is_wrong(one) for one in said]),
        base=proportion([is_wrong(one) for one in said_of_others]),
        n=len(sound),
        wrong=tuple(ordered[:KEPT]),
    )


def _is_sound(pair: Pair, kind: Kind) -> bool:
    """Where the class must not be there nobody confirms that it is not: its prompt does not name it."""
    return pair.is_sound if kind == "missed" else not (pair.having.undrawn or pair.without.undrawn)


def _said(sides: Sequence[Side], unit: Unit, matcher: Matcher) -> list[str]:
    """What the classifier says: the highest class where the outputs are one choice, otherwise this class or not."""
    answers = matcher.target.respond([LayerProbe(layer=unit.layer, picture=side.picture) for side in sides])
    names = matcher.target.info().classes
    said: list[str] = []
    for answer in answers:
        if abs(float(answer.sum()) - 1) < ONE:
            said.append(names[int(np.argmax(answer))])
        else:
            said.append(names[unit.index] if answer[unit.index] >= DECIDED else f"no {names[unit.index]}")
    return said
