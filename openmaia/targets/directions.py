"""Directions in a layer's space as units of their own: features of a dictionary, probes, principal components.

The unit of a direction responds at every position with weight · channels (+ bias, rectified where the file says so).
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import torch
from safetensors import SafetensorError, safe_open

from openmaia.errors import UsageError
from openmaia.targets.maps import Response

SUFFIX = "/directions"
"""The directions in the space of `layer4` are the units of the layer `layer4/directions`."""

ROWS = 1024
"""So many directions are multiplied at a time: a dictionary in double precision would need twice its own size."""

ACTIVATIONS = ("", "none", "relu")


@dataclass(frozen=True, slots=True, kw_only=True)
class Directions:
    """weight: (units, channels). bias: (units,). Both float32 on the CPU."""

    layer: str
    weight: torch.Tensor
    bias: torch.Tensor
    rectified: bool

    @property
    def name(self) -> str:
        return self.layer + SUFFIX

    def state(self) -> Iterable[tuple[str, torch.Tensor]]:
        """What the target's digest has to cover."""
        kind = "relu" if self.rectified else "linear"
        return [(f"{self.name}.{kind}.weight", self.weight), (f"{self.name}.{kind}.bias", self.bias)]

    def unit(self, response: Response, index: int) -> Response:
        """The layer's response, (channels, h, w) or (channels,) -> (h, w) or () of one direction."""
        return self._rows(response, slice(index, index + 1))[0]

    def all(self, response: Response) -> Response:
        """(channels, h, w) or (channels,) -> (units, h, w) or (units,)."""
        found = np.empty((self.weight.shape[0], *response.shape[1:]), dtype=np.float32)
        for start in range(0, len(found), ROWS):
            found[start : start + ROWS] = self._rows(response, slice(start, start + ROWS))
        return found

    def _rows(self, response: Response, rows: slice) -> Response:
        # In double precision: one direction alone and all of them together sum in different orders, and an exemplar
        # that is probed again has to give its stored activation.
        channels = torch.from_numpy(response).double().reshape(len(response), -1)
        found = self.weight[rows].double() @ channels
        found += self.bias[rows].double()[:, None]
        if self.rectified:
            found.clamp_(min=0)
        return found.float().reshape(-1, *response.shape[1:]).numpy()


def read_directions(layer: str, path: str, channels: int) -> Directions:
    """A safetensors file with `weight` (units, channels), optionally `bias` (units,) and metadata activation=relu.

    Raises UsageError for a file that cannot be read, or whose shapes do not fit a layer of so many channels.
    """
    given = f"target.directions: {layer}={path!r}"
    try:
        with safe_open(path, framework="pt") as file:
            activation = (file.metadata() or {}).get("activation", "")
            tensors = {name: file.get_tensor(name) for name in file.keys() if name in ("weight", "bias")}  # noqa: SIM118
            names = sorted(file.keys())
    except (OSError, SafetensorError) as error:
        raise UsageError(f"{given} cannot be read as a safetensors file: {error}") from error
    if "weight" not in tensors:
        raise UsageError(f"{given} has no tensor `weight`, of (units, channels); it has: {', '.join(names) or 'none'}")
    if activation not in ACTIVATIONS:
        raise UsageError(f"{given} has the metadata activation={activation!r}; expected relu, or none at all")
    weight, bias = tensors["weight"], tensors.get("bias")
    if weight.ndim != 2 or weight.shape[1] != channels or not weight.shape[0] or not weight.is_floating_point():
        raise UsageError(
            f"{given}: `weight` is {tuple(weight.shape)} of {weight.dtype}; layer {layer!r} has {channels} channels, "
            f"so expected (units, {channels}) of floats"
        )
    if bias is not None and (tuple(bias.shape) != weight.shape[:1] or not bias.is_floating_point()):
        raise UsageError(f"{given}: `bias` is {tuple(bias.shape)}; expected ({weight.shape[0]},), one per direction")
    return Directions(
        layer=layer,
        weight=weight.float(),
        bias=torch.zeros(weight.shape[0]) if bias is None else bias.float(),
        rectified=activation == "relu",
    )
