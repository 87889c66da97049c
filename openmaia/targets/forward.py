"""Forward passes with the outputs of chosen layers."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn

from openmaia.errors import HostDead, ServiceError, UsageError
from openmaia.targets.maps import Evidence, Layout, Shape, first_tensor, layout
from openmaia.units import OUTPUT

UNFIT = (RuntimeError, AssertionError, ValueError, IndexError)
"""What networks raise when an input has a size that they are not made for."""


class Forward:
    """module: in evaluation mode, on `device`. layers: as they are asked for -> the module's own names; OUTPUT stands
    for the network's output."""

    def __init__(self, module: nn.Module, layers: Mapping[str, str], device: torch.device):
        self._module, self._layers, self._device = module, layers, device
        self._modules = dict(module.named_modules())

    def __call__(self, batch: torch.Tensor) -> dict[str, torch.Tensor]:
        """(n, 3, height, width) -> layer -> (n, …), float32 on the CPU. Of a module that is called several times,
        the last call's."""
        caught: dict[str, torch.Tensor] = {}
        try:
            self._pass(batch, caught, Counter())
        except torch.OutOfMemoryError as error:
            raise ServiceError(f"the GPU is too small for {len(batch)} pictures at once: {error}") from error
        except torch.AcceleratorError as error:
            raise HostDead(f"the GPU answers no more: {error}") from error
        return caught

    def examine(self, size: tuple[int, int]) -> tuple[dict[str, Shape], dict[str, Layout], str]:
        """Runs the network at its own input size, at twice the height and at twice the width.

        Returns the layers' shapes for one picture without the axis of the batch, their layouts, and why the network
        takes no other sizes ("" where it does). Raises UsageError for a layer without units, or one that is called
        never or more than once in a pass.
        """
        height, width = size
        caught: dict[str, torch.Tensor] = {}
        calls: Counter[str] = Counter()
        self._pass(torch.zeros(1, 3, height, width), caught, calls)
        for layer in self._layers:
            _called_once(layer, calls[layer])
        usual = {layer: tuple(values.shape[1:]) for layer, values in caught.items()}
        taller, refused = self._shapes((2 * height, width))
        wider, also_refused = self._shapes((height, 2 * width))
        layouts = {
            layer: layout(
                Evidence(
                    layer=layer,
                    module=self._modules.get(self._layers[layer], self._module),
                    size=size,
                    usual=usual[layer],
                    taller=taller.get(layer),
                    wider=wider.get(layer),
                )
            )
            for layer in self._layers
        }
        return usual, layouts, refused or also_refused

    def _shapes(self, size: tuple[int, int]) -> tuple[dict[str, Shape], str]:
        """As far as the pass gets: a classifier of fixed width fails behind convolutions that have told their shapes."""
        caught: dict[str, torch.Tensor] = {}
        refused = ""
        try:
            self._pass(torch.zeros(1, 3, *size), caught, Counter())
        except UNFIT as error:
            refused = f"{type(error).__name__}: {str(error)[:200]}"
        return {layer: tuple(values.shape[1:]) for layer, values in caught.items()}, refused

    def _pass(self, batch: torch.Tensor, caught: dict[str, torch.Tensor], calls: Counter[str]) -> None:
        def catch(layer: str, output: Any) -> None:
            calls[layer] += 1
            values = first_tensor(output, len(batch), layer)
            # A copy: a later layer may work in place.
            caught[layer] = values.detach().to("cpu", torch.float32, copy=True)

        hooks = [
            self._modules[name].register_forward_hook(lambda _m, _i, output, layer=layer: catch(layer, output))
            for layer, name in self._layers.items()
            if name != OUTPUT
        ]
        try:
            with torch.inference_mode():
                output = self._module(batch.to(self._device))
        finally:
            for hook in hooks:
                hook.remove()
        for layer, name in self._layers.items():
            if name == OUTPUT:
                catch(layer, output)


def equal_sizes(tensors: Sequence[torch.Tensor], most: int) -> list[list[int]]:
    """Indices of tensors of equal shapes, at most so many together, in order."""
    groups: dict[Shape, list[int]] = {}
    for index, tensor in enumerate(tensors):
        groups.setdefault(tuple(tensor.shape), []).append(index)
    return [group[at : at + most] for group in groups.values() for at in range(0, len(group), most)]


def _called_once(layer: str, calls: int) -> None:
    if calls == 0:
        raise UsageError(f"layer {layer!r} is not used in a forward pass; name another one")
    if calls > 1:
        raise UsageError(
            f"layer {layer!r} is called {calls} times in one forward pass, so it has no one answer; name a module that "
            "is called once, such as one inside it or the block around it"
        )
