"""Responses of a layer most of whose values are 0, such as the features of a dictionary."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True, kw_only=True)
class SparseResponses:
    """The responses of all units of a layer to some images, without the values that are 0. No value is negative.

    It holds 12 bytes for each value that is not 0, on the device that computed it.
    """

    images: int
    units: int
    positions: tuple[int, ...]
    """Shape of a unit's response: (h, w), (positions,), or ()."""
    at: torch.Tensor
    """int64, shape (values,), no two equal: where each value is in a contiguous array of shape (images, units, positions)."""
    values: torch.Tensor
    """float32, shape (values,). May hold NaN and infinity."""

    @property
    def count(self) -> int:
        """The number of positions of a unit."""
        return math.prod(self.positions)

    @property
    def unit_of(self) -> torch.Tensor:
        """The unit of each value, int64, shape (values,)."""
        return self.at // self.count % self.units

    def maxima(self) -> torch.Tensor:
        """Returns the activations on each image, float32 of shape (images, units), which is dense."""
        found = self.values.new_zeros(self.images * self.units)
        return found.scatter_reduce_(0, self.at // self.count, self.values, "amax").view(self.images, self.units)

    def chosen(self, images: Sequence[int] | torch.Tensor, units: Sequence[int] | torch.Tensor) -> torch.Tensor:
        """Returns the dense responses of pairs of an image and a unit, float32 of shape (pairs, *positions)."""
        image, unit = (torch.as_tensor(each, device=self.at.device) for each in (images, units))
        rows, which = torch.unique(image * self.units + unit, return_inverse=True)
        row_of = torch.full((self.images * self.units,), -1, device=self.at.device)
        row_of[rows] = torch.arange(len(rows), device=self.at.device)
        own = row_of[self.at // self.count]
        is_chosen = own >= 0
        found = self.values.new_zeros(len(rows), self.count)
        found[own[is_chosen], self.at[is_chosen] % self.count] = self.values[is_chosen]
        return found[which].view(-1, *self.positions)


Responses = torch.Tensor | SparseResponses
"""Responses of a layer to some images. A tensor is float32, shape (images, units, h, w), or (images, units) without
positions."""
