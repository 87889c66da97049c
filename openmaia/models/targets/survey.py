"""Lists the layers of a network with their numbers of units, from the shapes of outputs alone."""

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from openmaia.core.errors import UsageError
from openmaia.core.units import OUTPUT
from openmaia.models.targets.forward import SIZE_ERRORS, check_called_once, try_types
from openmaia.models.targets.maps import OutputShape, ShapeEvidence, arrange, infer_layout
from openmaia.models.targets.outputs import Entry, find_entry, take
from openmaia.models.targets.preprocess import TargetNetwork
from openmaia.models.targets.wrappers import check_hookable, uncompiled, unwrap


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerSurvey:
    """The layers of a network, and the modules that cannot be layers."""

    units: Mapping[str, int]
    """Number of units by layer: first the aliases, then the modules in the network's order, then OUTPUT."""
    unusable: Mapping[str, str]
    """Why a module cannot be a layer, by the name that the layer would have."""


@dataclass(slots=True)
class _Pass:
    """By module name."""

    outputs: dict[str, Any]
    calls: Counter[str]


def survey(network: TargetNetwork, layers: Collection[str] = ()) -> LayerSurvey:
    """Lists layers and what cannot be one, of those named or of all.

    For this the network runs on one and on two images of its own size, and on inputs of twice the height and twice the
    width. It may be on PyTorch's meta device, where tensors have shapes but no values: where in the image positions are
    is not found out.

    Raises:
        UsageError: The network does not accept an input of the size that its preprocessing yields.
    """
    height, width = network.preprocess.size
    inner, _ = unwrap(network.module)
    modules = dict(inner.named_modules())
    names = {layer: name for layer, name in layer_names(network).items() if not layers or layer in layers}
    usual, two, taller, wider = (_Pass({}, Counter()) for _ in range(4))
    channels, accepted = network.preprocess.channels, torch.float32

    def attempt(dtype: torch.dtype) -> None:
        nonlocal usual, accepted
        usual, accepted = _Pass({}, Counter()), dtype
        _run(inner, names.values(), (1, channels, height, width), dtype, usual)

    try_types(inner, attempt, (1, channels, height, width))
    more = ((2, height, width), two), ((1, 2 * height, width), taller), ((1, height, 2 * width), wider)
    for (images, *size), found in more:
        try:
            _run(inner, names.values(), (images, channels, *size), accepted, found)
        except SIZE_ERRORS:
            continue  # as a classifier of fixed size; the layers before its end have shapes
    units: dict[str, int] = {}
    unusable: dict[str, str] = {}
    for layer, module_name in names.items():
        try:
            if module_name != OUTPUT:
                check_hookable(layer, module_name, modules)
            check_called_once(layer, usual.calls[module_name], module_name, modules)
            entry = find_entry(
                layer, usual.outputs[module_name], two.outputs.get(module_name), network.entries.get(layer, "")
            )
            shape = _shape(usual, module_name, entry)
            assert shape is not None  # as find_entry has found it
            evidence = ShapeEvidence(
                layer=layer,
                module=modules.get(module_name, inner),
                size=(height, width),
                usual=shape,
                taller=_shape(taller, module_name, entry),
                wider=_shape(wider, module_name, entry),
            )
            units[layer] = arrange(torch.zeros(1, *shape), infer_layout(evidence), (height, width), layer).shape[1]
        except UsageError as error:
            unusable[layer] = error.message
    return LayerSurvey(units=units, unusable=unusable)


def layer_names(network: TargetNetwork) -> dict[str, str]:
    """Returns all names that a config may use, with their modules. Some have an output without units."""
    modules = {name: name for name, _ in unwrap(network.module)[0].named_modules() if name}
    return {**network.aliases, **modules, OUTPUT: OUTPUT}


def _shape(found: _Pass, name: str, entry: Entry) -> OutputShape | None:
    try:
        return tuple(take(found.outputs.get(name), entry, 1, name).shape[1:])
    except UsageError:
        return None


def _run(
    module: torch.nn.Module, names: Collection[str], shape: tuple[int, ...], dtype: torch.dtype, found: _Pass
) -> None:
    def catch(name: str, output: Any) -> None:
        found.calls[name] += 1
        found.outputs[name] = output

    hooks = [
        each.register_forward_hook(lambda _m, _i, output, name=name: catch(name, output))
        for name, each in module.named_modules()
        if name in names and type(each).register_forward_hook is torch.nn.Module.register_forward_hook
    ]
    device = next((parameter.device for parameter in module.parameters()), torch.device("cpu"))
    try:
        with torch.inference_mode(), uncompiled():
            catch(OUTPUT, module(torch.zeros(shape, device=device, dtype=dtype)))
    finally:
        for hook in hooks:
            hook.remove()
