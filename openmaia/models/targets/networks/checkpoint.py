"""Loads the user's checkpoints. Code in a pickle is never run."""

import pickle
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import torch
from safetensors.torch import load_file
from torch import nn

from openmaia.core.errors import UsageError
from openmaia.core.paths import user_path

StateDict = dict[str, torch.Tensor]

WRAPPERS = ("state_dict", "model_state_dict", "model")
"""Keys under which training programs store the weights in a checkpoint that also has other content."""

PREFIXES = ("module.", "_orig_mod.", "model.", "net.")
"""Prefixes that data parallelism, compilation and wrapping modules add to the name of every weight."""

SAFE = ".safetensors"
"""Suffix of checkpoints that hold tensors and nothing else."""

PICKLED = (".pt", ".pth", ".bin", ".ckpt")
"""Suffixes of checkpoints that are pickles."""

SHOWN = 3
"""Largest number of weights that an error message names for each kind of mismatch with a network."""


def load_checkpoint(module: nn.Module, path: str) -> None:
    """Replaces all weights of a network by those of a checkpoint.

    If the checkpoint of a classifier has another number of classes, the network's final layers are first replaced by
    layers with this number of outputs.

    Args:
        module: The network, which is changed.
        path: A .safetensors file, or a pickle that contains only tensors and plain values.

    Raises:
        UsageError: The file cannot be read without running code, or its names and shapes do not match the network.
            Also if it holds NaN or infinite values, or weights that are not plain floating-point tensors (such as
            quantised ones).
    """
    state = _renamed(_unwrapped(_read(path), path), module)
    _check_values(state, path)
    _adopt_classes(module, state)
    own = module.state_dict()
    misshapen = [
        f"{name} {tuple(state[name].shape)} instead of {tuple(own[name].shape)}"
        for name in own
        if name in state and state[name].shape != own[name].shape
    ]
    # The error message of strict=True is long and does not name the config key.
    matching = {name: tensor for name, tensor in state.items() if name not in own or tensor.shape == own[name].shape}
    report = module.load_state_dict(matching, strict=False)
    missing = [name for name in report.missing_keys if name not in state]
    problems = {"missing": missing, "unexpected": report.unexpected_keys, "of another shape": misshapen}
    if any(problems.values()):
        summary = "; ".join(f"{kind}: {_some(names)}" for kind, names in problems.items() if names)
        raise UsageError(
            f"target.weights={path!r} does not fit this network. {summary}. Give a checkpoint of the same architecture, "
            "or the architecture of the checkpoint as target.network"
        )


def check_file(given: str) -> Path:
    """Returns the path of a checkpoint file. The content is not read.

    Args:
        given: The path as the user gave it.

    Raises:
        UsageError: There is no such file, or it does not have a suffix of a checkpoint (see SAFE and PICKLED).
    """
    path = user_path(given)
    if not path.is_file():
        raise UsageError(f"target.weights={given!r}: there is no such file; give a .safetensors, .pt or .pth file")
    if path.suffix.lower() not in (SAFE, *PICKLED):
        raise UsageError(f"target.weights={given!r}: expected a .safetensors, .pt or .pth file")
    return path


def _read(given: str) -> Any:
    path = str(check_file(given))
    try:
        if path.lower().endswith(SAFE):
            return load_file(path)
        return torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise UsageError(
            f"target.weights={path!r} is a pickle of more than tensors and plain values, and would have to run code to "
            "be read; nothing of it was run. Save the state_dict alone (torch.save(model.state_dict(), …), or better "
            "safetensors)",
            detail=str(error),
        ) from error
    except Exception as error:  # a damaged pickle raises almost anything
        raise UsageError(f"target.weights={path!r} does not fit: it cannot be read ({str(error)[:200]})") from error


def _unwrapped(content: Any, path: str) -> StateDict:
    for wrapper in WRAPPERS:
        if isinstance(content, Mapping) and isinstance(content.get(wrapper), Mapping):
            content = cast(Any, content)[wrapper]
    if isinstance(content, Mapping):
        state = cast(Mapping[Any, Any], content)
        if state and all(isinstance(name, str) and isinstance(tensor, torch.Tensor) for name, tensor in state.items()):
            return dict(state)
    raise UsageError(
        f"target.weights={path!r} holds no state_dict; expected names and tensors, possibly below one of "
        f"{', '.join(WRAPPERS)}"
    )


def _check_values(state: StateDict, path: str) -> None:
    """Checks that the weights are stored floating-point numbers, and all numbers finite.

    Batch normalisation has a counter (num_batches_tracked) and some networks tables of indices, which are integers.

    Raises:
        UsageError: They are not.
    """
    problems: dict[str, list[str]] = {}
    for name, tensor in state.items():
        if tensor.is_meta or tensor.is_quantized or tensor.layout is not torch.strided:
            problems.setdefault("not stored as plain numbers", []).append(name)
        elif tensor.is_floating_point():
            if not tensor.isfinite().all():
                problems.setdefault("not finite", []).append(name)
        elif name.endswith((".weight", ".bias")):
            problems.setdefault(f"of the type {tensor.dtype}".replace("torch.", ""), []).append(name)
    if problems:
        summary = "; ".join(f"{kind}: {_some(names)}" for kind, names in problems.items())
        raise UsageError(
            f"target.weights={path!r} has weights that are {summary}. Give a checkpoint with finite floating-point weights"
        )


def _renamed(state: StateDict, module: nn.Module) -> StateDict:
    own = set(module.state_dict())
    while prefix := next((p for p in PREFIXES if all(name.startswith(p) for name in state)), ""):
        if any(name.startswith(prefix) for name in own):
            break
        state = {name.removeprefix(prefix): tensor for name, tensor in state.items()}
    # torchvision's DenseNet files are older than its module names: denselayer1.norm.1 became denselayer1.norm1.
    modern = {re.sub(r"(denselayer\d+\.(?:norm|conv))\.(\d)", r"\1\2", name): tensor for name, tensor in state.items()}
    return modern if set(modern) == own else state


def _adopt_classes(module: nn.Module, state: StateDict) -> None:
    """Replaces the final layers of a classifier by layers with as many outputs as the checkpoint has.

    A final layer is a linear layer or convolution that differs from the checkpoint only in its number of outputs, or an
    identity for which the checkpoint has a linear layer. If the final layers have different numbers of outputs in the
    checkpoint, nothing is replaced.
    """
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
