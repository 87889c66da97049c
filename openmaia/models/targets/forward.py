"""Runs forward passes and captures the outputs of selected layers."""

import inspect
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import nn

from openmaia.core.errors import OpenMaiaError, UsageError
from openmaia.core.units import OUTPUT
from openmaia.models.device import service_errors
from openmaia.models.targets.maps import (
    UNIT_AXES,
    AxisOrder,
    OutputLayout,
    OutputShape,
    ShapeEvidence,
    first_tensor,
    layout,
)
from openmaia.models.targets.wrappers import uncompiled, why_uncalled

SIZE_ERRORS = (RuntimeError, AssertionError, ValueError, IndexError)
"""Exceptions that networks raise for inputs of a size that they do not accept."""

INPUT_TYPES = (torch.float32, torch.float16, torch.bfloat16, torch.float64)
"""Types that the input of a network may have."""


class Forward:
    """Runs a network and returns the outputs of selected layers."""

    def __init__(self, module: nn.Module, layers: Mapping[str, str], device: torch.device):
        """Prepares forward passes.

        Args:
            module: The network, in evaluation mode and on `device`.
            layers: Names of modules in the network, by the names that the user gives to the layers. OUTPUT stands for
                the output of the network.
            device: The device of the network.
        """
        self._module, self._layers, self._device = module, layers, device
        self._modules = dict(module.named_modules())
        self._dtype = torch.float32

    def __call__(self, batch: torch.Tensor) -> dict[str, torch.Tensor]:
        """Runs the network on a batch of images and returns the output of each layer.

        Args:
            batch: The inputs, shape (images, channels, height, width).

        Returns:
            The output by layer, float32 of shape (images, …) on the CPU. If a module is called several times, it is the
            output of the last call.

        Raises:
            ServiceError: The batch needs more memory than the GPU has.
            HostDead: The GPU no longer answers.
        """
        outputs: dict[str, torch.Tensor] = {}
        with service_errors("the target network"):
            self._pass(batch, outputs, Counter())
        return outputs

    def scaled(self, batch: torch.Tensor, layer: str, layout: OutputLayout, index: int, factor: float) -> torch.Tensor:
        """Runs the network while one unit of a layer is scaled at all positions.

        Args:
            batch: The inputs, shape (images, channels, height, width).
            layer: The layer as the user names it, not OUTPUT (the output of the network).
            layout: The layout of its output (which axes are units and which are positions).
            index: Index of the unit in the layer.
            factor: The factor by which the unit's response is multiplied.

        Returns:
            The output of the network, float32 on the CPU.

        Raises:
            UsageError: The output of the layer is no tensor, so that it cannot be replaced.
            ServiceError: The batch needs more memory than the GPU has.
        """
        kind = layout.kind

        def replace(_module: nn.Module, _inputs: Any, output: Any) -> torch.Tensor:
            if not isinstance(output, torch.Tensor):
                raise UsageError(f"layer {layer!r} cannot be scaled: its output is a {type(output).__name__}")
            # The output is copied because it may share its memory with what other modules read.
            values = output.clone()
            view = values.flatten(1) if kind is AxisOrder.VECTOR else values.movedim(UNIT_AXES[kind], 1)
            view[:, index] *= factor
            return values

        with service_errors("the target network"), torch.inference_mode(), uncompiled():
            hook = self._modules[self._layers[layer]].register_forward_hook(replace)
            try:
                output = self._module(batch.to(self._device, self._dtype))
            finally:
                hook.remove()
        return first_tensor(output, len(batch), OUTPUT).detach().to("cpu", torch.float32)

    def examine(
        self, size: tuple[int, int], channels: int = 3
    ) -> tuple[dict[str, OutputShape], dict[str, OutputLayout], str]:
        """Determines which axes of the layers' outputs are units and which are positions (their layouts).

        For this it runs the network on inputs of three sizes: `size`, twice its height, and twice its width. It also
        finds out in which type the network takes its input.

        Args:
            size: Height and width of the inputs for which the network is made.
            channels: Number of channels of the input.

        Returns:
            The output shapes of the layers for one image of this size, without the batch axis; their layouts; and the
            error with which the network refuses other sizes, "" if it accepts them.

        Raises:
            UsageError: The network does not accept an input of `size`, or a layer has no units, is not called exactly
                once in a pass, or gives another output each time.
        """
        height, width = size
        outputs: dict[str, torch.Tensor] = {}
        calls: Counter[str] = Counter()
        noise = torch.rand(1, channels, height, width, generator=torch.Generator().manual_seed(0), device="cpu")

        def attempt(dtype: torch.dtype) -> None:
            outputs.clear()
            calls.clear()
            self._dtype = dtype
            self._pass(noise, outputs, calls)

        try_types(self._module, attempt, (1, channels, height, width))
        for layer, name in self._layers.items():
            check_called_once(layer, calls[layer], name, self._modules)
        again: dict[str, torch.Tensor] = {}
        self._pass(noise, again, Counter())
        _check_repeated(outputs, again)
        usual = {layer: tuple(values.shape[1:]) for layer, values in outputs.items()}
        taller, refusal = self._shapes((2 * height, width), channels)
        wider, second_refusal = self._shapes((height, 2 * width), channels)
        layouts = {
            layer: layout(
                ShapeEvidence(
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
        return usual, layouts, refusal or second_refusal

    def _shapes(self, size: tuple[int, int], channels: int) -> tuple[dict[str, OutputShape], str]:
        """Runs one image of a given size. Returns the layers' output shapes, and the error message if the pass fails.

        If the pass fails, for example in a classifier of fixed size, the shapes of the layers before it are returned.
        """
        outputs: dict[str, torch.Tensor] = {}
        refusal = ""
        try:
            self._pass(torch.zeros(1, channels, *size), outputs, Counter())
        except SIZE_ERRORS as error:
            refusal = f"{type(error).__name__}: {str(error)[:200]}"
        return {layer: tuple(values.shape[1:]) for layer, values in outputs.items()}, refusal

    def _pass(self, batch: torch.Tensor, outputs: dict[str, torch.Tensor], calls: Counter[str]) -> None:
        def catch(layer: str, output: Any) -> None:
            calls[layer] += 1
            values = first_tensor(output, len(batch), layer)
            # The output is copied because a later layer may modify it in place.
            outputs[layer] = values.detach().to("cpu", torch.float32, copy=True)

        hooks = [
            self._modules[name].register_forward_hook(lambda _m, _i, output, layer=layer: catch(layer, output))
            for layer, name in self._layers.items()
            if name != OUTPUT
        ]
        try:
            with torch.inference_mode(), uncompiled():
                output = self._module(batch.to(self._device, self._dtype))
        finally:
            for hook in hooks:
                hook.remove()
        for layer, name in self._layers.items():
            if name == OUTPUT:
                catch(layer, output)


def equal_sizes(tensors: Sequence[torch.Tensor], batch_size: int) -> list[list[int]]:
    """Groups tensors of equal shape into batches of at most `batch_size`.

    Returns:
        The indices of the tensors in each batch, in ascending order.
    """
    groups: dict[OutputShape, list[int]] = {}
    for index, tensor in enumerate(tensors):
        groups.setdefault(tuple(tensor.shape), []).append(index)
    return [group[i : i + batch_size] for group in groups.values() for i in range(0, len(group), batch_size)]


def try_types(module: nn.Module, attempt: Callable[[torch.dtype], None], shape: tuple[int, ...]) -> None:
    """Calls a function with the types that the input of a network may have, until it succeeds.

    float32 is tried first, then the types of the network's weights. Which of them takes the input cannot be told from
    the weights: the first parameter may be an embedding, and a network may convert its input itself.

    Args:
        module: The network.
        attempt: Runs the network on an input of a type.
        shape: The shape of the input, for messages.

    Raises:
        UsageError: The network fails on an input of each type.
    """
    own = {each.dtype for each in (*module.parameters(), *module.buffers())}
    types = [dtype for dtype in INPUT_TYPES if dtype is torch.float32 or dtype in own]
    errors: list[str] = []
    for dtype in types:
        try:
            attempt(dtype)
            return
        except (OpenMaiaError, torch.OutOfMemoryError, torch.AcceleratorError):
            raise
        except Exception as error:  # the user's network may fail in any way
            given = f"as {dtype}, ".replace("torch.", "") if len(types) > 1 else ""
            errors.append(f"{given}{type(error).__name__}: {' '.join(str(error).split())[:300]}")
    raise UsageError(
        f"the network fails on an input of shape {shape}, as its preprocessing gives it: {'; '.join(errors)}."
        f"{_remedy(module, shape[1])}"
    )


def _remedy(module: nn.Module, channels: int) -> str:
    if type(module).forward is nn.Module.forward:
        inner = ", ".join(name for name, _ in module.named_children())
        return f" It has no forward; give the module inside of it that has one, out of: {inner}"
    remedy = ""
    first = next(((n, m) for n, m in module.named_modules() if isinstance(m, nn.Conv2d)), None)
    if first is not None and first[1].in_channels != channels:
        remedy = f" Its first convolution, {first[0]!r}, takes {first[1].in_channels} channels."
    arguments = inspect.signature(module.forward).parameters.values()
    if any(
        each.default is each.empty and each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)
        for each in [*arguments][1:]
    ):
        names = ", ".join(each.name for each in arguments)
        return f"{remedy} Its forward takes ({names}); give a module of yours whose forward takes images alone"
    return (
        f"{remedy} Give the preprocessing with which it was trained: target.size is the side in pixels, and target.mean and "
        "target.std have one value for each channel; in Python preprocess=TRANSFORM"
    )


def _check_repeated(first: Mapping[str, torch.Tensor], second: Mapping[str, torch.Tensor]) -> None:
    for layer, values in first.items():
        size = float(values.abs().nan_to_num(0.0, 0.0).amax()) if values.numel() else 0.0
        again = second[layer]
        if again.shape != values.shape or not torch.allclose(again, values, 0.0, 0.01 * size, equal_nan=True):
            raise UsageError(
                f"layer {layer!r} gives another output each time for the same image; give a network without random steps, "
                "such as dropout outside of nn.Dropout (functional.dropout needs training=self.training) and random masks"
            )


def check_called_once(layer: str, calls: int, name: str, modules: Mapping[str, nn.Module]) -> None:
    """Raises UsageError unless a layer was called exactly once in a forward pass.

    Args:
        layer: The layer as the user names it.
        calls: Number of calls.
        name: Name of the layer's module.
        modules: The modules of the network by name.
    """
    if calls == 0:
        raise UsageError(
            f"layer {layer!r} is not used in a forward pass{why_uncalled(name, modules)}; name another one, such as one "
            "inside it"
        )
    if calls > 1:
        raise UsageError(
            f"layer {layer!r} is called {calls} times in one forward pass, so that its response is ambiguous; name a module "
            "that is called once, such as one inside it or the block around it"
        )
