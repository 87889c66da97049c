"""Selects the hypotheses that become the answer of the scripted experimenter, according to the results of their tests.

Each result has an effect and a height (see `judge.HypothesisResult`). The effect is the mean activation of the images
of the hypothesis minus that of its controls. The height is the same, except for an object: there, only the upper third
of the activations of its images counts. The screening is the experiment with images of all vocabulary words that
precedes the tests.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from openmaia.offline.experimenter.judge import HypothesisResult, Measurements
from openmaia.offline.vocabulary.words import GENERAL, WordKind

SHARE = 0.33
"""Smallest effect of the strongest hypothesis, as a share of the activations' range (`Reach.height`). If it is smaller,
the unit probably responds to a concept that was not tested, and the experimenter abstains."""
TESTED = 6
"""Largest number of hypotheses that are tested by edits of images."""
MOST = 3
"""Largest number of hypotheses in an answer."""
RETAINED = 0.17
"""Share of its activation that an object must keep after at least one edit that changes its colour. Otherwise the
activation is attributed to the colour of the object."""
RECOGNISED = 0.25
"""The network counts as recognising an object in an image if the activation before the edit is more than this share of
the highest one among the images of the object whose colour is edited. The median activation of the screening is first
subtracted from both. Only edits of images with a recognised object are evaluated."""
KEPT, KEPT_OBJECT = 0.5, 0.4
"""Smallest height (see `judge.HypothesisResult`) of a result in the answer, as a share of the greatest height of all
significant results. The second value is for results about objects."""
KEPT_BESIDE_NAME = 0.9
"""Like KEPT, for objects and scenes if the greatest height is that of an exact name. A unit that responds to one kind of
animal also responds to similar ones, but less."""
SIMILAR_NAME, GENERAL_BESIDE_NAMES = 0.65, 0.35
"""A general word takes the place of its exact names if the height of at least two of them, and the effect of the general
word, are at least these shares of the greatest height and effect of its names. The second share is low because the images
of a general word also show special cases that a network rarely recognises."""
ABOVE_USUAL = 1.25
"""Smallest effect of the strongest hypothesis, as a multiple of the activations' usual variation (`Reach.usual`). Below
it the experimenter abstains."""
NAME_ABOVE_USUAL = 4.5
"""Smallest effect with which an exact name counts at all, in the same unit. The generator often has a single picture of it.
Any one picture may excite a unit, and the largest response to one of fifty says little about others of the same thing."""
DOES_MORE = 1.25
"""An object or scene stays in the answer only if its height (see `judge.HypothesisResult`) is more than this multiple
of the height of every remaining hypothesis about a property (colour, pattern, shape) that its images show."""
ALIKE = 0.6
"""An object is left out of the answer if its effect is less than this share of the effect of another object that its
images resemble. Its effect is then attributed to the other object."""

ShownBeside = Mapping[str, frozenset[str]]
"""By object or scene: the properties that its images show, and the objects that they resemble (`Eyes.shown_beside`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """The range of a unit's activations, and their usual variation (scaled median absolute deviation)."""

    height: float
    """Highest activation of the investigation minus the median activation of the screening, its first experiment."""
    usual: float
    """Median absolute deviation of the activations in the screening, scaled to estimate a standard deviation."""


def reach(screened: Measurements, others: Sequence[float]) -> Reach:
    """Computes the range of a unit's activations, and their usual variation (scaled median absolute deviation).

    Args:
        screened: The (prompt, activation) pairs of the screening (the first experiment).
        others: All other activations that were measured or shown.
    """
    values = np.array([value for _, value in screened])
    height = max(float(values.max()), *others) if others else float(values.max())
    usual = float(stats.median_abs_deviation(values, scale="normal"))
    return Reach(height=height - float(np.median(values)), usual=usual)


def answer(results: Sequence[HypothesisResult], reach: Reach, beside: ShownBeside) -> list[HypothesisResult]:
    """Selects the hypotheses that may be part of the answer, by the results of their tests against controls.

    The selection may contain an object together with a property, such as a colour, that images of the object show. Both
    are then tested by edits of images, if possible. Afterwards, `told_apart` removes the property.

    Args:
        results: The results of the tests of all hypotheses against controls.
        reach: The range and usual variation of the unit's activations, with which effects are compared.
        beside: By object or scene: the properties that its images show, and the objects that they resemble.

    Returns:
        At most six results (TESTED), strongest first. The list is empty if the experimenter has to abstain.
    """
    holding = [r for r in results if r.holds and not _is_one_picture(r, reach)]
    least = max(SHARE * reach.height, ABOVE_USUAL * reach.usual)
    if not holding or max(r.effect for r in holding) < least:
        return []
    holding = sorted(_generalised(holding, results), key=lambda r: (-r.height, r.hypothesis.words))
    kept = [r for r in holding if r.height >= _smallest(r, holding[0])]
    in_pairs = {word for r in kept for word in r.hypothesis.words if len(r.hypothesis.words) == 2}
    kept = [r for r in kept if len(r.hypothesis.words) == 2 or r.hypothesis.words[0] not in in_pairs]
    return _without_special(_without_shown(_without_alike(kept, beside), beside))[:TESTED]


def _is_one_picture(result: HypothesisResult, reach: Reach) -> bool:
    """Returns whether a result is for an exact name, and too weak for more than a response to single pictures."""
    return result.hypothesis.is_exact and result.effect < NAME_ABOVE_USUAL * reach.usual


def told_apart(results: Sequence[HypothesisResult], beside: ShownBeside) -> list[HypothesisResult]:
    """Removes a result for a property (colour, pattern, shape) if images of an object or scene in `results` show it.

    The activation is then attributed to the object or scene. This is safe because `answer` has removed objects and
    scenes that do not excite the unit clearly more than their properties.

    Args:
        results: The results that `answer` selected, without those that edits of images refuted.
        beside: By object or scene: the properties that its images show, and the objects that they resemble.
    """
    things = [r for r in results if _is_thing(r)]
    return [r for r in results if r in things or not any(_shows(thing, r, beside) for thing in things)]


def _generalised(holding: Sequence[HypothesisResult], results: Sequence[HypothesisResult]) -> list[HypothesisResult]:
    """Puts general words in the place of their exact names where the evidence is for more than one name.

    A general word takes the place even if its own test is not significant, because the tests of its names are.

    Args:
        holding: The significant results.
        results: All results.
    """
    chosen = list(holding)
    for general in results:
        narrower = GENERAL.get(general.hypothesis.name, ())
        names = [r for r in holding if r.hypothesis.name in narrower and r.hypothesis.is_exact]
        highest = max((r.height for r in names), default=0.0)
        similar = [r for r in names if r.height >= SIMILAR_NAME * highest]
        if len(similar) > 1 and general.effect >= GENERAL_BESIDE_NAMES * max(r.effect for r in names):
            chosen = [r for r in chosen if r not in (*names, general)] + [general]
    return chosen


def _smallest(result: HypothesisResult, strongest: HypothesisResult) -> float:
    """Returns the smallest height with which a result stays in the answer beside the strongest one."""
    if _is_thing(result) and strongest.hypothesis.is_exact:
        return KEPT_BESIDE_NAME * strongest.height
    return (KEPT_OBJECT if result.is_object else KEPT) * strongest.height


def _without_shown(results: Sequence[HypothesisResult], beside: ShownBeside) -> list[HypothesisResult]:
    """Removes objects and scenes whose height is not clearly greater than that of a property that their images show."""

    def is_superfluous(thing: HypothesisResult) -> bool:
        return any(_shows(thing, r, beside) and thing.height <= DOES_MORE * r.height for r in results)

    return [r for r in results if not _is_thing(r) or not is_superfluous(r)]


def _without_alike(results: Sequence[HypothesisResult], beside: ShownBeside) -> list[HypothesisResult]:
    """Removes objects that resemble another object with a much greater effect."""

    def is_mistaken(result: HypothesisResult) -> bool:
        alike = beside.get(result.hypothesis.name, frozenset())
        return any(r.hypothesis.name in alike and result.effect < ALIKE * r.effect for r in results if r.is_object)

    return [r for r in results if not r.is_object or not is_mistaken(r)]


def _shows(thing: HypothesisResult, other: HypothesisResult, beside: ShownBeside) -> bool:
    return not _is_thing(other) and beside.get(thing.hypothesis.name, frozenset()).issuperset(other.hypothesis.words)


def _is_thing(result: HypothesisResult) -> bool:
    """Returns whether a result is for an object or scene. Their images show properties that no prompt names."""
    return result.hypothesis.kind in (WordKind.OBJECT, WordKind.SCENE)


def _without_special(results: Sequence[HypothesisResult]) -> list[HypothesisResult]:
    """Removes one of a general word and its special case if there are results for both.

    It removes the special case if the effect of the general word is at least 0.8 times as large, or else the general
    word.
    """
    # Effects and not heights, because the height of a general word is that of its best special case.
    named = {r.hypothesis.words[0]: r.effect for r in results}
    superfluous: set[str] = set()
    for general, narrower in GENERAL.items():
        for special in narrower:
            if general in named and special in named:
                superfluous.add(special if named[general] >= 0.8 * named[special] else general)
    return [r for r in results if r.hypothesis.words[0] not in superfluous]
