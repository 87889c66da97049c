"""Directions in the activation space of a layer, which are studied as units like the layer's own channels.

Examples are dictionary features, linear probes and principal components, in a safetensors file. The response of a
direction at a position is weight · channels + bias, followed by a ReLU if the file demands it.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from safetensors import SafetensorError, safe_open

from openmaia.core.errors import UsageError
from openmaia.core.paths import user_path

SUFFIX = "/directions"
"""The units of `layer4/directions` are directions in the activation space of `layer4`."""

# Directions that are multiplied with a layer's output at a time. It bounds the memory for their weights in double
# precision.
ROWS = 1024

ACTIVATIONS = ("", "none", "relu")  # of the metadata of a file


@dataclass(frozen=True, slots=True, kw_only=True)
class Directions:
    """The directions of one layer, on the CPU, and the computation of their responses."""

    layer: str
    weight: torch.Tensor
    """float32, shape (units, channels)."""
    bias: torch.Tensor
    """float32, shape (units,)."""
    rectified: bool
    """Whether a ReLU is applied to the responses."""

    @property
    def name(self) -> str:
        """Name of the layer whose units they are, such as `layer4/directions`."""
        return self.layer + SUFFIX

    @property
    def source(self) -> str:
        """Key of the responses that are multiplied: those of the layer."""
        return self.layer

    @property
    def units(self) -> int:
        """The number of directions."""
        return len(self.weight)

    def state(self) -> Iterable[tuple[str, torch.Tensor]]:
        """Returns named tensors for the target's digest."""
        # In the names, so that the digest depends on it, too.
        kind = "relu" if self.rectified else "linear"
        return [(f"{self.name}.{kind}.weight", self.weight), (f"{self.name}.{kind}.bias", self.bias)]

    def unit(self, response: torch.Tensor, index: int) -> torch.Tensor:
        """Returns a direction's response, shape (h, w) or (), to an output of shape (channels, h, w) or (channels,), on
        its device."""
        return self._rows(response[None], slice(index, index + 1))[0, 0]

    def all(self, responses: torch.Tensor) -> torch.Tensor:
        """Returns responses, shape (images, units, …), to outputs of shape (images, channels, …), on their device."""
        return torch.cat(
            [self._rows(responses, slice(start, start + ROWS)) for start in range(0, len(self.weight), ROWS)], dim=1
        )

    def maxima(self, response: torch.Tensor) -> torch.Tensor:
        """Returns the activations of all directions, shape (units,), on one output as for `unit`."""
        found = self.all(response[None])[0]
        return found.flatten(1).amax(dim=1) if found.ndim > 1 else found

    def _rows(self, responses: torch.Tensor, rows: slice) -> torch.Tensor:
        # In double precision: one direction and all directions are summed in different orders, but an exemplar that is
        # probed again has to give its stored activation.
        channels = responses.double().reshape(*responses.shape[:2], -1)
        values = self.weight[rows].to(responses.device, torch.float64) @ channels
        values += self.bias[rows].to(responses.device, torch.float64)[:, None]
        if self.rectified:
            values.clamp_(min=0)
        return values.float().reshape(len(responses), -1, *responses.shape[2:])


def read_directions(layer: str, path: str, channels: int) -> Directions:
    """Reads a safetensors file of directions for a layer with so many channels.

    Args:
        path: A file with the tensor `weight` of shape (units, channels), and optionally the tensor `bias` of shape
            (units,) and the metadata activation=relu.

    Raises:
        UsageError: The file cannot be read, or its content does not match the layer.
    """
    given = f"target.directions: {layer}={path!r}"
    try:
        with safe_open(user_path(path), framework="pt") as file:
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
