"""Loads the user's checkpoints. Code in a pickle is never run."""

import logging
import pickle
import re
import zipfile
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import torch
from safetensors.torch import load_file
from torch import nn
from torch.nn.parameter import is_lazy

from openmaia.core.errors import UsageError
from openmaia.core.paths import file_and_part
from openmaia.models.targets.wrappers import unwrap

_LOG = logging.getLogger(__name__)

StateDict = dict[str, Any]
"""Tensors, and the other values of which the state of some modules consists."""

# Data parallelism, compilation and activation checkpointing add these to the names of weights.
_MARKS = re.compile(r"(?<![^.])(module|_orig_mod|_fsdp_wrapped_module|_checkpoint_wrapped_module)\.")

# torchvision's DenseNet files are older than its modules: denselayer1.norm.1 became denselayer1.norm1.
OLD_DENSENET = re.compile(r"(denselayer\d+\.(?:norm|conv))\.(\d)")

# Of batch normalisation. Old files lack it, and only training reads it.
COUNTER = "num_batches_tracked"

DEPTH = 6  # nested mappings in which weights are looked for

# Bytes 4 to 8 of safetensors: the end of the length of the header, and its first character.
SAFE = b"\0\0\0\0{"

# What people take for a checkpoint: bytes, their offset, and what the file is.
OTHERS = (
    (b"\x89HDF", 0, "an HDF5 file, such as one of Keras"),
    (b"ustar", 257, "a tar archive; unpack it, and give the file inside of it"),
    (b"\x1f\x8b", 0, "compressed; unpack it, and give the file inside of it"),
    (b"version https://git-lfs", 0, "a pointer of Git LFS, whose file was not downloaded (git lfs pull)"),
    (b"{", 0, "a text, such as the index of a checkpoint in several files; join them in one"),
    (b"<", 0, "a web page, such as the answer to a failed download"),
)

_SHOWN = 3


def load_checkpoint(module: nn.Module, given: str) -> None:
    """Replaces all weights of a network, in place, by those of a checkpoint.

    They may lie anywhere in the checkpoint, below keys such as `state_dict` and `model` or under longer names as of a
    module that contains the network. A line of the log names what is left out. If the checkpoint of a classifier has
    another number of classes, the network's final layers are first replaced by layers with this number of outputs.

    Args:
        given: The path of a file of safetensors, or of a pickle that contains only tensors and plain values. `PATH#KEY`
            selects one of several sets of weights in it, by the beginning of their names.

    Raises:
        UsageError: The file cannot be read without running code, or its names and shapes do not match the network. Also
            if it holds several sets of weights that match, NaN or infinite values, or weights that are not plain
            floating-point tensors (such as quantised ones).
    """
    module, _ = unwrap(module)
    state = _matching(_values(_read(given)), module, given)
    _check_values(state, given)
    _adopt_classes(module, state)
    own = module.state_dict()
    misshapen = [
        f"{name} {tuple(state[name].shape)} instead of {tuple(own[name].shape)}"
        for name in own
        if name in state and _is_misshapen(state[name], own[name])
    ]
    # The error message of strict=True is long and does not name the config key.
    matching = {name: value for name, value in state.items() if name not in own or not _is_misshapen(value, own[name])}
    report = module.load_state_dict(matching, strict=False)
    missing = [name for name in report.missing_keys if name not in state]
    unexpected = [name for name in report.unexpected_keys if not name.endswith(COUNTER)]
    problems = {"missing": missing, "unexpected": unexpected, "of another shape": misshapen}
    if any(problems.values()):
        summary = "; ".join(f"{kind}: {_some(names)}" for kind, names in problems.items() if names)
        raise UsageError(
            f"target.weights={given!r} does not fit this network. {summary}. Give a checkpoint of the same architecture, "
            "or the architecture of the checkpoint as target.network"
        )


def check_file(given: str) -> Path:
    """Returns the path of a checkpoint, `given` as for `load_checkpoint`. Raises UsageError if there is none, or if its
    first bytes are not of one. Its name does not matter."""
    path, _ = file_and_part(given)
    what = f"target.weights={given!r}"
    if path.is_dir():
        raise UsageError(f"{what} is a folder; give a file of safetensors or torch.save")
    if not path.is_file():
        raise UsageError(f"{what}: there is no such file; give a file of safetensors or torch.save")
    with path.open("rb") as file:
        head = file.read(512)
    if head[:4] != b"PK\x03\x04" and head[:1] != b"\x80" and head[4:9] != SAFE:
        found = (text for magic, offset, text in OTHERS if head[offset:].startswith(magic))
        kind = next(found, "empty" if not head else f"of an unknown format (it begins with {head[:8]!r})")
        raise UsageError(f"{what} is {kind}. Expected a file of safetensors or torch.save, whatever its name")
    return path


def _read(given: str) -> Any:
    path = check_file(given)
    try:
        with path.open("rb") as file:  # By a path, PyTorch would look at the suffix.
            head = file.read(9)
            file.seek(0)
            if head[4:] == SAFE:
                return load_file(path)
            if head[:1] == b"P":
                _check_archive(path, given)
            return torch.load(file, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise UsageError(
            f"target.weights={given!r} is a pickle of more than tensors and plain values{_classes(path)}, and would have to "
            "run code to be read; nothing of it was run. Save the state_dict alone (torch.save(model.state_dict(), …), or "
            "better safetensors); if you trust the file, torch.save(torch.load(FILE, weights_only=False)[KEY], …)",
            detail=str(error),
        ) from error
    except UsageError:
        raise
    except Exception as error:  # a damaged pickle raises almost anything
        raise UsageError(f"target.weights={given!r} does not fit: it cannot be read ({str(error)[:200]})") from error


def _check_archive(path: Path, given: str) -> None:
    """Refuses zip archives that are not of torch.save, without reading their pickle."""
    with zipfile.ZipFile(path) as archive:
        names = {name.partition("/")[2] for name in archive.namelist()}
    what = f"target.weights={given!r}"
    if "constants.pkl" in names:
        raise UsageError(
            f"{what} is a TorchScript program; save its weights (torch.save(torch.jit.load(FILE).state_dict(), …)), and give "
            "its architecture as target.network"
        )
    if "archive_format" in names:
        raise UsageError(
            f"{what} is a program of torch.export; save its weights (torch.save(torch.export.load(FILE).state_dict, …)), and "
            "give its architecture as target.network"
        )
    if "data.pkl" not in names:
        raise UsageError(f"{what} is a zip archive of another program. Expected a file of safetensors or torch.save")


def _classes(path: Path) -> str:
    """The classes because of which a pickle is refused, as a part of a sentence. Nothing is run."""
    try:
        names = torch.serialization.get_unsafe_globals_in_checkpoint(path)
    except Exception:  # a pickle of another layout, or a damaged one
        return ""
    return f" ({_some(names)})" if names else ""


def _values(content: Any) -> StateDict:
    """All values in a checkpoint, nested names joined with dots, without the state of optimizers."""
    found: StateDict = {}
    seen: set[int] = set()

    def collect(values: Mapping[Any, Any], prefix: str, depth: int) -> None:
        seen.add(id(values))  # The file may refer to one mapping in many places.
        for key, value in values.items():
            if not isinstance(key, str) or key.startswith("optim"):
                continue
            found[f"{prefix}{key}"] = value
            if isinstance(value, Mapping) and depth < DEPTH and id(cast(object, value)) not in seen:
                collect(cast(Mapping[Any, Any], value), f"{prefix}{key}.", depth + 1)

    if isinstance(content, Mapping):
        collect(cast(Mapping[Any, Any], content), "", 1)
    return found


def _matching(values: StateDict, module: nn.Module, given: str) -> StateDict:
    """The values that belong to a network, by its own names.

    Their names in the checkpoint have the same beginning: the one below which all names of the network are found, or
    most. Raises UsageError if there are none, or several sets of them that differ.
    """
    own = module.state_dict()
    _, part = file_and_part(given)
    asked = f"{part.strip('.')}.".lstrip(".")
    if not any(_MARKS.search(name) for name in own):
        plain = {_MARKS.sub("", name): value for name, value in values.items()}
        values, asked = (plain, _MARKS.sub("", asked)) if len(plain) == len(values) else (values, asked)
    if not any(OLD_DENSENET.search(name) for name in own):
        values = {OLD_DENSENET.sub(r"\1\2", name): value for name, value in values.items()}
    below = {name: value for name, value in values.items() if name.startswith(asked)}
    if not any(isinstance(value, torch.Tensor) for value in below.values()):
        raise UsageError(
            f"target.weights={given!r} holds no state_dict; expected names and tensors, possibly below other keys"
        )
    stem, prefixes = _prefixes(below, own)
    names = {name.removeprefix(stem): name for name in own if not name.endswith(COUNTER)}
    complete = [
        prefix
        for prefix in prefixes
        if all(_resemble(below.get(f"{prefix}{short}"), own[name]) for short, name in names.items())
    ]
    prefix = asked if part and asked in complete else (complete or prefixes)[0]
    others = [each for each in complete if each != prefix and not _are_equal(below, prefix, each, names)]
    if others and not (part and asked == prefix):
        listed = ", ".join(repr(each.rstrip(".") or ".") for each in [prefix, *others])
        raise UsageError(
            f"target.weights={given!r} holds several sets of weights that fit this network: {listed}. Say which, as in "
            f"target.weights={f'{given}#{others[0][:-1]}'!r}"
        )
    inner = [f"{name}." for name, value in own.items() if not isinstance(value, torch.Tensor)]
    inner += [each.removeprefix(prefix) for each in complete if each != prefix and each.startswith(prefix)]
    state = {
        stem + name: value
        for long, value in below.items()
        if long.startswith(prefix)
        and not (name := long.removeprefix(prefix)).startswith(tuple(inner))
        and (isinstance(value, torch.Tensor) or stem + name in own)
    }
    if complete:
        _say_left_out(given, prefix, values, {f"{prefix}{name.removeprefix(stem)}" for name in state})
    return state


def _say_left_out(given: str, prefix: str, values: StateDict, used: set[str]) -> None:
    left = Counter(
        name.partition(".")[0]
        for name, value in values.items()
        if isinstance(value, torch.Tensor) and not any(name == each or name.startswith(f"{each}.") for each in used)
    )
    if left:
        listed = ", ".join(f"{name} ({count})" for name, count in left.items())
        _LOG.warning("%s: the weights are those of %r; tensors left out: %s", given, prefix.rstrip("."), listed)


def _prefixes(values: StateDict, own: StateDict) -> tuple[str, list[str]]:
    """(The beginning of all the network's names that the checkpoint lacks, the beginnings in the checkpoint below which
    names of the network are found, that with most of them first). Both are empty if none are found."""
    stem = ""
    while True:
        wanted = {name.removeprefix(stem) for name in own}
        found: Counter[str] = Counter()
        for name in values:
            parts = name.split(".")
            starts = (".".join((*parts[:depth], "")) for depth in range(len(parts)))
            found.update(start for start in starts if name.removeprefix(start) in wanted)
        if found:
            return stem, [prefix for prefix, _ in found.most_common()]
        outer = {name.partition(".")[0] for name in wanted if "." in name}
        if len(outer) != 1 or not all("." in name for name in wanted):
            return "", [""]
        stem += f"{outer.pop()}."


def _are_equal(values: StateDict, first: str, second: str, names: Mapping[str, str]) -> bool:
    pairs = ((values[f"{first}{name}"], values[f"{second}{name}"]) for name in names)
    return all(torch.equal(one, other) if isinstance(one, torch.Tensor) else one == other for one, other in pairs)


def _resemble(value: Any, own: Any) -> bool:
    """Whether a value may be that of a network, which may have another number of outputs."""
    if not isinstance(own, torch.Tensor) or is_lazy(own):
        return value is not None
    return isinstance(value, torch.Tensor) and (value.shape == own.shape or value.shape[1:] == own.shape[1:] != ())


def _is_misshapen(value: Any, own: Any) -> bool:
    # Weights of lazy modules take any shape.
    are_tensors = isinstance(value, torch.Tensor) and isinstance(own, torch.Tensor)
    return are_tensors and not is_lazy(own) and value.shape != own.shape


def _check_values(state: StateDict, path: str) -> None:
    problems: dict[str, list[str]] = {}
    for name, tensor in state.items():
        if not isinstance(tensor, torch.Tensor):
            continue
        if tensor.is_meta or tensor.is_quantized or tensor.layout is not torch.strided:
            problems.setdefault("not stored as plain numbers", []).append(name)
        elif tensor.is_floating_point():
            if not tensor.isfinite().all():
                problems.setdefault("not finite", []).append(name)
        # Integers are right elsewhere: the counter of batch normalisation, and tables of indices.
        elif name.endswith((".weight", ".bias")):
            problems.setdefault(f"of the type {tensor.dtype}".replace("torch.", ""), []).append(name)
    if problems:
        summary = "; ".join(f"{kind}: {_some(names)}" for kind, names in problems.items())
        raise UsageError(
            f"target.weights={path!r} has weights that are {summary}. Give a checkpoint with finite floating-point weights"
        )


def _adopt_classes(module: nn.Module, state: StateDict) -> None:
    """Replaces the final layers of a classifier by layers with as many outputs as the checkpoint has.

    A final layer is a linear layer or convolution that differs from the checkpoint only in its number of outputs, or an
    identity for which the checkpoint has a linear layer. If the final layers have different numbers of outputs in the
    checkpoint, nothing is replaced.
    """
    heads: dict[str, nn.Module] = {}
    for name, layer in module.named_modules():
        weight = state.get(f"{name}.weight")
        if weight is None or is_lazy(cast(Any, getattr(layer, "weight", None))):
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
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more
