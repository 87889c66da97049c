"""What `system.effect` and `system.drives` answer: what a unit does to the classes of the network.

The change of class c is the mean over images of the difference that the intervention makes to its logit. Where the classes (of a
head) exclude each other, it is compared with the mean over them: another class that gains probability because this one loses it
does not appear.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt

from openmaia.agent.tools.arguments import abbreviate
from openmaia.core.errors import ToolError, UsageError
from openmaia.core.images import EncodedImage
from openmaia.core.services import LOGITS, Changeable, Effects, Intervention, UnitExemplars
from openmaia.core.units import Unit

if TYPE_CHECKING:
    from openmaia.agent.context import InvestigationContext
    from openmaia.agent.tools.toolbox import Toolbox

NAMES = ("effect", "drives")
"""Methods of `system` that exist only with `task.effects`."""

_SHOWN = 10
"""Classes in an answer."""

_LARGEST = 1e6
"""Of the absolute values that a unit may get."""


def available(context: "InvestigationContext") -> Mapping[str, Callable[..., Any]]:
    """Returns what answers the calls, by name, where an investigation has effects. The first argument is the `Toolbox`."""
    if not context.options.has_effects(context.unit):
        return {}
    return dict(zip(NAMES, (_effect, _drives), strict=True))


def checked_effects(effects: Effects, layers: Sequence[str]) -> Effects:
    """Returns the effects. Raises UsageError if the units of none of the layers can be changed."""
    if set(layers).isdisjoint(effects.layers):
        can = (
            f"those of {', '.join(effects.layers)} can"
            if effects.layers
            else "no layer of the target can; if its outputs are classes, target.output=softmax or sigmoid says so"
        )
        raise UsageError(
            f"task.effects=true: units of {', '.join(layers)} cannot be changed, which takes a layer of a classifier below its "
            f"output and a module whose output is one tensor; {can}. Leave it out, or select other units"
        )
    return effects


def find_classes(text: str, classes: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Returns the classes that a text names, separated by semicolons, and what in it is no class, each once. Case does not
    matter. A part that is no class is divided at its commas, because some names have commas."""
    known = {name.casefold(): name for name in classes}

    def found(part: str) -> str | None:
        return known.get(part.strip().strip("\"'`.").casefold())

    parts = [part for part in text.split(";") if part.strip()]
    pieces = [piece for part in parts for piece in ([part] if found(part) else part.split(",")) if piece.strip()]
    named = [found(piece) for piece in pieces]
    unknown = [piece.strip() for piece, name in zip(pieces, named, strict=True) if name is None]
    return tuple(dict.fromkeys(filter(None, named))), tuple(dict.fromkeys(unknown))


def image_changes(
    target: Changeable, effects: Effects, images: Sequence[EncodedImage], change: Callable[[EncodedImage], Intervention]
) -> npt.NDArray[np.float64]:
    """Returns the change (see above) of each class on each image, shape (images, classes), by the intervention that `change`
    returns for it. Raises ServiceError."""
    asked = [replace(change(image), read=LOGITS) for image in images]
    found = np.stack(target.intervene([replace(each, scale=1.0, add=0.0) for each in asked] + asked))
    differences = found[len(images) :] - found[: len(images)]
    if not effects.exclude:
        return differences
    return np.concatenate([each - each.mean(axis=1, keepdims=True) for each in effects.by_head(differences)], axis=1)


def class_changes(
    target: Changeable, effects: Effects, unit: Unit, images: Sequence[EncodedImage], scale: float, add: float
) -> npt.NDArray[np.float64]:
    """Returns the change (see above) of each class by an intervention, shape (classes,), averaged over images, of which there
    must be some. Raises ToolError if they are not finite, and ServiceError."""
    change = partial(Intervention, unit=unit, scale=scale, add=add)
    mean = image_changes(target, effects, images, lambda image: change(image=image)).mean(axis=0)
    if not np.isfinite(mean).all():
        raise ToolError("the network's output is not finite for these images and this value")
    return mean


def _effect(
    toolbox: "Toolbox", images: Any, value: Any, added: Any, layer: Any = None, index: Any = None
) -> list[list[Any]]:
    """Raises ToolError if the unit may not be queried or changed, or a value is no number."""
    unit = _unit(toolbox, layer, index)
    if value is not None and added is not None:
        raise ToolError("effect: give either set or add")
    given = toolbox.check_images(images)
    if not given:
        raise ToolError("effect: an empty list; give at least one image")
    if added is not None:
        scale, add = 1.0, _number("add", added)
    else:
        scale, add = (
            0.0,
            _mean(toolbox.subjects.exemplars(unit))
            if value == "mean"
            else _number("set", 0.0 if value is None else value),
        )
    taken = [toolbox.take(image, "original") for image in given]
    changes = _changes(toolbox, unit, taken, scale, add)
    order: list[int] = np.argsort(-np.abs(changes), kind="stable")[:_SHOWN].tolist()
    return _named(toolbox, {at: float(changes[at]) for at in order})


def _drives(toolbox: "Toolbox", layer: Any = None, index: Any = None) -> list[list[Any]]:
    """Raises ToolError if the unit may not be queried or changed, or what it raises is unknown."""
    unit = _unit(toolbox, layer, index)
    drives = _effects(toolbox).drives.get(unit.layer)
    if drives is None:
        raise ToolError(f"drives: it is unknown what units of {unit.layer} raise; use system.effect(images)")
    rises = drives.rises[unit.index]
    if not np.isfinite(rises).all():
        raise ToolError("the network's output is not finite for some images of the dataset")
    if not rises.any():
        raise ToolError(
            f"drives: the unit changes no class on {drives.images} images of the dataset; use system.effect(images)"
        )
    values = dict(zip(drives.classes[unit.index].tolist(), rises.tolist(), strict=True))
    return _named(toolbox, {at: rise for at, rise in values.items() if rise > 0})


def _effects(toolbox: "Toolbox") -> Effects:
    effects = toolbox.context.options.effects
    assert effects is not None, "the toolbox has these tools only with effects"
    return effects


def _changes(
    toolbox: "Toolbox", unit: Unit, images: Sequence[EncodedImage], scale: float, add: float
) -> npt.NDArray[np.float64]:
    target = cast(Changeable, toolbox.context.services.target)
    return class_changes(target, _effects(toolbox), unit, images, scale, add)


def _unit(toolbox: "Toolbox", layer: Any, index: Any) -> Unit:
    unit, effects = toolbox.subjects.unit(layer, index), _effects(toolbox)
    if unit.layer not in effects.layers:
        raise ToolError(f"units of {unit.layer} cannot be changed; those of {', '.join(effects.layers)} can")
    return unit


def _named(toolbox: "Toolbox", values: Mapping[int, float]) -> list[list[Any]]:
    classes = _effects(toolbox).classes
    return [[classes[at], float(f"{value:.4g}")] for at, value in values.items()]


def _number(name: str, value: Any) -> float:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not is_number or not abs(value) <= _LARGEST:  # so that a NaN is refused, too
        raise ToolError(
            f"effect: {name}={abbreviate(value)}; expected a number"
            + (' or "mean"' if name == "set" else "")
            + f" of at most {_LARGEST:.0f}"
        )
    return float(value)


def _mean(exemplars: UnitExemplars) -> float:
    mean = exemplars.positions.mean if exemplars.positions else exemplars.mean
    if mean is None:
        raise ToolError("effect: the mean of this unit over the dataset is unknown; give set a number")
    return mean
