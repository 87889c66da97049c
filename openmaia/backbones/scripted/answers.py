"""From findings to an answer."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from openmaia.backbones.scripted.judge import Finding, Measured, is_object, kind_of
from openmaia.pictures.phrases import GENERAL
from openmaia.pictures.vocabulary import Kind

SHARE = 0.33
"""Of the unit's reach: an effect below it is a side effect of something that was not found."""

TESTED = 6
"""Findings that are tested by edits; MOST are answered."""

MOST = 3

RETAINED = 0.17
"""Share of its activation that an object has to keep in one of the other colours that it is shown in."""

RECOGNISED = 0.25
"""Of an object's best picture, what another one has to excite to count among those in which the object was recognised."""

KEPT, KEPT_OBJECT = 0.5, 0.4
"""Of the greatest height, what a finding has to reach to be part of the answer."""

ABOVE_USUAL = 1.25
"""Usual deviations that an effect has to reach."""

DOES_MORE = 1.25
"""Times the height of a property from which a thing that shows it is more than the property."""

ALIKE = 0.6
"""Of an object's effect, what another one that its pictures look like has to do to be more than a mistake for it."""

Beside = Mapping[str, frozenset[str]]
"""By thing: the properties that its pictures show where the unit responds, and the objects that they look like."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """How far a unit has been seen to go above its median answer in the screening, and the usual (robust) deviation."""

    height: float
    usual: float


def reach(screened: Measured, others: Sequence[float]) -> Reach:
    values = np.array([value for _, value in screened])
    height = max(float(values.max()), *others) if others else float(values.max())
    return Reach(
        height=height - float(np.median(values)), usual=float(stats.median_abs_deviation(values, scale="normal"))
    )


def answer(findings: Sequence[Finding], reach: Reach, beside: Beside) -> list[Finding]:
    """The findings that may make up the answer, strongest first; none for an abstention. beside: what else the pictures of
    things show. A thing and a property that it shows may both be among them, until edits have told; see `told_apart`."""
    holding = sorted((f for f in findings if f.holds), key=lambda f: (-f.height, f.hypothesis.words))
    if not holding or max(f.effect for f in holding) < max(SHARE * reach.height, ABOVE_USUAL * reach.usual):
        return []
    share = {Kind.OBJECT: KEPT_OBJECT}
    kept = [f for f in holding if f.height >= share.get(kind_of(f.hypothesis), KEPT) * holding[0].height]
    pairs = [f for f in kept if len(f.hypothesis.words) == 2]
    in_pairs = {word for f in pairs for word in f.hypothesis.words}
    kept = [f for f in kept if len(f.hypothesis.words) == 2 or f.hypothesis.words[0] not in in_pairs]
    return _without_special(_without_shown(_without_alike(kept, beside), beside))[:TESTED]


def told_apart(findings: Sequence[Finding], beside: Beside) -> list[Finding]:
    """Without properties that a thing shows which does a good deal more, where edits have left both."""
    things = [f for f in findings if is_thing(f)]
    return [f for f in findings if f in things or not any(_shows(thing, f, beside) for thing in things)]


def _without_shown(findings: Sequence[Finding], beside: Beside) -> list[Finding]:
    """Without things whose pictures show a property that does about as much."""

    def is_superfluous(thing: Finding) -> bool:
        return any(_shows(thing, f, beside) and thing.height <= DOES_MORE * f.height for f in findings)

    return [f for f in findings if not is_thing(f) or not is_superfluous(f)]


def _without_alike(findings: Sequence[Finding], beside: Beside) -> list[Finding]:
    """Without objects that look like another one which does a good deal more."""

    def is_mistaken(found: Finding) -> bool:
        seen = beside.get(found.hypothesis.name, frozenset())
        return any(f.hypothesis.name in seen and found.effect < ALIKE * f.effect for f in findings if is_object(f))

    return [f for f in findings if not is_object(f) or not is_mistaken(f)]


def _shows(thing: Finding, other: Finding, beside: Beside) -> bool:
    return not is_thing(other) and beside.get(thing.hypothesis.name, frozenset()).issuperset(other.hypothesis.words)


def is_thing(found: Finding) -> bool:
    """Something that is drawn with properties of its own, which nobody asked for."""
    return kind_of(found.hypothesis) in (Kind.OBJECT, Kind.SCENE)


def _without_special(findings: Sequence[Finding]) -> list[Finding]:
    """A general word makes its special cases superfluous where it explains about as much; otherwise they make it so."""
    # Not the height: that of a general word is the height of its best special case.
    named = {f.hypothesis.words[0]: f.effect for f in findings}
    superfluous: set[str] = set()
    for general, narrower in GENERAL.items():
        for special in narrower:
            if general in named and special in named:
                superfluous.add(special if named[general] >= 0.8 * named[special] else general)
    return [f for f in findings if f.hypothesis.words[0] not in superfluous]
