"""Finds the units that matter for what a network makes of a picture."""

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches

import numpy as np
import numpy.typing as npt

from openmaia.agent.tools.effects import find_classes, image_changes
from openmaia.analysis.responding import PictureResponse
from openmaia.core.errors import ServiceError, UsageError
from openmaia.core.images import EncodedImage
from openmaia.core.services import Changeable, Effects, Intervention, Target, find_effects
from openmaia.core.text import first_line

_MOST = 64
"""Units that are ablated on a picture: the most active ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PictureEffect:
    """What a unit does for the predicted class of a picture."""

    response: PictureResponse
    effect: float
    """The fall of the class's logit, compared with the average class of its head, if the unit is ablated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictionReasons:
    """A class of a picture, and the units that matter for it."""

    predicted: str
    """The class: the most likely one, unless another was asked about."""
    probability: float
    """Among the classes of its head, where these exclude each other."""
    ablated: int
    """Number of units that were ablated, the most active ones."""
    unchangeable: tuple[str, ...]
    """Layers of the run whose units cannot be ablated."""
    units: tuple[PictureEffect, ...]
    """Those whose ablation lowers the class, the largest effect first."""


def find_reasons(
    target: Target, image: EncodedImage, active: Sequence[PictureResponse], wanted: str = ""
) -> PredictionReasons:
    """Ablates the most active units on a picture.

    Args:
        target: The network.
        image: The picture.
        active: What `responding.rank_units` returns: the most active units first.
        wanted: The name of a class that is asked about. Empty: the most likely one.

    Raises:
        UsageError: The target is no classifier whose units can be changed, none of these units can be, or it has no such
            class.
        ServiceError: The network fails.
    """
    effects = find_effects(target)
    changeable = [each for each in active if each.unit.layer in effects.layers][:_MOST]
    if not isinstance(target, Changeable) or not changeable:
        asked = ", ".join(dict.fromkeys(each.unit.layer for each in active)) or "no layer"
        raise UsageError(
            f"why a class is predicted is found by ablating units, which takes a classifier and units below its output; the "
            f"run has units of {asked} of {target.info().name}"
        )
    (unchanged,) = target.intervene([Intervention(unit=changeable[0].unit, image=image, scale=1.0)])
    probabilities = class_probabilities(effects, unchanged[None])[0]
    predicted = _class(wanted, effects.classes) if wanted else int(np.argmax(probabilities))
    units = iter([each.unit for each in changeable])
    changes = image_changes(
        target, effects, [image] * len(changeable), lambda image: Intervention(unit=next(units), image=image)
    )[:, predicted]
    if not (np.isfinite(probabilities).all() and np.isfinite(changes).all()):
        raise ServiceError("the network's output is not finite for this picture")
    found = [
        PictureEffect(response=each, effect=-float(change)) for each, change in zip(changeable, changes, strict=True)
    ]
    return PredictionReasons(
        predicted=effects.classes[predicted],
        probability=float(probabilities[predicted]),
        ablated=len(changeable),
        unchangeable=tuple(dict.fromkeys(each.unit.layer for each in active if each.unit.layer not in effects.layers)),
        units=tuple(sorted((each for each in found if each.effect > 0), key=lambda each: -each.effect)),
    )


def class_probabilities(effects: Effects, outputs: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Returns the probabilities of the classes, for what `Changeable.intervene` returns, both of shape (rows, classes): where
    classes exclude each other, among those of their head."""
    found = np.exp(outputs)
    if not effects.exclude:
        return found
    return np.concatenate([each / each.sum(axis=1, keepdims=True) for each in effects.by_head(found)], axis=1)


def _class(wanted: str, classes: Sequence[str]) -> int:
    named, _ = find_classes(wanted, classes)
    if len(named) != 1:
        nearest = ", ".join(get_close_matches(wanted, classes, 3, 0.0))
        raise UsageError(f"{first_line(wanted, 80)!r} is no class of the network; near that name: {nearest}")
    return list(classes).index(named[0])
