"""Selects the hypotheses that become the answer, according to the results of their tests.

Effect and height of a result are those of `judge.HypothesisResult`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from openmaia.offline.experimenter.judge import HypothesisResult, Measurements
from openmaia.offline.vocabulary.words import GENERAL, WordKind

# Smallest effect of the strongest hypothesis, as a share of the activations' range (`Reach.height`). If it is smaller,
# the unit probably responds to a concept that was not tested, and the experimenter abstains.
_SHARE = 0.33
# Largest number of hypotheses that are tested by edits of images.
_TESTED = 6
# Largest number of hypotheses in an answer.
MOST_LABELS = 3
# Share of its activation that an object must keep after at least one edit of its colour. Otherwise the activation is
# attributed to the colour.
RETAINED = 0.17
# Edits count only where the network recognised the object: where the activation before the edit is more than this share
# of the highest one among the images of the object whose colour is edited, both above the median of the screening.
RECOGNISED = 0.25
# Smallest height of a result in the answer, as a share of the greatest height of all significant results.
_KEPT, _KEPT_OBJECT = 0.5, 0.4
# The same for objects and scenes if the greatest height is that of an exact name: a unit that responds to one kind of
# animal also responds to similar ones, but less.
_KEPT_BESIDE_NAME = 0.9
# A general word takes the place of its exact names if the height of at least two of them, and the effect of the general
# word, are at least these shares of the greatest height and effect of its names. The second share is low because the
# images of a general word also show special cases that a network rarely recognises.
_SIMILAR_NAME, _GENERAL_BESIDE_NAMES = 0.65, 0.35
# Smallest effect of the strongest hypothesis, as a multiple of `Reach.usual`. Below it the experimenter abstains.
_ABOVE_USUAL = 1.25
# Smallest effect with which an exact name counts at all, in the same unit. The generator often has a single picture of
# it. Any one picture may excite a unit, and the largest response to one of fifty says little about others of the same
# thing.
_NAME_ABOVE_USUAL = 4.5
# An object or scene stays in the answer only if its height is more than this multiple of the height of every remaining
# hypothesis about a property that its images show.
_DOES_MORE = 1.25
# Below this share of the effect of another object that its images resemble, the effect of an object is attributed to
# the other.
_ALIKE = 0.6

ShownBeside = Mapping[str, frozenset[str]]
"""By object or scene: the properties that its images show, and the objects that they resemble (`Eyes.shown_beside`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """The range of a unit's activations, and their usual variation."""

    height: float
    """Highest activation of the investigation minus the median activation of the screening."""
    usual: float
    """Median absolute deviation of the activations in the screening, scaled to estimate a standard deviation."""


def reach(screened: Measurements, others: Sequence[float]) -> Reach:
    """Returns how high the unit was driven, of the screening and of `others`, and its usual deviation."""
    values = np.array([value for _, value in screened])
    height = max(float(values.max()), *others) if others else float(values.max())
    usual = float(stats.median_abs_deviation(values, scale="normal"))
    return Reach(height=height - float(np.median(values)), usual=usual)


def answer(results: Sequence[HypothesisResult], reach: Reach, beside: ShownBeside) -> list[HypothesisResult]:
    """Selects the hypotheses that may be part of the answer, by the results of their tests against controls.

    The selection may contain an object together with a property that images of the object show. Both are then tested by
    edits of images, if possible. Afterwards, `told_apart` removes the property.

    Returns:
        At most _TESTED results, strongest first; empty if the experimenter has to abstain.
    """
    holding = [r for r in results if r.holds and not _is_one_picture(r, reach)]
    least = max(_SHARE * reach.height, _ABOVE_USUAL * reach.usual)
    if not holding or max(r.effect for r in holding) < least:
        return []
    holding = sorted(_generalised(holding, results), key=lambda r: (-r.height, r.hypothesis.words))
    kept = [r for r in holding if r.height >= _smallest(r, holding[0])]
    in_pairs = {word for r in kept for word in r.hypothesis.words if len(r.hypothesis.words) == 2}
    kept = [r for r in kept if len(r.hypothesis.words) == 2 or r.hypothesis.words[0] not in in_pairs]
    return _without_special(_without_shown(_without_alike(kept, beside), beside))[:_TESTED]


def _is_one_picture(result: HypothesisResult, reach: Reach) -> bool:
    # Too weak for more than a response to single pictures.
    return result.hypothesis.is_exact and result.effect < _NAME_ABOVE_USUAL * reach.usual


def told_apart(results: Sequence[HypothesisResult], beside: ShownBeside) -> list[HypothesisResult]:
    """Removes a result for a property if images of an object or scene in `results` show it.

    This is safe because `answer` has removed objects and scenes that do not excite the unit clearly more than their
    properties.
    """
    things = [r for r in results if _is_thing(r)]
    return [r for r in results if r in things or not any(_shows(thing, r, beside) for thing in things)]


def _generalised(holding: Sequence[HypothesisResult], results: Sequence[HypothesisResult]) -> list[HypothesisResult]:
    # A general word takes the place even if its own test is not significant, because the tests of its names are.
    chosen = list(holding)
    for general in results:
        narrower = GENERAL.get(general.hypothesis.name, ())
        names = [r for r in holding if r.hypothesis.name in narrower and r.hypothesis.is_exact]
        highest = max((r.height for r in names), default=0.0)
        similar = [r for r in names if r.height >= _SIMILAR_NAME * highest]
        if len(similar) > 1 and general.effect >= _GENERAL_BESIDE_NAMES * max(r.effect for r in names):
            chosen = [r for r in chosen if r not in (*names, general)] + [general]
    return chosen


def _smallest(result: HypothesisResult, strongest: HypothesisResult) -> float:
    if _is_thing(result) and strongest.hypothesis.is_exact:
        return _KEPT_BESIDE_NAME * strongest.height
    return (_KEPT_OBJECT if result.is_object else _KEPT) * strongest.height


def _without_shown(results: Sequence[HypothesisResult], beside: ShownBeside) -> list[HypothesisResult]:
    def is_superfluous(thing: HypothesisResult) -> bool:
        return any(_shows(thing, r, beside) and thing.height <= _DOES_MORE * r.height for r in results)

    return [r for r in results if not _is_thing(r) or not is_superfluous(r)]


def _without_alike(results: Sequence[HypothesisResult], beside: ShownBeside) -> list[HypothesisResult]:
    def is_mistaken(result: HypothesisResult) -> bool:
        alike = beside.get(result.hypothesis.name, frozenset())
        return any(r.hypothesis.name in alike and result.effect < _ALIKE * r.effect for r in results if r.is_object)

    return [r for r in results if not r.is_object or not is_mistaken(r)]


def _shows(thing: HypothesisResult, other: HypothesisResult, beside: ShownBeside) -> bool:
    return not _is_thing(other) and beside.get(thing.hypothesis.name, frozenset()).issuperset(other.hypothesis.words)


def _is_thing(result: HypothesisResult) -> bool:
    # Their images show properties that no prompt names.
    return result.hypothesis.kind in (WordKind.OBJECT, WordKind.SCENE)


def _without_special(results: Sequence[HypothesisResult]) -> list[HypothesisResult]:
    # Effects and not heights, because the height of a general word is that of its best special case.
    named = {r.hypothesis.words[0]: r.effect for r in results}
    superfluous: set[str] = set()
    for general, narrower in GENERAL.items():
        for special in narrower:
            if general in named and special in named:
                superfluous.add(special if named[general] >= 0.8 * named[special] else general)
    return [r for r in results if r.hypothesis.words[0] not in superfluous]
