"""Finds images that a classifier gets wrong because of a supported bias.

missed       The classifier does not predict the class of the object, because the context lowers the score of the class,
             or because the context that raises it is missing.
false alarm  The classifier predicts the class without such an object, because the context raises its score.

Each failure rate is compared with that of the matched images, which differ only in the context.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from openmaia.core.services import LayerProbe
from openmaia.core.units import Unit
from openmaia.evaluation.analysis.statistics import proportion
from openmaia.recipes.bias.contexts import ClaimedContext, ContextWriter
from openmaia.recipes.bias.effects import BiasVerdict
from openmaia.recipes.bias.matched import MatchedPair, Matcher, PairSide

FailureKind = Literal["missed", "false alarm"]

_KEPT = 24
"""Misclassified images of a failure mode, the largest errors first."""
_SUM_TOLERANCE = 1e-2
"""Outputs whose sum differs from 1 by less than this count as a softmax over the classes."""
_THRESHOLD = 0.5
"""Probability at which a classifier with one independent (sigmoid) output per class predicts a class."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WrongImage:
    """An image that the classifier gets wrong."""

    side: PairSide
    predicted: str
    """The predicted class, or "no CLASS" of a classifier with independent outputs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureMode:
    """How frequent one kind of error is, and on which images it occurs."""

    context: ClaimedContext
    kind: FailureKind
    prone: Literal["with", "without"]
    """Whether images with or without the context are prone to the failure."""
    rate: list[float] | None
    """Share of wrong predictions on the prone images with Wilson's interval, [share, low, high]; None without pairs."""
    base: list[float] | None
    """The same for the other image of each pair."""
    n: int
    """Number of sound pairs."""
    wrong: tuple[WrongImage, ...]
    """Prone images, at most _KEPT, the largest errors first."""


def find_failures(
    verdict: BiasVerdict, writer: ContextWriter, matcher: Matcher, n: int, run_seed: int
) -> list[FailureMode]:
    """Searches n new pairs of images for errors of the kind `missed` and, if the context raises the score, n for `false
    alarm`.

    Raises:
        UnansweredQuestion: No usable prompts could be written.
    """
    context, name = verdict.effect.context, verdict.name
    raises = verdict.effect.score is not None and verdict.effect.score.mean > 0
    pairs = matcher.pairs(verdict.investigation.unit, name, writer.write(name, context, n, run_seed + 1))
    modes = [_mode(verdict, "missed", "without" if raises else "with", pairs, matcher)]
    if raises:
        prompts = writer.write(name, context, n, run_seed + 2, absent=True)
        pairs = matcher.pairs(verdict.investigation.unit, name, prompts)
        modes.append(_mode(verdict, "false alarm", "with", pairs, matcher))
    return modes


def _mode(
    verdict: BiasVerdict,
    kind: FailureKind,
    prone: Literal["with", "without"],
    pairs: Sequence[MatchedPair],
    matcher: Matcher,
) -> FailureMode:
    sound = [pair for pair in pairs if _is_sound(pair, kind)]
    sides = [pair.having if prone == "with" else pair.without for pair in sound]
    others = [pair.without if prone == "with" else pair.having for pair in sound]
    predicted, base = (_predictions(group, verdict.investigation.unit, matcher) for group in (sides, others))

    def is_wrong(name: str) -> bool:
        return (name != verdict.name) == (kind == "missed")

    wrong = [WrongImage(side=s, predicted=name) for s, name in zip(sides, predicted, strict=True) if is_wrong(name)]
    wrong.sort(key=lambda image: image.side.value if kind == "missed" else -image.side.value)
    return FailureMode(
        context=verdict.effect.context,
        kind=kind,
        prone=prone,
        rate=proportion([is_wrong(name) for name in predicted]),
        base=proportion([is_wrong(name) for name in base]),
        n=len(sound),
        wrong=tuple(wrong[:_KEPT]),
    )


def _is_sound(pair: MatchedPair, kind: FailureKind) -> bool:
    # The absence of the class in false alarms is not checked.
    return pair.is_sound if kind == "missed" else not (pair.having.missing_terms or pair.without.missing_terms)


def _predictions(sides: Sequence[PairSide], unit: Unit, matcher: Matcher) -> list[str]:
    """Returns the predicted class of each image: the most probable one of a softmax, otherwise the class of the unit or
    "no CLASS".
    """
    outputs = matcher.target.respond([LayerProbe(layer=unit.layer, image=side.image) for side in sides])
    names = matcher.target.info().classes
    predicted: list[str] = []
    for scores in outputs:
        if abs(float(scores.sum()) - 1) < _SUM_TOLERANCE:
            predicted.append(names[int(np.argmax(scores))])
        else:
            predicted.append(names[unit.index] if scores[unit.index] >= _THRESHOLD else f"no {names[unit.index]}")
    return predicted
