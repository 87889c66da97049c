"""Changes units in the forward pass: what is done to the output of their layer, in place."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from openmaia.core.errors import UsageError
from openmaia.core.services import Intervention
from openmaia.models.targets.dictionary import Dictionary, spread
from openmaia.models.targets.directions import Directions
from openmaia.models.targets.forward import OutputChange
from openmaia.models.targets.maps import UNIT_AXES, AxisOrder, OutputLayout, Tokens, arrange, take_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitSpace:
    """The units of a layer, or its directions or features, in the layer's output."""

    layer: str
    """The module's, without the suffix of directions and features."""
    layout: OutputLayout
    own: Directions | Dictionary | None = None
    """None: the units are the channels."""
    tokens: Tokens = "patches"
    """Those at which features are computed, and therefore changed."""

    def change(self, asked: Sequence[Intervention], size: tuple[int, int]) -> OutputChange:
        """Returns what changes the layer's output for a batch of images, with one intervention for each.

        Args:
            size: Height and width of the input.

        Raises:
            UsageError: On the call: positions are given for units without a map, or lie outside of it.
        """

        def change(values: torch.Tensor) -> None:
            view = self.view(values, size)
            if view.untyped_storage().data_ptr() != values.untyped_storage().data_ptr():
                raise UsageError(f"units of {self.layer} cannot be changed: its output cannot be changed in place")
            before = self._responses(view, asked)
            after = _after(before, asked)
            if any(each.positions is not None for each in asked):
                after = torch.where(self._mask(values, asked, size), after, before)
            self._write(view, asked, before, after)

        return change

    def view(self, values: torch.Tensor, size: tuple[int, int]) -> torch.Tensor:
        """Returns a layer's output, or a gradient of the same shape, as (images, channels, positions…), in its memory."""
        if isinstance(self.own, Dictionary):
            if self.tokens != "patches":
                return take_tokens(values, self.layout, self.tokens, size, self.layer)
            return arrange(values, self.layout, size, self.layer)
        if self.layout.kind is AxisOrder.VECTOR:
            return values.flatten(1)
        return values.movedim(UNIT_AXES[self.layout.kind], 1)

    def _responses(self, view: torch.Tensor, asked: Sequence[Intervention]) -> torch.Tensor:
        if self.own is None:
            return view[_places(view, asked)]
        found = [self.own.unit(each, one.unit.index) for each, one in zip(view, asked, strict=True)]
        return torch.stack(found).to(view.device)

    def _write(
        self, view: torch.Tensor, asked: Sequence[Intervention], before: torch.Tensor, after: torch.Tensor
    ) -> None:
        if self.own is None and all(each.random is None for each in asked):
            view[_places(view, asked)] = after
            return
        vectors = torch.stack([_turned(self._vector(each, view.shape[1]), each) for each in asked]).to(view.device)
        change = (after - before).float()[:, None]
        if isinstance(self.own, Dictionary):
            change = change * spread(view.float(), self.own.normalisation)
        view += (change * vectors.view(*vectors.shape, *[1] * (view.ndim - 2))).to(view.dtype)

    def _vector(self, asked: Intervention, channels: int) -> torch.Tensor:
        """What is added to the channels if the response rises by 1, shape (channels,)."""
        if self.own is None:
            return torch.nn.functional.one_hot(torch.tensor(asked.unit.index), channels).float()
        if isinstance(self.own, Dictionary):
            return self.own.decoder[asked.unit.index]
        weight = self.own.weight[asked.unit.index]
        return weight / (weight @ weight).clamp(min=torch.finfo(weight.dtype).tiny)

    def _mask(self, values: torch.Tensor, asked: Sequence[Intervention], size: tuple[int, int]) -> torch.Tensor:
        """bool, (images, positions…): where each image's unit is changed."""
        has_map = self.layout.kind is not AxisOrder.VECTOR and self.layout.placed and self.tokens == "patches"
        if not has_map:
            raise UsageError(f"units of {self.layer} have no map, and positions are those of one; leave them out")
        marks = values.new_zeros(values.shape).narrow(UNIT_AXES[self.layout.kind], 0, 1)
        maps = arrange(marks, self.layout, size, self.layer)[:, 0]
        height, width = maps.shape[1:]
        for at, each in enumerate(asked):
            if each.positions is None:
                self.view(marks, size)[at] = 1
                continue
            for row, column in each.positions:
                if not (0 <= row < height and 0 <= column < width):
                    raise UsageError(f"{each.unit} has a map of {height} x {width}, and no position ({row}, {column})")
                maps[at, row, column] = 1
        return self.view(marks, size)[:, 0] > 0


def _turned(vector: torch.Tensor, asked: Intervention) -> torch.Tensor:
    if asked.random is None:
        return vector
    drawn = torch.randn(len(vector), generator=torch.Generator().manual_seed(asked.random))
    return drawn * (vector.norm() / drawn.norm())


def _after(before: torch.Tensor, asked: Sequence[Intervention]) -> torch.Tensor:
    # Not 0 · r: that of an infinite response is not a number.
    first = asked[0]
    if all((each.scale, each.add) == (first.scale, first.add) for each in asked):
        return before * first.scale + first.add if first.scale else torch.full_like(before, first.add)
    shape = (-1, *[1] * (before.ndim - 1))
    scale, add = (before.new_tensor([getattr(each, name) for each in asked]).view(shape) for name in ("scale", "add"))
    return torch.where(scale == 0, add, scale * before + add)


def _places(view: torch.Tensor, asked: Sequence[Intervention]) -> tuple[Any, Any]:
    """The index of the unit of each image in (images, units, …)."""
    units = [each.unit.index for each in asked]
    if len(set(units)) == 1:
        return slice(None), units[0]
    return torch.arange(len(view), device=view.device), torch.tensor(units, device=view.device)
