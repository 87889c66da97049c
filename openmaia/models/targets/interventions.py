"""Changes units in the forward pass: what is done to the output of their layer, in place."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from openmaia.core.errors import UsageError
from openmaia.core.services import Intervention
from openmaia.models.targets.dictionaries import Dictionary, spread
from openmaia.models.targets.directions import Directions
from openmaia.models.targets.forward import Change
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

    def change(self, asked: Sequence[Intervention], size: tuple[int, int]) -> Change:
        """Returns what changes the layer's output for a batch of images, with one intervention for each.

        Args:
            size: Height and width of the input.

        Raises:
            UsageError: On the call: positions are given for units without a map, or lie outside of it.
        """

        def change(values: torch.Tensor) -> None:
            view = self._view(values, size)
            if view.untyped_storage().data_ptr() != values.untyped_storage().data_ptr():
                raise UsageError(f"units of {self.layer} cannot be changed: its output cannot be changed in place")
            before = self._responses(view, asked)
            scale, add = (_by_image([getattr(each, name) for each in asked], before) for name in ("scale", "add"))
            # Not 0 · r: that of an infinite response is not a number.
            after = torch.where(scale == 0, add.expand_as(before), scale * before + add)
            if any(each.positions is not None for each in asked):
                after = torch.where(self._mask(values, asked, size), after, before)
            self._write(view, asked, before, after)

        return change

    def _view(self, values: torch.Tensor, size: tuple[int, int]) -> torch.Tensor:
        """(images, channels, positions…), which shares the memory of a layer's output."""
        if isinstance(self.own, Dictionary):
            if self.tokens != "patches":
                return take_tokens(values, self.layout, self.tokens, size, self.layer)
            return arrange(values, self.layout, size, self.layer)
        if self.layout.kind is AxisOrder.VECTOR:
            return values.flatten(1)
        return values.movedim(UNIT_AXES[self.layout.kind], 1)

    def _responses(self, view: torch.Tensor, asked: Sequence[Intervention]) -> torch.Tensor:
        if self.own is None:
            return view[_rows(view), _units(view, asked)]
        found = [self.own.unit(each, one.unit.index) for each, one in zip(view, asked, strict=True)]
        return torch.stack(found).to(view.device)

    def _write(
        self, view: torch.Tensor, asked: Sequence[Intervention], before: torch.Tensor, after: torch.Tensor
    ) -> None:
        if self.own is None:
            view[_rows(view), _units(view, asked)] = after
            return
        rows = self.own.decoder if isinstance(self.own, Dictionary) else self.own.weight
        vectors = rows[[each.unit.index for each in asked]].to(view.device)
        if isinstance(self.own, Dictionary):
            change = (after - before)[:, None] * spread(view.float(), self.own.normalisation)
        else:
            vectors = vectors / vectors.square().sum(dim=1, keepdim=True).clamp(min=torch.finfo(vectors.dtype).tiny)
            change = (after - before)[:, None]
        view += (change * vectors.view(*vectors.shape, *[1] * (view.ndim - 2))).to(view.dtype)

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
                self._view(marks, size)[at] = 1
                continue
            for row, column in each.positions:
                if not (0 <= row < height and 0 <= column < width):
                    raise UsageError(f"{each.unit} has a map of {height} x {width}, and no position ({row}, {column})")
                maps[at, row, column] = 1
        return self._view(marks, size)[:, 0] > 0


def _rows(view: torch.Tensor) -> torch.Tensor:
    return torch.arange(len(view), device=view.device)


def _units(view: torch.Tensor, asked: Sequence[Intervention]) -> torch.Tensor:
    return torch.tensor([each.unit.index for each in asked], device=view.device)


def _by_image(values: Sequence[float], like: torch.Tensor) -> torch.Tensor:
    """Shape (images, 1…), with as many axes as `like`."""
    return torch.tensor(values, dtype=like.dtype, device=like.device).view(-1, *[1] * (like.ndim - 1))
