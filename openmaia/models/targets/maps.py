"""Determines which axes of a layer's output are units and which are positions, and arranges the positions in space."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Literal

import torch
from torch import nn

from openmaia.core.errors import UsageError

OutputShape = tuple[int, ...]
"""For one image, without the axis of the images."""

# Numbers of leading tokens (class token and registers) in common networks, the most common first.
PREFIXES = (1, 0, 2, 5, 9)

MAX_PREFIX = 16  # leading tokens


class AxisOrder(Enum):
    """The axes of a layer's output, without that of the images."""

    VECTOR = "units"
    MAP = "units, rows, columns"
    MAP_LAST = "rows, columns, units"
    TOKENS = "positions, units"
    TOKENS_LAST = "units, positions"


UNIT_AXES = {AxisOrder.MAP: 1, AxisOrder.MAP_LAST: 3, AxisOrder.TOKENS: 2, AxisOrder.TOKENS_LAST: 1}
"""The axis of the units in the output for a batch. VECTOR has none: at most one axis of its output, apart from the
images', is longer than 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputLayout:
    """How to read a layer's output. `infer_layout` infers it once, `arrange` uses it for every output."""

    kind: AxisOrder
    prefix: int | None = None
    """Tokens before those of patches (class token and registers). None: to be derived from the number of all."""
    suffix: int = 0
    """Number of tokens behind those of patches."""
    placed: bool = True
    """Whether it is known where in the image the positions are. Otherwise the layer has no maps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShapeEvidence:
    """The shapes of a layer's output for inputs of different sizes."""

    layer: str
    module: nn.Module
    size: tuple[int, int]
    """Height and width of the network's own input."""
    usual: OutputShape
    """For an input of this size."""
    taller: OutputShape | None = None
    """For twice the height. None if the network refuses it."""
    wider: OutputShape | None = None
    """For twice the width. None if the network refuses it."""


def infer_layout(evidence: ShapeEvidence) -> OutputLayout:
    """Infers which axes of a layer's output are units and which are positions from how they grow with the input.

    Rows grow with the height, columns with the width, tokens with both, and units with neither. A layer whose axes grow
    otherwise, such as attention weights with two token axes, is refused.

    If the network accepts only one input size, or the layer pools to a fixed grid, the shape alone decides: rows and
    columns must have the proportions of the input. If two orders of the axes are possible, the type of the module
    (convolution or linear layer) decides.

    Raises:
        UsageError: The output cannot be read as units at positions.
    """
    if len(evidence.usual) == 1:
        return OutputLayout(kind=AxisOrder.VECTOR)
    growing = _growing_axes(evidence)
    if growing is None or not any(growing):
        return _layout_by_shape(evidence, fixed=growing is not None)
    kinds: dict[tuple[OutputShape, OutputShape], AxisOrder] = {
        ((1,), (2,)): AxisOrder.MAP,
        ((0,), (1,)): AxisOrder.MAP_LAST,
        ((0,), (0,)): AxisOrder.TOKENS,
        ((1,), (1,)): AxisOrder.TOKENS_LAST,
    }
    kind = kinds.get(growing)
    if kind is None or (len(evidence.usual) == 3) != (kind in (AxisOrder.MAP, AxisOrder.MAP_LAST)):
        raise _unclear(evidence, "no axes of it follow the rows and columns of the input as those of a map do")
    if kind in (AxisOrder.TOKENS, AxisOrder.TOKENS_LAST):
        return OutputLayout(kind=kind, prefix=_prefix(evidence, 0 if kind is AxisOrder.TOKENS else 1))
    return OutputLayout(kind=kind)


def arrange(values: torch.Tensor, layout: OutputLayout, size: tuple[int, int], layer: str) -> torch.Tensor:
    """Arranges a layer's output for images of one size: units first, then rows and columns. A view where possible.

    Args:
        values: Shape (images, …), on any device.
        size: Height and width of the input, from which the grid of tokens is derived. It need not be square.
        layer: For messages.

    Returns:
        Shape (images, units, h, w); (images, units) for a layer without positions; (images, units, positions) if it is
            not
        known where the positions are.

    Raises:
        UsageError: The tokens do not tile the input.
    """
    if not layout.placed:
        return values.movedim(UNIT_AXES[layout.kind], 1).flatten(2)
    match layout.kind:
        case AxisOrder.VECTOR:
            return values.flatten(1)
        case AxisOrder.MAP:
            return values
        case AxisOrder.MAP_LAST:
            return values.permute(0, 3, 1, 2)
        case AxisOrder.TOKENS | AxisOrder.TOKENS_LAST:
            tokens = values if layout.kind is AxisOrder.TOKENS else values.mT
            prefix, height, width = grid(tokens.shape[1] - layout.suffix, layout.prefix, size, layer)
            return tokens[:, prefix : prefix + height * width].mT.unflatten(2, (height, width))


Tokens = Literal["patches", "class", "all"]
"""The tokens of a layer that are read: those of patches, the first one, or all."""


def take_tokens(
    values: torch.Tensor, layout: OutputLayout, tokens: Tokens, size: tuple[int, int], layer: str
) -> torch.Tensor:
    """Returns other tokens of a layer than those of patches: (images, units) for the class token, (images, units,
    tokens) for all. `values` and `size` are those of `arrange`.

    Raises:
        UsageError: The layer has no tokens, or none before those of the patches.
    """
    if layout.kind not in (AxisOrder.TOKENS, AxisOrder.TOKENS_LAST):
        raise UsageError(f"target.tokens={tokens}: layer {layer!r} has no tokens; its axes are {layout.kind.value}")
    rows = values if layout.kind is AxisOrder.TOKENS else values.mT
    if tokens == "all":
        return rows.mT
    if not layout.placed or not grid(rows.shape[1] - layout.suffix, layout.prefix, size, layer)[0]:
        raise UsageError(f"target.tokens=class: no token of layer {layer!r} is known to be before those of the patches")
    return rows[:, 0]


def units_first(layout: OutputLayout, values: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Returns outputs for one image each with the axis of the units first. Not for VECTOR."""
    axis = UNIT_AXES[layout.kind] - 1
    return [each.movedim(axis, 0) for each in values]


def grows(evidence: ShapeEvidence) -> bool:
    """Returns whether axes grow with the input, which tells the positions from the units."""
    growing = _growing_axes(evidence)
    return growing is not None and any(growing)


def layouts_by_shape(evidence: ShapeEvidence) -> list[OutputLayout]:
    """Returns all layouts with positions that the lengths of a layer's axes allow."""
    usual, fixed = evidence.usual, _growing_axes(evidence) is not None
    if len(usual) == 3:
        rows = {AxisOrder.MAP: usual[1:], AxisOrder.MAP_LAST: usual[:2]}
        return [OutputLayout(kind=kind) for kind, (h, w) in rows.items() if _proportioned(h, w, evidence.size, fixed)]
    tokens = {AxisOrder.TOKENS: usual[0], AxisOrder.TOKENS_LAST: usual[-1]}
    return [OutputLayout(kind=kind) for kind, n in tokens.items() if _tiling(n, PREFIXES, evidence.size)]


def _growing_axes(evidence: ShapeEvidence) -> tuple[OutputShape, OutputShape] | None:
    """The axes that change with the input's height, and with its width, if all shapes have as many axes."""
    usual, taller, wider = evidence.usual, evidence.taller, evidence.wider
    if taller is None or wider is None or not len(usual) == len(taller) == len(wider):
        return None
    axes = range(len(usual))
    return tuple(axis for axis in axes if taller[axis] != usual[axis]), tuple(
        axis for axis in axes if wider[axis] != usual[axis]
    )


def _layout_by_shape(evidence: ShapeEvidence, fixed: bool) -> OutputLayout:
    """By the usual shape alone. `fixed`: it is the same for all input sizes, so that positions are no patches."""
    if sum(length > 1 for length in evidence.usual) <= 1:
        return OutputLayout(kind=AxisOrder.VECTOR)
    if len(evidence.usual) == 3:
        return OutputLayout(kind=_map_order(evidence, fixed))
    if fixed:
        raise _unclear(evidence, "it has several positions, and they do not follow those of the input")
    # Numbers of units are often squares too. Tokens on the last axis are therefore accepted only if they grow.
    grid(evidence.usual[0], None, evidence.size, evidence.layer)
    return OutputLayout(kind=AxisOrder.TOKENS)


def _map_order(evidence: ShapeEvidence, fixed: bool) -> AxisOrder:
    units_first = _proportioned(evidence.usual[1], evidence.usual[2], evidence.size, fixed)
    units_last = _proportioned(evidence.usual[0], evidence.usual[1], evidence.size, fixed)
    if units_first != units_last:
        return AxisOrder.MAP if units_first else AxisOrder.MAP_LAST
    if units_first and isinstance(evidence.module, (nn.Conv2d, nn.BatchNorm2d)):
        return AxisOrder.MAP
    # Exactly these types: libraries derive normalisations of the other axis from nn.LayerNorm.
    if units_first and type(evidence.module) in (nn.Linear, nn.LayerNorm):
        return AxisOrder.MAP_LAST
    raise _unclear(evidence, "the shape does not tell which of its axes are rows and columns")


def _proportioned(rows: int, columns: int, size: tuple[int, int], fixed: bool) -> bool:
    height, width = size
    if rows > height or columns > width:
        return False
    if height == width or (fixed and rows == columns):
        return rows == columns
    # Strides may round each side up or down.
    return abs(rows * width - columns * height) <= max(size)


def _prefix(evidence: ShapeEvidence, axis: int) -> int | None:
    assert evidence.taller is not None
    assert evidence.wider is not None
    usual = evidence.usual[axis]
    candidates = {2 * usual - evidence.taller[axis], 2 * usual - evidence.wider[axis]}
    if len(candidates) == 1:
        prefix = candidates.pop()
        if 0 <= prefix <= MAX_PREFIX and _tiling(usual, (prefix,), evidence.size):
            return prefix
    return None


def grid(tokens: int, prefix: int | None, size: tuple[int, int], layer: str) -> tuple[int, int, int]:
    """Returns how many leading tokens, rows and columns the `tokens` tokens of a layer consist of.

    If `prefix` is None, the numbers of leading tokens in PREFIXES are tried. Raises UsageError if the other tokens do
    not correspond to square patches that tile the input.
    """
    tiling = _tiling(tokens, PREFIXES if prefix is None else (prefix,), size)
    if tiling is None:
        raise UsageError(
            f"layer {layer!r}: {tokens} tokens do not tile an input of {size[0]} x {size[1]} in square patches; name "
            "another layer"
        )
    return tiling


def _tiling(tokens: int, prefixes: Iterable[int], size: tuple[int, int]) -> tuple[int, int, int] | None:
    grids = [(size[0] // patch, size[1] // patch) for patch in range(1, min(size) + 1)]
    exact = [grid for grid in grids if size[0] * grid[1] == size[1] * grid[0] and size[0] % grid[0] == 0]
    # If the patches do not fill the input, a strip at its end is lost, as in a convolution without padding.
    for candidates in (exact, grids):
        for prefix in prefixes:
            for height, width in candidates:
                if height * width == tokens - prefix:
                    return prefix, height, width
    return None


def _unclear(evidence: ShapeEvidence, why: str) -> UsageError:
    return UsageError(
        f"layer {evidence.layer!r} cannot be read as units at positions: its output is {evidence.usual} for one image of "
        f"{evidence.size[0]} x {evidence.size[1]}, and {why}; name another layer, such as the module behind it"
    )
