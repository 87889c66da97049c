"""Finds the tensor that holds the units in what a module returns, and the axis of the images in it."""

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any, cast

import torch
from torch import nn

from openmaia.core.errors import UsageError
from openmaia.core.units import OUTPUT

# Names of the entry that is the result proper, the most certain first.
MAIN = (
    *("logits", "out", "output", "outputs", "last_hidden_state", "prediction", "predictions", "pred", "preds"),
    *("probabilities", "probs", "scores", "class_logits", "y_hat"),
)

# Parts of the names of entries that never are.
AUXILIARY = ("aux", "loss", "attention", "attn", "hidden", "past", "feature")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """Which tensor of a module's output holds the units, and which of its axes is that of the images."""

    name: str = ""
    """Name of an entry of a compound output, with nested names joined by dots. Empty for an output that is a tensor."""
    axis: int = 0
    """The axis of the images."""
    ndim: int = 0
    """Number of axes for several images; 0 if unknown. Networks that squeeze their output give fewer for one image."""


def find_entry(layer: str, one: Any, two: Any, asked: str = "") -> Entry:
    """Finds the tensor that holds the units, from what a module returns for one image and for two.

    In a compound output (a tuple, a mapping or an object), entries are compared by name and shape. The axis of the
    images is the one that grows from 1 to 2 as a second image is added.

    Args:
        layer: OUTPUT for the network itself.
        two: None if the network takes only one at a time; the first axis is then assumed to be that of the images.
        asked: The entry that the user chose (`target.entries`). Empty if there is no choice.

    Raises:
        UsageError: There is no such tensor, several entries may be meant, or no axis is that of the images.
    """
    own, tensors = parts(one), parts(one if two is None else two)
    if asked and asked not in tensors:
        raise UsageError(
            f"target.entries={{{layer}: {asked}}}: its output has no such entry; it has {_listed(tensors) or 'no names'}"
        )
    both = {name: (own[name], None if two is None else each) for name, each in tensors.items() if name in own}
    axes = {name: axis for name, (alone, each) in both.items() if (axis := _axis_of_images(alone, each)) is not None}
    if not axes or (asked and asked not in axes):
        shown = both.get(asked or next(iter(both), ""), (one, None))
        raise _without_units(layer, *shown)
    name = asked or _chosen(layer, {name: tensors[name] for name in axes})
    return Entry(name=name, axis=axes[name], ndim=0 if two is None else tensors[name].ndim)


def take(output: Any, entry: Entry, images: int, layer: str) -> torch.Tensor:
    """Returns the tensor that holds the units, shape (images, …). Raises UsageError if there is none."""
    tensor = parts(output).get(entry.name)
    if tensor is None or not tensor.is_floating_point():
        raise _without_units(layer, output if tensor is None else tensor)
    if images == 1 and tensor.ndim < max(entry.ndim, 1):
        tensor = tensor.unsqueeze(0)
    tensor = tensor.movedim(entry.axis, 0) if entry.axis < tensor.ndim else tensor
    if tensor.shape[0] == 1:  # for several images only if it does not depend on them (see find_entry)
        tensor = tensor.expand(images, *tensor.shape[1:])
    if tensor.shape[0] != images:
        raise _without_units(layer, tensor)
    return tensor[:, None] if tensor.ndim == 1 else tensor


def parts(output: Any, name: str = "") -> dict[str, torch.Tensor]:
    """Returns all tensors in a module's output by their names; a tensor alone has the name ""."""
    if isinstance(output, torch.Tensor):
        dense = output.dequantize() if output.is_quantized else output
        return {name: dense.to_dense() if dense.layout is not torch.strided else dense}
    fields: Iterable[tuple[Any, Any]] = ()
    if isinstance(output, Mapping):
        fields = cast(Mapping[Any, Any], output).items()
    elif isinstance(output, (tuple, list)):
        values = cast("tuple[Any, ...]", output)
        fields = zip(getattr(values, "_fields", range(len(values))), values, strict=True)
    elif not isinstance(output, (nn.Module, type)):
        fields = (
            [(each.name, getattr(output, each.name)) for each in dataclasses.fields(output)]
            if dataclasses.is_dataclass(output)
            else getattr(output, "__dict__", {}).items()
        )
    found: dict[str, torch.Tensor] = {}
    for key, value in fields:
        found |= parts(value, f"{name}.{key}" if name else str(key))
    return found


def _chosen(layer: str, fit: Mapping[str, torch.Tensor]) -> str:
    ends = {name.rpartition(".")[2]: name for name in reversed(list(fit))}
    main = [ends[name] for name in MAIN if name in ends]
    others = [name for name in fit if not any(word in name.lower() for word in AUXILIARY)]
    if len(fit) == 1 or main or len(others) == 1:
        return next(iter([*main, *others, *fit]))
    # Modules inside of networks return tuples of the result and of by-products, as attention does.
    if layer != OUTPUT and all(name.partition(".")[0].isdigit() for name in fit):
        return next(iter(fit))
    raise UsageError(
        f"layer {layer!r} has several outputs that may be meant: {_listed(fit)}; name one of them "
        f"with target.entries={{{layer}: {next(iter(fit))}}}"
    )


def _axis_of_images(one: torch.Tensor, two: torch.Tensor | None) -> int | None:
    """None: there is none."""
    if not one.is_floating_point():
        return None
    if two is None:
        return 0 if one.ndim in (2, 3, 4) and one.shape[0] == 1 else None
    if two.ndim not in (1, 2, 3, 4):
        return None
    grown = [axis for axis in range(two.ndim) if two.shape[axis] == 2 and _without(two, axis, one)]
    if grown:
        return grown[0]
    is_squeezed = tuple(two.shape) == (2, *one.shape)
    # What does not depend on the images, such as embeddings of positions, has no axis that grows.
    is_constant = two.shape == one.shape and one.ndim > 1 and one.shape[0] == 1
    return 0 if is_squeezed or is_constant else None


def _without(tensor: torch.Tensor, axis: int, alone: torch.Tensor) -> bool:
    """Whether two shapes are equal except on an axis, which has length 1 in that for one image."""
    shape = list(tensor.shape)
    shape[axis] = 1
    return tuple(shape) == tuple(alone.shape)


def _listed(tensors: Mapping[str, torch.Tensor]) -> str:
    return ", ".join(f"{name or 'the tensor itself'} {tuple(each.shape)}" for name, each in tensors.items())


def _without_units(layer: str, found: Any, two: torch.Tensor | None = None) -> UsageError:
    shape = tuple(found.shape) if isinstance(found, torch.Tensor) else type(found).__name__
    kind = f" of {found.dtype}" if isinstance(found, torch.Tensor) and not found.is_floating_point() else ""
    more = (
        "" if two is None else f" for one image and {tuple(two.shape)} for two, and no axis of it is that of the images"
    )
    return UsageError(
        f"layer {layer!r} has no units: its output is {shape}{kind}{more}; expected a map (images, C, h, w), tokens "
        "(images, T, C) or (T, images, C), or a vector (images, C)"
    )
