"""A target whose units are measured image by image, as formulas are, and not in batches, as networks are."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from openmaia.core.components import TargetComponent
from openmaia.core.images import EncodedImage, Pixels, ViewBox, whole
from openmaia.core.services import LayerProbe, Probe, UnitActivation
from openmaia.core.units import TargetInfo
from openmaia.models.targets.responses import Response, maxima, rounded

if TYPE_CHECKING:
    import torch


class MeasuredTarget(TargetComponent, ABC):
    """A subclass implements `info` and `measure`."""

    batch = 1

    @abstractmethod
    def info(self) -> TargetInfo: ...

    @abstractmethod
    def measure(self, layer: str, image: EncodedImage) -> npt.NDArray[Any]:
        """Measures all units of a layer on an image, shape (units,), or (units, h, w) if they have activation maps."""

    def probe(self, probes: Sequence[Probe]) -> list[UnitActivation]:
        return [self._activation(each) for each in probes]

    def respond(self, probes: Sequence[LayerProbe]) -> list[npt.NDArray[np.float64]]:
        return [maxima(self._response(each.layer, each.image)) for each in probes]

    def view(self, pixels: Pixels) -> tuple[Pixels, ViewBox]:
        return pixels, whole(pixels)

    def responses(self, views: Sequence[Pixels], recipes: Sequence[str]) -> "dict[str, torch.Tensor]":
        # Here, because processes that only probe the target need no PyTorch.
        import torch

        images = [EncodedImage.of(pixels, (), recipe) for pixels, recipe in zip(views, recipes, strict=True)]
        return {
            layer: torch.from_numpy(np.stack([self._response(layer, image) for image in images]))
            for layer in self.info().layers
        }

    def _activation(self, probe: Probe) -> UnitActivation:
        response = self._response(probe.unit.layer, probe.image)[probe.unit.index]
        return UnitActivation(
            value=rounded(response.max()),
            map=response if response.ndim else None,
            box=whole(probe.image.pixels),
        )

    def _response(self, layer: str, image: EncodedImage) -> Response:
        return np.asarray(self.measure(layer, image), np.float32)
