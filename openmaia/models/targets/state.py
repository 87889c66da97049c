"""The state of a network (weights, and what else its modules keep), its digest, and networks that have none yet."""

import hashlib
import io
import pickle
import pickletools
import re
import zipfile
from collections.abc import Iterable, Mapping
from typing import Any, cast

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from openmaia.core.errors import UsageError
from openmaia.models.targets.wrappers import is_exported, unwrap

_PLAIN = (bool, int, float, complex, str, bytes, torch.dtype, torch.device)  # told apart by their text

_SHOWN = 3


def check_state(module: nn.Module) -> None:
    """Checks that a network can be measured as it is.

    Raises:
        UsageError: Weights have no values yet, as those of lazy modules and on PyTorch's meta device. Or the network is
            a program of torch.export, which has neither an evaluation mode nor modules that can be hooked.
    """
    if is_exported(module):
        raise UsageError(
            "the network is a program of torch.export, which has no evaluation mode and no modules that can be hooked; give "
            "the nn.Module from which it was exported (module.load_state_dict(PROGRAM.state_dict)), or "
            "torch.export.unflatten(PROGRAM)"
        )
    named = [*module.named_parameters(), *module.named_buffers()]
    if lazy := [name for name, each in named if is_lazy(each)]:
        raise UsageError(
            f"the network has lazy modules without weights ({_some(lazy)}); run it once on an input of its training, and "
            "load its weights, before it is given"
        )
    if empty := [name for name, each in named if each.is_meta]:
        raise UsageError(
            f"the network has weights without values, on PyTorch's meta device ({_some(empty)}); load them first "
            "(module.load_state_dict(STATE, assign=True)), and load without device_map or offloading"
        )


def network_state(module: nn.Module) -> list[tuple[str, Any]]:
    """Returns what determines a network's responses, apart from its code: its state_dict without the names of wrappers.

    For a TorchScript module it is the content of its archive, because constants and packed weights are not in the
    state_dict.
    """
    inner, _ = unwrap(module)
    programs: dict[str, torch.jit.ScriptModule] = {}
    for name, each in inner.named_modules():
        if isinstance(each, torch.jit.ScriptModule) and not any(
            not outer or name.startswith(f"{outer}.") for outer in programs
        ):
            programs[name] = each
    return [
        *inner.state_dict().items(),
        *((f"{name} (TorchScript)", _program(each)) for name, each in programs.items()),
    ]


def weights_digest(state: Iterable[tuple[str, Any]]) -> str:
    """Returns the SHA-256 of a state (see `network_state`) in hexadecimal.

    It depends on the shape, type and values of a tensor, and not on its strides and its device. Quantized, sparse and
    nested tensors, and values that are no tensors, count with all that they consist of.

    Raises:
        UsageError: A tensor has no values (see `check_state`), or a value cannot be pickled.
    """
    total = hashlib.sha256()
    for name, value in sorted(state, key=lambda item: item[0]):
        total.update(name.encode())
        try:
            _add(total, value)
        except (pickle.PicklingError, TypeError, AttributeError, NotImplementedError) as error:
            raise UsageError(
                f"the network's state {name!r} has no content that can be compared ({error}); let get_extra_state return "
                "tensors and plain values"
            ) from error
    return total.hexdigest()


def _add(total: Any, value: Any) -> None:
    if isinstance(value, torch.Tensor):
        _add_tensor(total, value)
    elif isinstance(value, Mapping):
        items = cast(Mapping[Any, Any], value)
        _add(total, [each for key in sorted(items, key=repr) for each in (key, items[key])])
    elif isinstance(value, list | tuple):
        total.update(f"[{len(cast(Any, value))}]".encode())
        for each in cast(Iterable[Any], value):
            _add(total, each)
    elif isinstance(value, set | frozenset):
        _add(total, sorted(cast(Iterable[Any], value), key=repr))
    elif value is None or isinstance(value, _PLAIN):
        total.update(f"{type(value).__name__} {value!r}".encode())
    else:
        try:
            content: Any = pickle.dumps(value, protocol=4)
        except (pickle.PicklingError, TypeError, AttributeError):
            if not getattr(value, "__dict__", None):  # as a lock or a function
                raise
            content = [type(value).__qualname__, vars(value)]
        _add(total, content)


def _add_tensor(total: Any, tensor: torch.Tensor) -> None:
    if is_lazy(tensor) or tensor.is_meta:
        raise UsageError(
            "the network has weights without values (lazy modules, or PyTorch's meta device); load them first"
        )
    if (parts := _parts(tensor)) is not None:
        _add(total, parts)
        return
    total.update(f"{tuple(tensor.shape)}{tensor.dtype}".encode())
    if not tensor.ndim:
        total.update(str(tensor.item()).encode())
        return
    # A tensor may count as contiguous and still have other strides along axes of length 1. A copy has not.
    plain = tensor.detach().cpu().resolve_conj().resolve_neg().clone(memory_format=torch.contiguous_format)
    total.update(plain.view(torch.uint8).numpy().tobytes())


def _parts(tensor: torch.Tensor) -> Any:
    """What a tensor consists of that is not stored as plain numbers. None for any other."""
    if tensor.is_quantized:
        if tensor.qscheme() in (torch.per_tensor_affine, torch.per_tensor_symmetric):
            scale: Any = (tensor.q_scale(), tensor.q_zero_point())
        else:
            scale = (tensor.q_per_channel_scales(), tensor.q_per_channel_zero_points(), tensor.q_per_channel_axis())
        return [tensor.dtype, tensor.int_repr(), scale]
    if hasattr(tensor, "__tensor_flatten__"):
        names, context = cast(Any, tensor).__tensor_flatten__()
        return [type(tensor).__qualname__, {name: getattr(tensor, name) for name in names}, context]
    if tensor.is_nested:
        return tensor.unbind()
    if tensor.layout is torch.strided:
        return None
    if tensor.layout.__str__().startswith("torch.sparse"):
        sparse = tensor.detach().to_sparse_coo().coalesce()
        return [str(tensor.layout), tuple(tensor.shape), sparse.indices(), sparse.values()]
    return [str(tensor.layout), tensor.detach().to_dense()]


def _program(module: torch.jit.ScriptModule) -> list[str]:
    """Code, attributes, and digests of constants and weights: the same whatever other TorchScript modules the process
    has, after which PyTorch numbers its classes."""
    stored = io.BytesIO()
    torch.jit.save(module, stored)
    found: set[str] = set()
    with zipfile.ZipFile(stored) as archive:
        for path in archive.namelist():
            name, content = path.partition("/")[2], archive.read(path)
            if name.endswith(".py"):  # Its name says only in which order classes were compiled.
                parts = re.split(r"^(?=class |def )", content.decode(), flags=re.MULTILINE)
                found.update(_ordered(part) for part in parts)
            elif name.endswith(".pkl"):  # Its operations are listed and not executed.
                steps = [(step.name, _unnumbered(str(value))) for step, value, _ in pickletools.genops(content)]
                found.add(f"{name} {steps}")
            elif name.startswith(("data/", "constants/")):
                found.add(f"{name} {hashlib.sha256(content).hexdigest()}")
    return sorted(found)


def _unnumbered(text: str) -> str:
    return re.sub(r"\.___torch_mangle_\d+", "", text)


def _ordered(code: str) -> str:
    """Sorts the attributes of a class, whose order is random, and numbers its variables by their order in it."""
    head, mark, body = _unnumbered(code).partition("\n  def ")
    numbers: dict[str, int] = {}
    body = re.sub(r"\b_\d+\b", lambda found: f"_{numbers.setdefault(found[0], len(numbers))}", mark + body)
    return "\n".join(sorted(head.split("\n"))) + body.rstrip()


def _some(names: list[str]) -> str:
    return ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")
