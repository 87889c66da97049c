"""Turns the arguments of the Python API into a config. Objects of the caller, such as a `torch.nn.Module`, are kept
beside it and replace what it names.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from openmaia.config import environment, uses
from openmaia.config.loading import (
    changed_keys,
    config_keys,
    given_keys,
    is_free,
    load,
    refuse_unused_by,
    restore,
)
from openmaia.config.named import find_config
from openmaia.config.schema import Config
from openmaia.core.components import ALIASES
from openmaia.core.errors import UsageError
from openmaia.core.selection import split_units
from openmaia.core.services import Backbone
from openmaia.runs.files import safe

if TYPE_CHECKING:
    from openmaia.datasets.memory import IndexedImages
    from openmaia.models.targets.borrowed import Model
    from openmaia.models.targets.preprocess import Preprocess
    from openmaia.models.targets.transforms import Transform

    NetworkSource = Model | Config | str | Path | Sequence[str]
    """A module, the name of a network such as `torchvision:resnet18`, or a config: an object, a file, or files and
    overrides."""

_GIVEN = {"pictures.kind": "python"}
"""The config values for images that the caller passed."""

_PERSON = ("tools", "task.name")
"""Config keys that a person uses, and an agent without a language model does not."""

_SETTINGS = (".yaml", ".yml")
"""Suffixes of config files."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """A config, and objects that replace what it names. If one is None, the config determines it."""

    config: Config
    spec: str
    """The units, in the syntax of the config key `units`; empty for those of the config."""
    model: "Model | None" = None
    preprocess: "Transform | Preprocess | None" = None
    images: "IndexedImages | Iterable[Any] | None" = None
    backbone: Backbone | None = None
    is_cached_by_content: bool = False
    """Whether the folder of the exemplars is named by a hash of what they depend on, and not by the config."""


def configure(
    model: Any,
    spec: str,
    *,
    images: "str | Path | Mapping[str, Any] | IndexedImages | Iterable[Any] | None" = None,
    preprocess: "Transform | Preprocess | Mapping[str, Any] | None" = None,
    backbone: "str | Mapping[str, Any] | Backbone | None" = None,
    overrides: Mapping[str, Any],
    function: str,
) -> Inputs:
    """Turns the arguments of a function such as `openmaia.investigate` into a config.

    Args:
        model: A `torch.nn.Module`, the name of a network, or a config: a `Config` object, the path of a file, or a list
            of files and `key=value` overrides.
        spec: The units, in the syntax of the config key `units`. If it is empty, the config names the units.
        images: A folder, a mapping with keys of the config section `pictures`, or images in a list, a table, an
            iterator or a dataset (see `openmaia.datasets.memory.MemoryImages`).
        preprocess: A function from a Pillow image to a tensor, or a mapping with `mean`, `std`, `size` and `crop`, keys
            of the config section `target`.
        backbone: A kind, also with a model as in `openai:MODEL@URL`, a mapping with keys of the config section `backbone`,
            or an object with a method `reply`.
        overrides: Values of config keys, nested or with dots: `{"limits": {"turns": 8}}` or `{"limits.turns": 8}`.
        function: The name of that function, such as `openmaia.sweep`.

    Raises:
        UsageError: An argument or the resulting config is invalid.
    """
    settings, is_config = _network_settings(model, spec)
    settings |= _image_settings(images) | _preprocess_settings(preprocess) | _backbone_settings(backbone)
    chosen = {"units": spec} if spec else {}
    overlays = [*_overlays(chosen), *_overlays(settings), *_overlays(overrides)]
    own = list(_overlays(overrides))
    exempt = _PERSON if function == "openmaia.open" else ()
    if isinstance(model, Config):
        config = restore(environment.source(model), "the given config", overlays, exempt=exempt)
        uses.refuse([key for key in changed_keys(config) if key not in exempt], config)
    else:
        sources = [str(model)] if isinstance(model, str | Path) else [str(source) for source in _listed(model)]
        config = load([*(sources if is_config else []), *overlays], exempt=exempt)
        own += sources if is_config else []
    refuse_unused_by(function, own)
    module = None if is_config or isinstance(model, str) else cast(Any, model)
    _refuse_replaced(given_keys(own), {
        "target.network": module is not None and "model",
        **dict.fromkeys(("target.size", "target.crop", "target.mean", "target.std", "target.preprocess"),
                        callable(preprocess) and "preprocess"),
        "units": bool(spec) and not is_config and "the name of the unit",
    })  # fmt: skip
    return Inputs(
        config=config,
        spec=spec,
        model=module,
        preprocess=None if isinstance(preprocess, Mapping) else preprocess,
        images=cast(Any, images) if _image_settings(images) == _GIVEN else None,
        backbone=None if backbone is None or isinstance(backbone, str | Mapping) else backbone,
        is_cached_by_content=not is_config
        or images is not None
        or not (preprocess is None or isinstance(preprocess, Mapping)),
    )


def _refuse_replaced(given: Sequence[str], replaced: Mapping[str, str | bool]) -> None:
    """Raises UsageError if one of the given keys has no effect, because an argument is used instead of it (False: none
    is).
    """
    for key in given:
        if instead := replaced.get(key):
            raise UsageError(f"{key} has no effect, because {instead} is given as well; leave one of them out")


def _listed(model: Any) -> Sequence[Any]:
    return cast(Sequence[Any], model) if isinstance(model, list | tuple) else []


def _network_settings(model: Any, spec: str) -> tuple[dict[str, Any], bool]:
    """Returns the config values that name the network, and whether `model` is a config (then there are no values)."""
    if isinstance(model, Config | list | tuple | Path):
        return {}, True
    if isinstance(model, str):
        # A name without a suffix is that of a network: some shipped configs are named after theirs.
        if model.endswith(_SETTINGS) or "=" in model or find_config(model) == Path(model):
            return {}, True
        network = name = model
    else:
        from openmaia.models.targets.borrowed import compute_digest, is_model

        if not is_model(model):
            raise UsageError(
                f"model is a {type(model).__name__}; expected a torch.nn.Module, the name of a network such as "
                "torchvision:resnet18, or a config. Of a program of torch.export or TorchScript, give the nn.Module from which "
                "it was made"
            )
        module = getattr(model, "module", model) if hasattr(model, "preprocess") else model
        kind = type(module)
        name = kind.__name__.lower()
        # The digest keeps networks of one class with different weights apart in a run.
        network = f"python:{kind.__module__}.{kind.__qualname__}@{compute_digest(model)[:12]}"
    name = safe(name.rpartition(":")[2])
    layers = list(dict.fromkeys(layer for layer, part in split_units(spec) if part))
    return {"name": name, "target.name": name, "target.network": network, "target.layers": layers}, False


def _image_settings(images: object) -> dict[str, Any]:
    match images:
        case None:
            return {}
        case str() | Path():
            return {"pictures.kind": "folder", "pictures.folder": str(images)}
        case Mapping() if any(f"pictures.{name}" in config_keys() for name in images):
            return {"pictures": images}
        case _ if hasattr(images, "__iter__") or (hasattr(images, "__len__") and hasattr(images, "__getitem__")):
            return _GIVEN
        case _:
            raise UsageError(
                f"images is a {type(images).__name__}; expected a folder, a list or table of files, images or arrays, a dataset "
                "with len() and indices, or the keys of the section pictures"
            )


def _preprocess_settings(preprocess: object) -> dict[str, Any]:
    if isinstance(preprocess, Mapping):
        given = cast(Mapping[str, Any], preprocess)
        if unknown := sorted(given.keys() - {"mean", "std", "size", "crop"}):
            raise UsageError(f"preprocess has the keys {', '.join(unknown)}; expected mean, std, size and crop")
        return {f"target.{key}": list(value) if isinstance(value, tuple) else value for key, value in given.items()}
    if preprocess is None or callable(preprocess) or hasattr(preprocess, "tensor"):
        return {}
    raise UsageError(
        f"preprocess is a {type(preprocess).__name__}; expected a transform (a function from a Pillow image to a tensor), or "
        "a mapping with mean, std, size and optionally crop"
    )


def _backbone_settings(backbone: object) -> dict[str, Any]:
    match backbone:
        case None:
            return {}
        case str():
            kind, _, rest = backbone.partition(":")
            if kind not in ALIASES["backbone"]:  # package.module:Class
                return {"backbone.kind": backbone}
            name, _, url = rest.rpartition("@") if "@" in rest else (rest, "", "")
            return (
                {"backbone.kind": kind}
                | ({"backbone.model": name} if name else {})
                | ({"backbone.base_url": url} if url else {})
            )
        case Mapping():
            return {"backbone": backbone}
        case _ if callable(getattr(backbone, "reply", None)):
            return {"backbone.kind": "python"}
        case _:
            raise UsageError(
                f"backbone is a {type(backbone).__name__}; expected {next(iter(ALIASES['backbone']))}, openai:MODEL@URL, "
                "package.module:Class, the keys of the section backbone, or an object with a method reply(chats)"
            )


def _json(value: Any) -> str:
    """Returns a value as JSON that is also YAML, which has no surrogate pairs but escapes of eight digits."""
    pairs = r"\\u(d[89ab][0-9a-f]{2})\\u(d[c-f][0-9a-f]{2})"

    def whole(pair: re.Match[str]) -> str:
        high, low = (int(half, 16) for half in pair.groups())
        return f"\\U{0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00):08x}"

    return re.sub(pairs, whole, json.dumps(value))


def _overlays(settings: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """Yields `key=value`, with the value as JSON, for each leaf of nested settings. Mappings with keys of the user's choice are leaves."""
    for name, value in settings.items():
        key = f"{prefix}{name}"
        if isinstance(value, Mapping) and not is_free(key):
            yield from _overlays(cast(Mapping[str, Any], value), f"{key}.")
            continue
        try:
            yield f"{key}={_json(dict(value) if isinstance(value, Mapping) else value)}"
        except TypeError as error:
            raise UsageError(
                f"{key} is a {type(value).__name__}; expected a number, a text, a list or a mapping of these"
            ) from error
