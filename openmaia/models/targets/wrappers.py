"""Networks as other parts of PyTorch wrap or compile them, and modules that they therefore do not call."""

import sys
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel

from openmaia.core.errors import UsageError
from openmaia.core.units import OUTPUT

# They call the network in their attribute `module`.
WRAPPERS = (nn.DataParallel, nn.parallel.DistributedDataParallel, AveragedModel)


def unwrap(module: nn.Module) -> tuple[nn.Module, str]:
    """Returns the network inside of wrappers, and the prefix of its modules' names there, such as `module.`."""
    prefix = ""
    while True:
        attribute = "module" if isinstance(module, WRAPPERS) else "_orig_mod"
        inner = dict(module.named_children()).get(attribute)
        if inner is None:
            return module, prefix
        module, prefix = inner, f"{prefix}{attribute}."


def is_exported(module: nn.Module) -> bool:
    """Returns whether a network is the module of a torch.export program."""
    return any(kind.__module__ == "torch.export._unlift" for kind in type(module).__mro__)


def uncompiled() -> AbstractContextManager[Any]:
    """In this context, what torch.compile compiled runs as written."""
    # Compiled code does not call hooks, and would be compiled anew for each size of the input.
    # Nothing is compiled before this module is loaded, and loading it takes a second.
    return torch.compiler.set_stance("force_eager") if "torch._dynamo" in sys.modules else nullcontext()


def check_hookable(layer: str, name: str, modules: Mapping[str, nn.Module]) -> None:
    """Raises UsageError unless the module `name` is called by Python, so that it can be hooked."""
    own = modules.get(name)
    is_closed = isinstance(own, torch.jit.ScriptModule) and (
        type(own).register_forward_hook is not nn.Module.register_forward_hook
    )
    if is_closed or any(isinstance(each, torch.jit.ScriptModule) for each in _around(name, modules)):
        raise UsageError(
            f"layer {layer!r} is a part of a TorchScript module (torch.jit.trace, torch.jit.script), whose modules cannot be "
            "hooked; give the nn.Module from which it was made, with its weights "
            f"(module.load_state_dict(SCRIPTED.state_dict())), or read the layer {OUTPUT!r}"
        )


def why_uncalled(name: str, modules: Mapping[str, nn.Module]) -> str:
    """Returns why a network does not call one of its modules, as a part of a sentence. Empty if unknown."""
    if any(isinstance(each, torch.fx.GraphModule) for each in _around(name, modules)):
        return ": it lies in a graph of torch.fx, which calls only some of its modules"
    return ": it is a list of modules" if isinstance(modules.get(name), nn.ModuleList | nn.ModuleDict) else ""


def _around(name: str, modules: Mapping[str, nn.Module]) -> list[nn.Module]:
    parts = name.split(".")
    outer = (".".join(parts[:depth]) for depth in range(len(parts) if name else 0))
    return [modules[each] for each in outer if each in modules]
