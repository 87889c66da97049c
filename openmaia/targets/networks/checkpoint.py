"""Checkpoints of the user's own, read without running anything that a pickle may hold."""

import pickle
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import nn

from openmaia.errors import UsageError

State = dict[str, torch.Tensor]

WRAPPERS = ("state_dict", "model_state_dict", "model")
"""Where training programs put the weights beside optimisers and epochs."""

PREFIXES = ("module.", "_orig_mod.", "model.", "net.")
"""What data parallelism, compilation and wrapping modules put before every name."""

PICKLED = (".pt", ".pth", ".bin", ".ckpt")

SHOWN = 3


def load_checkpoint(module: nn.Module, path: str) -> None:
    """Replaces all weights. A classifier of another number of classes takes the checkpoint's.

    Raises UsageError for a file that cannot be read as nothing but tensors, or does not fit.
    """
    state = _renamed(_unwrapped(_read(path), path), module)
    _fit_classes(module, state)
    own = module.state_dict()
    misshapen = [
        f"{name} {tuple(state[name].shape)} instead of {tuple(own[name].shape)}"
        for name in own
        if name in state and state[name].shape != own[name].shape
    ]
    # Not with strict=True: its message is long, and says nothing of where the file was named.
    fitting = {name: tensor for name, tensor in state.items() if name not in own or tensor.shape == own[name].shape}
    found = module.load_state_dict(fitting, strict=False)
    missing = [name for name in found.missing_keys if name not in state]
    problems = {"missing": missing, "unexpected": found.unexpected_keys, "of another shape": misshapen}
    if any(problems.values()):
        told = "; ".join(f"{kind}: {_some(names)}" for kind, names in problems.items() if names)
        raise UsageError(
            f"target.weights={path!r} does not fit this network. {told}. Give a checkpoint of the same architecture, "
            "or the architecture of the checkpoint as target.network"
        )


def _read(path: str) -> Any:
    if not Path(path).is_file():
        raise UsageError(f"target.weights={path!r}: there is no such file; give a .safetensors, .pt or .pth file")
    suffix = Path(path).suffix.lower()
    try:
        if suffix == ".safetensors":
            return load_file(path)
        if suffix in PICKLED:
            return torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise UsageError(
            f"target.weights={path!r} is a pickle of more than tensors and plain values, and would have to run code to "
            "be read; nothing of it was run. Save the state_dict alone (torch.save(model.state_dict(), …), or better "
            "safetensors)",
            detail=str(error),
        ) from error
    except (SafetensorError, RuntimeError, EOFError, OSError, ValueError, KeyError, AttributeError) as error:
        raise UsageError(f"target.weights={path!r} does not fit: it cannot be read ({str(error)[:200]})") from error
    raise UsageError(f"target.weights={path!r}: expected a .safetensors, .pt or .pth file")


def _unwrapped(read: Any, path: str) -> State:
    for wrapper in WRAPPERS:
        if isinstance(read, Mapping) and isinstance(read.get(wrapper), Mapping):
            read = cast(Any, read)[wrapper]
    if isinstance(read, Mapping) and read and all(isinstance(value, torch.Tensor) for value in read.values()):
        return dict(cast(Mapping[str, torch.Tensor], read))
    raise UsageError(
        f"target.weights={path!r} holds no state_dict; expected names and tensors, possibly below one of "
        f"{', '.join(WRAPPERS)}"
    )


def _renamed(state: State, module: nn.Module) -> State:
    own = set(module.state_dict())
    while prefix := next((p for p in PREFIXES if all(name.startswith(p) for name in state)), ""):
        if any(name.startswith(prefix) for name in own):
            break
        state = {name.removeprefix(prefix): tensor for name, tensor in state.items()}
    # torchvision's DenseNet files are older than its names: denselayer1.norm.1 has become denselayer1.norm1.
    modern = {re.sub(r"(denselayer\d+\.(?:norm|conv))\.(\d)", r"\1\2", name): tensor for name, tensor in state.items()}
    return modern if set(modern) == own else state


def _fit_classes(module: nn.Module, state: State) -> None:
    """Linear layers and convolutions that differ from the checkpoint in nothing but their number of outputs are
    classifiers, and so is an identity that the checkpoint has a linear layer for. All must have the same number."""
    heads: dict[str, nn.Module] = {}
    for name, layer in module.named_modules():
        weight = state.get(f"{name}.weight")
        if weight is None:
            continue
        bias = f"{name}.bias" in state
        if isinstance(layer, nn.Identity) and weight.ndim == 2:
            heads[name] = nn.Linear(weight.shape[1], weight.shape[0], bias=bias)
        elif isinstance(layer, (nn.Linear, nn.Conv2d)) and layer.weight.shape != weight.shape:
            if layer.weight.shape[1:] != weight.shape[1:] or (layer.bias is not None) != bias:
                return
            heads[name] = _with_outputs(layer, weight.shape[0])
    if len({state[f"{name}.weight"].shape[0] for name in heads}) == 1:
        for name, head in heads.items():
            module.set_submodule(name, head)


def _with_outputs(layer: nn.Linear | nn.Conv2d, outputs: int) -> nn.Module:
    bias = layer.bias is not None
    if isinstance(layer, nn.Linear):
        return nn.Linear(layer.in_features, outputs, bias=bias)
    kernel = cast(tuple[int, int], layer.kernel_size)
    return nn.Conv2d(layer.in_channels, outputs, kernel, cast(Any, layer.stride), cast(Any, layer.padding), bias=bias)


def _some(names: list[str]) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more
