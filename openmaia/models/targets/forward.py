"""Runs forward passes and captures the outputs of selected layers."""

import inspect
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from types import MappingProxyType
from typing import Any

import torch
from torch import nn

from openmaia.core.errors import OpenMaiaError, UsageError
from openmaia.core.images import Pixels
from openmaia.core.units import OUTPUT
from openmaia.models.device import service_errors
from openmaia.models.targets import places
from openmaia.models.targets.maps import (
    OutputLayout,
    OutputShape,
    ShapeEvidence,
    grows,
    infer_layout,
    layouts_by_shape,
)
from openmaia.models.targets.meaning import LastModules
from openmaia.models.targets.outputs import Entry, find_entry, parts, take
from openmaia.models.targets.precision import Precision, computing_in
from openmaia.models.targets.preprocess import Preprocessing
from openmaia.models.targets.wrappers import uncompiled, why_uncalled

SIZE_ERRORS = (RuntimeError, AssertionError, ValueError, IndexError)
"""What networks raise for inputs of a size that they do not accept."""

INPUT_TYPES = (torch.float32, torch.float16, torch.bfloat16, torch.float64)

OutputChange = Callable[[torch.Tensor], None]
"""Changes a layer's output, shape (images, …), in place."""

NOTHING: Mapping[str, str] = MappingProxyType({})
CPU = torch.device("cpu")


class Forward:
    """Runs a network and returns the outputs of selected layers."""

    def __init__(
        self,
        module: nn.Module,
        layers: Mapping[str, str],
        device: torch.device,
        asked: Mapping[str, str] = NOTHING,
        precision: Precision = "float32",
    ):
        """Prepares forward passes.

        Args:
            module: The network, in evaluation mode and on `device`.
            layers: Names of modules, by the names that the user gives to the layers. OUTPUT is that of the network.
            asked: The entries of compound outputs that the user chose, by layer (see `outputs.py`).
            precision: That of measurements. How outputs are read is found out in float32.
        """
        self._module, self._layers, self._device = module, layers, device
        self._asked, self._entries = asked, dict[str, Entry]()
        self._compound: dict[str, bool] = {}
        self._unreadable: UsageError | None = None
        self._modules = dict(module.named_modules())
        self._dtype = torch.float32
        self._precision: Precision = precision

    def __call__(self, batch: torch.Tensor) -> dict[str, torch.Tensor]:
        """Returns the output of each layer, float32 of shape (images, …) on the network's device: of a module's last
        call, if there are several.

        Args:
            batch: Shape (images, channels, height, width).

        Raises:
            ServiceError: The batch needs more memory than the GPU has.
            HostDead: The GPU no longer answers.
        """
        outputs: dict[str, Any] = {}
        with service_errors("the target network"):
            self._pass(batch, outputs, Counter(), self._device, self._precision)
        return outputs

    @contextmanager
    def changing(self, layer: str, change: OutputChange) -> Generator[None]:
        """Passes in this block go on with the output of a layer as `change` leaves it, which then is what is read of the layer.

        Raises:
            UsageError: In a pass: the output of the layer is no tensor, so that it cannot be replaced.
        """

        def changed(output: torch.Tensor) -> torch.Tensor:
            # The output is copied because it may share its memory with what other modules read.
            values = output.clone()
            change(values.movedim(self._entries[layer].axis, 0))
            return values

        with self._replacing(layer, changed):
            yield

    def differentiable(self, layer: str, batch: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns the output of a layer, shape (images, …) of the type that it has, and that of the network, float32 of shape
        (images, …), of which autograd computes gradients with respect to the first.

        Raises:
            UsageError: The output of the layer is no tensor, or that of the network is not understood.
            ServiceError: The batch needs more memory than the GPU has.
        """
        axis, kept = self._entries[layer].axis, list[torch.Tensor]()

        def followed(output: torch.Tensor) -> torch.Tensor:
            kept.append(output.movedim(axis, 0).detach().clone().requires_grad_())
            return kept[-1].movedim(0, axis).clone()  # later modules may change it in place, which no leaf permits

        with service_errors("the target network"), self._running(self._precision, has_gradients=True):
            with self._replacing(layer, followed):
                output = self._module(batch.to(self._device, self._dtype))
            return kept[-1], take(output, self._entry_of_output(), len(batch), OUTPUT).float()

    @contextmanager
    def _replacing(self, layer: str, replacement: Callable[[torch.Tensor], torch.Tensor]) -> Generator[None]:
        def replace(_module: nn.Module, _inputs: Any, output: Any) -> torch.Tensor:
            if not isinstance(output, torch.Tensor):
                raise UsageError(f"units of {layer} cannot be changed: its output is a {type(output).__name__}")
            return replacement(output)

        hook = self._modules[self._layers[layer]].register_forward_hook(replace)
        try:
            yield
        finally:
            hook.remove()

    def output(self, batch: torch.Tensor) -> torch.Tensor:
        """Returns the network's output alone: float32, shape (images, …), on its device.

        Raises:
            UsageError: The output is not understood.
            ServiceError: The batch needs more memory than the GPU has.
        """
        with service_errors("the target network"), self._running(self._precision):
            return self._output(self._module(batch.to(self._device, self._dtype)), len(batch), self._device)

    def last_modules(
        self, batches: Sequence[torch.Tensor]
    ) -> tuple[torch.Tensor, list[tuple[nn.Module, torch.Tensor]]]:
        """Returns outputs for single images, and what `LastModules` keeps: float32, (images, …), on the CPU."""
        outputs: list[torch.Tensor] = []
        found: list[list[tuple[nn.Module, torch.Tensor]]] = []
        for batch in batches:
            last = LastModules()
            hooks = [each.register_forward_hook(last) for each in self._modules.values() if _is_leaf(each)]
            try:
                with service_errors("the target network"), self._running():
                    outputs.append(self._output(self._module(batch.to(self._device, self._dtype)), 1))
            finally:
                for hook in hooks:
                    hook.remove()
            found.append(list(last.found))
        joined = [
            (same[0][0], torch.cat([output for _, output in same]))
            for same in zip(*found, strict=False)
            if len({(module, output.shape) for module, output in same}) == 1
        ]
        return torch.cat(outputs), joined

    def understood(self, layer: str) -> list[str]:
        """Returns sentences about how a layer's output is read, if it is no tensor with the images on its first axis."""
        entry = self._entries[layer]
        said = [f"{layer}: read from the entry {entry.name!r} of its output"] if self._compound.get(layer) else []
        return said + ([f"{layer}: the images are on axis {entry.axis} of its output"] if entry.axis else [])

    def _output(self, output: Any, images: int, device: torch.device = CPU) -> torch.Tensor:
        self._entry_of_output()
        return self._taken(output, images, OUTPUT, device)

    def _entry_of_output(self) -> Entry:
        if OUTPUT not in self._entries:
            raise self._unreadable or UsageError("the output of the network is not known before `examine`")
        return self._entries[OUTPUT]

    def _taken(self, output: Any, images: int, layer: str, device: torch.device = CPU) -> torch.Tensor:
        # A copy, because a later layer may modify it in place.
        return take(output, self._entries[layer], images, layer).detach().to(device, torch.float32, copy=True)

    def examine(self, preprocess: Preprocessing) -> tuple[dict[str, OutputShape], dict[str, OutputLayout], str]:
        """Finds out which axes of outputs are images, units and positions, and where the positions are. Call it first.

        For this the network runs on a blank image, on two others, on inputs of twice the height and twice the width,
        and on images that are changed in parts (see `places.py`).

        Returns:
            The layers' output shapes for one image of the preprocessing's size, without the axis of the images; their
                layouts;
            and the error with which the network refuses other sizes, "" if it accepts them.

        Raises:
            UsageError: The network does not accept an input of this size, or a layer has no units, is not called
                exactly once in a pass, or gives another output each time.
        """
        size, channels = preprocess.size, preprocess.channels
        height, width = size
        outputs: dict[str, Any] = {}
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
        inputs = partial(places.blend, preprocess.tensor, size)
        two = self._two_images(inputs(0)[:2])
        self._entries = self._found_entries(outputs, two)
        first = {layer: self._taken(outputs[layer], 1, layer) for layer in self._layers}
        again: dict[str, Any] = {}
        self._pass(noise, again, Counter())
        _check_repeated(first, again)
        usual = {layer: tuple(values.shape[1:]) for layer, values in first.items()}
        taller, refusal = self._shapes((2 * height, width), channels)
        wider, second_refusal = self._shapes((height, 2 * width), channels)
        evidence = {
            layer: ShapeEvidence(
                layer=layer,
                module=self._modules.get(self._layers[layer], self._module),
                size=size,
                usual=usual[layer],
                taller=taller.get(layer),
                wider=wider.get(layer),
            )
            for layer in self._layers
        }
        return usual, self._layouts(evidence, inputs, two), refusal or second_refusal

    def _two_images(self, images: torch.Tensor) -> dict[str, Any]:
        outputs: dict[str, Any] = {}
        with suppress(*SIZE_ERRORS), service_errors("the target network"):
            self._pass(images, outputs, Counter())
            return outputs
        return {}  # the network takes one image at a time

    def _found_entries(self, one: Mapping[str, Any], two: Mapping[str, Any]) -> dict[str, Entry]:
        entries: dict[str, Entry] = {}
        for layer in {**self._layers, OUTPUT: OUTPUT}:
            try:
                self._compound[layer] = len(parts(one[layer])) > 1
                entries[layer] = find_entry(layer, one[layer], two.get(layer), self._asked.get(layer, ""))
            except UsageError as error:
                if layer in self._layers:
                    raise
                self._unreadable = error
        return entries

    def _layouts(
        self,
        evidence: Mapping[str, ShapeEvidence],
        inputs: Callable[[int], torch.Tensor],
        two: Mapping[str, Any],
    ) -> dict[str, OutputLayout]:
        inferred: dict[str, OutputLayout | None] = {}
        errors: dict[str, UsageError] = {}
        for layer, shapes in evidence.items():
            try:
                inferred[layer] = infer_layout(shapes)
            except UsageError as error:
                # The shape alone does not tell. Where the output changes as the image does may.
                if not layouts_by_shape(shapes) or grows(shapes):
                    raise
                inferred[layer], errors[layer] = None, error

        def run(batch: torch.Tensor) -> dict[str, torch.Tensor]:
            outputs: dict[str, Any] = {}
            self._pass(batch, outputs, Counter())
            return {layer: values[0] for layer, values in outputs.items()}

        with service_errors("the target network"):
            both = {layer: self._taken(two[layer], 2, layer) for layer in inferred if two}
            known = [{layer: values[n] for layer, values in both.items()} for n in range(2)] if two else []
            found = places.correct_layouts(evidence, inferred, run, inputs, known)
        layouts = {layer: each for layer, each in found.items() if each is not None}
        for layer, error in errors.items():
            if layer not in layouts:
                raise error
        return layouts

    def _shapes(self, size: tuple[int, int], channels: int) -> tuple[dict[str, OutputShape], str]:
        """The shapes for one image of a size, as far as the pass comes, and the message of its error."""
        outputs: dict[str, Any] = {}
        refusal = ""
        try:
            self._pass(torch.zeros(1, channels, *size), outputs, Counter())
        except SIZE_ERRORS as error:
            refusal = f"{type(error).__name__}: {str(error)[:200]}"
        return {layer: tuple(values.shape[1:]) for layer, values in outputs.items()}, refusal

    @contextmanager
    def _running(self, precision: Precision = "float32", *, has_gradients: bool = False) -> Generator[None]:
        mode = torch.enable_grad if has_gradients else torch.no_grad
        with torch.inference_mode(not has_gradients), mode(), uncompiled(), computing_in(precision, self._device):
            yield

    def _pass(
        self,
        batch: torch.Tensor,
        outputs: dict[str, Any],
        calls: Counter[str],
        device: torch.device = CPU,
        precision: Precision = "float32",
    ) -> None:
        """Adds the output of each layer: all tensors in it, until it is known which to read."""

        def catch(layer: str, output: Any) -> None:
            calls[layer] += 1
            outputs[layer] = (
                {name: each.detach().clone() for name, each in parts(output).items()}
                if layer not in self._entries
                else self._taken(output, len(batch), layer, device)
            )

        hooks = [
            self._modules[name].register_forward_hook(lambda _m, _i, output, layer=layer: catch(layer, output))
            for layer, name in self._layers.items()
            if name != OUTPUT
        ]
        try:
            with self._running(precision):
                output = self._module(batch.to(self._device, self._dtype))
        finally:
            for hook in hooks:
                hook.remove()
        for layer, name in self._layers.items():
            if name == OUTPUT:
                catch(layer, output)
        if not self._entries:
            outputs[OUTPUT] = parts(output)


def _is_leaf(module: nn.Module) -> bool:
    # A part of a TorchScript module cannot be hooked.
    return not any(module.children()) and not isinstance(module, torch.jit.ScriptModule)


def input_batches(
    preprocess: Preprocessing, views: Sequence[Pixels], device: torch.device, batch_size: int
) -> Iterator[tuple[list[int], torch.Tensor]]:
    """Yields the inputs of views of equal shape, at most `batch_size` at a time, with the indices of these views.

    Inputs are on the device, shape (images, channels, height, width).
    """
    groups: dict[OutputShape, list[int]] = {}
    for index, view in enumerate(views):
        groups.setdefault(view.shape, []).append(index)
    for group in groups.values():
        for first in range(0, len(group), batch_size):
            indices = group[first : first + batch_size]
            yield indices, preprocess.batch([views[i] for i in indices], device)


def try_types(module: nn.Module, attempt: Callable[[torch.dtype], None], shape: tuple[int, ...]) -> None:
    """Calls `attempt` with the types that a network's input may have, until it succeeds: float32, then those of its
    weights.

    Raises:
        UsageError: It fails with each. `shape` is that of the input, for the message.
    """
    # Only trying tells: the first parameter may be an embedding, and a network may convert its input itself.
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
    """Raises UsageError unless a layer, whose module is `name`, was called exactly once in a pass."""
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
