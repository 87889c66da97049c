"""What `system.effect` and `system.drives` answer: what a unit does to the classes of the network.

The change of class c is the mean over images of d(c) minus its mean over all classes (of the same head), where d(c) is the
difference that the intervention makes to log p(c). That is the difference of the logit of c, compared with the average class:
another class that gains probability because this one loses it does not appear.
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
from openmaia.core.services import Changeable, Effects, Intervention, UnitExemplars
from openmaia.core.tools import EFFECTS
from openmaia.core.units import Unit

if TYPE_CHECKING:
    from openmaia.agent.tools.toolbox import Toolbox

_SHOWN = 10
"""Classes in an answer."""

_LARGEST = 1e6
"""Of the absolute values that a unit may get."""


def answers() -> Mapping[str, Callable[..., Any]]:
    """Returns what answers the calls, by name. The first argument is the `Toolbox`."""
    return dict(zip(EFFECTS, (_effect, _drives), strict=True))


def checked_effects(effects: Effects, layers: Sequence[str]) -> Effects:
    """Returns the effects. Raises UsageError if the units of none of the layers can be changed."""
    if set(layers).isdisjoint(effects.layers):
        can = f"those of {', '.join(effects.layers)} can" if effects.layers else "the target has no such layer"
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
    """Returns d(c) minus its mean over the classes of the head (see above), shape (images, classes), for the intervention that
    `change` returns for each image. Raises ServiceError."""
    asked = [change(image) for image in images]
    found = np.stack(target.intervene([replace(each, scale=1.0, add=0.0) for each in asked] + asked))
    differences = np.split(found[len(images) :] - found[: len(images)], np.cumsum(effects.heads)[:-1], axis=1)
    return np.concatenate([each - each.mean(axis=1, keepdims=True) for each in differences], axis=1)


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
    return _named(toolbox, changes, np.argsort(-np.abs(changes), kind="stable"))


def _drives(toolbox: "Toolbox", layer: Any = None, index: Any = None) -> list[list[Any]]:
    """Raises ToolError if the unit may not be queried or changed, or has no exemplars."""
    unit = _unit(toolbox, layer, index)
    exemplars = toolbox.subjects.exemplars(unit)
    chosen = [each.image for kind in ("top", "random") for each in exemplars.of_kind(kind)]
    images = list({each.digest: each for each in chosen}.values())[: toolbox.context.options.images_per_call]
    if not images:
        raise ToolError("drives: no images of the dataset are stored for this unit; use system.effect(images)")
    rises = -_changes(toolbox, unit, images, 0.0, 0.0)
    order = np.argsort(-rises, kind="stable")
    return _named(toolbox, rises, order[rises[order] > 0])


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


def _named(toolbox: "Toolbox", values: npt.NDArray[np.float64], order: npt.NDArray[np.int64]) -> list[list[Any]]:
    classes = _effects(toolbox).classes
    return [[classes[at], float(f"{values[at]:.4g}")] for at in order[:_SHOWN].tolist()]


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
