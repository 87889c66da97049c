"""Where the units and where the positions are in what a layer puts out, and how it is laid out in space."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from openmaia.errors import UsageError

Response = npt.NDArray[np.float32]
"""What a layer says to one picture: (units, h, w), or (units,) for a layer without space."""

Shape = tuple[int, ...]

PREFIXES = (1, 0, 2, 5, 9)
"""Numbers of leading tokens (class, registers) that networks have, the usual ones first."""

MOST_PREFIX = 16


class Kind(Enum):
    """What the axes of an output are, after the one of the batch."""

    VECTOR = "units"
    MAP = "units, rows, columns"
    MAP_LAST = "rows, columns, units"
    TOKENS = "positions, units"
    TOKENS_LAST = "units, positions"


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """prefix: how many tokens lead before those of the patches; None where only the number of tokens can tell."""

    kind: Kind
    prefix: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """A layer's output shapes for one picture, without the axis of the batch.

    size: (height, width) of the input. usual: the shape there; taller, wider: the shapes at twice the height and at
    twice the width, None where the network takes no such input.
    """

    layer: str
    module: nn.Module
    size: tuple[int, int]
    usual: Shape
    taller: Shape | None = None
    wider: Shape | None = None


def first_tensor(output: Any, pictures: int, layer: str) -> torch.Tensor:
    """A layer's output, or the first tensor of a compound one: (pictures, …) with one to three more axes.

    Raises UsageError for what holds no units.
    """
    if isinstance(output, (tuple, list, Mapping)):
        parts = cast(Iterable[Any], output.values() if isinstance(output, Mapping) else output)
        output = next((part for part in parts if isinstance(part, torch.Tensor)), None)
    if (
        isinstance(output, torch.Tensor)
        and output.ndim in (2, 3, 4)
        and output.shape[0] == pictures
        and output.is_floating_point()
    ):
        return output
    shape = tuple(output.shape) if isinstance(output, torch.Tensor) else type(output).__name__
    raise UsageError(
        f"layer {layer!r} has no units: its output is {shape}; expected a map ({pictures}, C, h, w), tokens "
        f"({pictures}, T, C) or a vector ({pictures}, C)"
    )


def layout(seen: Evidence) -> Layout:
    """Which axes are positions is read from which axes grow with the input.

    The output's shape is compared with those for an input twice as high and one twice as wide: rows grow with the
    height and columns with the width, tokens with both, units with neither. An axis that grows otherwise (the two
    token axes of attention weights) is none of these, and the layer is refused. Where the network takes inputs of one
    size only, or the layer pools to a fixed grid, the shape alone decides: rows and columns have the proportions of
    the input, and where both readings fit, a convolution or a linear layer says which axis its units are on.
    """
    if len(seen.usual) == 1:
        return Layout(kind=Kind.VECTOR)
    grown = _grown(seen)
    if grown is None or not any(grown):
        return _by_shape(seen, fixed=grown is not None)
    kinds: dict[tuple[Shape, Shape], Kind] = {
        ((1,), (2,)): Kind.MAP,
        ((0,), (1,)): Kind.MAP_LAST,
        ((0,), (0,)): Kind.TOKENS,
        ((1,), (1,)): Kind.TOKENS_LAST,
    }
    kind = kinds.get(grown)
    if kind is None or (len(seen.usual) == 3) != (kind in (Kind.MAP, Kind.MAP_LAST)):
        raise _unclear(seen, "no axes of it follow the rows and the columns of the input as those of a map do")
    if kind in (Kind.TOKENS, Kind.TOKENS_LAST):
        return Layout(kind=kind, prefix=_prefix(seen, 0 if kind is Kind.TOKENS else 1))
    return Layout(kind=kind)


def spatial(values: torch.Tensor, layout: Layout, size: tuple[int, int], layer: str) -> Response:
    """A layer's output for one picture, (…) without the axis of the batch -> (units, h, w) or (units,).

    size: (height, width) of the input, by which tokens are laid out; it need not be square. Raises UsageError for
    tokens that do not tile it.
    """
    values = values.detach().float().cpu()
    match layout.kind:
        case Kind.VECTOR:
            values = values.reshape(-1)
        case Kind.MAP:
            pass
        case Kind.MAP_LAST:
            values = values.permute(2, 0, 1)
        case Kind.TOKENS | Kind.TOKENS_LAST:
            tokens = values if layout.kind is Kind.TOKENS else values.T
            prefix, height, width = _grid(tokens.shape[0], layout.prefix, size, layer)
            values = tokens[prefix:].T.reshape(-1, height, width)
    return np.array(values.numpy(), order="C")


def _grown(seen: Evidence) -> tuple[Shape, Shape] | None:
    """The axes that grow with the height and those that grow with the width; None without evidence."""
    if seen.taller is None or seen.wider is None:
        return None
    if not len(seen.usual) == len(seen.taller) == len(seen.wider):
        return None
    axes = range(len(seen.usual))
    taller = tuple(axis for axis in axes if seen.taller[axis] != seen.usual[axis])
    wider = tuple(axis for axis in axes if seen.wider[axis] != seen.usual[axis])
    return taller, wider


def _by_shape(seen: Evidence, fixed: bool) -> Layout:
    """fixed: the network takes other sizes, but this output keeps its shape: what it says is not laid out in patches."""
    if sum(length > 1 for length in seen.usual) <= 1:
        return Layout(kind=Kind.VECTOR)
    if len(seen.usual) == 3:
        return Layout(kind=_map_by_shape(seen, fixed))
    if fixed:
        raise _unclear(seen, "it has several positions, and they do not follow those of the input")
    # Widths are often squares too, so that tokens on the last axis are believed only where they grow with the input.
    _grid(seen.usual[0], None, seen.size, seen.layer)
    return Layout(kind=Kind.TOKENS)


def _map_by_shape(seen: Evidence, fixed: bool) -> Kind:
    first = _proportioned(seen.usual[1], seen.usual[2], seen.size, fixed)
    last = _proportioned(seen.usual[0], seen.usual[1], seen.size, fixed)
    if first != last:
        return Kind.MAP if first else Kind.MAP_LAST
    if first and isinstance(seen.module, (nn.Conv2d, nn.BatchNorm2d)):
        return Kind.MAP
    # Exactly these types: libraries derive normalisations of the other axis from nn.LayerNorm.
    if first and type(seen.module) in (nn.Linear, nn.LayerNorm):
        return Kind.MAP_LAST
    raise _unclear(seen, "which of its axes are rows and columns cannot be told from the shape")


def _proportioned(rows: int, columns: int, size: tuple[int, int], fixed: bool) -> bool:
    height, width = size
    if rows > height or columns > width:
        return False
    if height == width or (fixed and rows == columns):
        return rows == columns
    # Each side may be rounded down or up by the strides.
    return abs(rows * width - columns * height) <= max(size)


def _prefix(seen: Evidence, axis: int) -> int | None:
    """Patches double with the input, leading tokens stay: so many of them there are. None where the patches do not
    fill the input, and so do not double."""
    assert seen.taller is not None
    assert seen.wider is not None
    here = seen.usual[axis]
    found = {2 * here - seen.taller[axis], 2 * here - seen.wider[axis]}
    if len(found) == 1 and 0 <= (prefix := found.pop()) <= MOST_PREFIX and _tiling(here, (prefix,), seen.size):
        return prefix
    return None


def _grid(tokens: int, prefix: int | None, size: tuple[int, int], layer: str) -> tuple[int, int, int]:
    """(leading tokens, rows, columns) of square patches that tile the input."""
    found = _tiling(tokens, PREFIXES if prefix is None else (prefix,), size)
    if found is None:
        raise UsageError(
            f"layer {layer!r}: {tokens} tokens do not tile an input of {size[0]} x {size[1]} in square patches"
        )
    return found


def _tiling(tokens: int, prefixes: Iterable[int], size: tuple[int, int]) -> tuple[int, int, int] | None:
    grids = [(size[0] // patch, size[1] // patch) for patch in range(1, min(size) + 1)]
    whole = [grid for grid in grids if size[0] * grid[1] == size[1] * grid[0] and size[0] % grid[0] == 0]
    # An input that the patches do not fill loses a strip at its end, as in a convolution without padding.
    for candidates in (whole, grids):
        for prefix in prefixes:
            for height, width in candidates:
                if height * width == tokens - prefix:
                    return prefix, height, width
    return None


def _unclear(seen: Evidence, why: str) -> UsageError:
    return UsageError(
        f"layer {seen.layer!r} cannot be read as units at positions: its output is {seen.usual} for one picture of "
        f"{seen.size[0]} x {seen.size[1]}, and {why}; name another layer, such as the module behind it"
    )
