"""The values of a config that come from the environment or hold secrets, and what is stored in their place."""

import dataclasses
import os
import re
from collections.abc import Iterator, Mapping
from typing import Any, cast

from omegaconf import DictConfig, OmegaConf

from openmaia.config.schema import Config
from openmaia.core import secrets
from openmaia.core.errors import UsageError
from openmaia.core.secrets import Secret

Path = tuple[str | int, ...]  # names and indices that lead to a value

# Folders have these names, so that they are stored and shown as they are.
PUBLIC: tuple[Path, ...] = (("name",), ("target", "name"))

_REFERENCE = re.compile(r"\$\{([a-z_]\w*(?:\.\w+)*)\}")
_FOREIGN = re.compile(r"\$\{(?!oc\.env:)")
# References that may follow each other: it bounds the length of what they stand for.
_DEPTH = 4

_RESOLVER = "oc.env"
_REQUIRED = object()
# OmegaConf does not say which values its resolver gave: an interpolation that makes it count has read the environment.
_reads = [0]


def watch() -> None:
    """Counts what interpolations read from the environment, and makes it known as secrets."""

    def read(name: str, default: Any = _REQUIRED) -> str | None:
        _reads[0] += 1
        if name in os.environ:
            secrets.remember(os.environ[name], f"${{oc.env:{name}}}")
            return os.environ[name]
        if default is _REQUIRED:
            raise KeyError(f"Environment variable '{name}' not found")
        return None if default is None else str(default)

    OmegaConf.register_resolver(_RESOLVER, read, replace=True)


def find_expressions(config: DictConfig) -> dict[Path, str]:
    """Returns the interpolations that read the environment, also by way of other keys, by their place."""
    found: dict[Path, str] = {}
    texts = dict(_texts(OmegaConf.to_container(config, resolve=False)))
    for path, text in texts.items():
        if "${" in text:
            before, node = _reads[0], cast(Any, config)
            for name in path:
                node = node[name]
            if _reads[0] > before:
                found[path] = _without_references(text, texts)
                if isinstance(node, str) and _FOREIGN.search(found[path]):
                    raise UsageError(
                        f"{'.'.join(map(str, path))}={text}: a value from the environment is read by ${{oc.env:NAME}} alone, "
                        "because this expression is stored in place of the value; leave out other expressions"
                    )
    return found


def _without_references(text: str, texts: Mapping[Path, str]) -> str:
    """Puts the text of other keys, such as `paths.runs`, in place of their names."""
    for _ in range(_DEPTH):
        text = _REFERENCE.sub(lambda key: texts.get(tuple(key[1].split(".")), key[0]), text)
    return text


def _texts(values: Any, path: Path = ()) -> Iterator[tuple[Path, str]]:
    if isinstance(values, str):
        yield path, values
    elif isinstance(values, Mapping | list):
        items = cast("Any", values.items() if isinstance(values, Mapping) else enumerate(cast("list[Any]", values)))
        for name, value in items:
            yield from _texts(value, (*path, name))


def mark(config: Config, found: Mapping[Path, str]) -> None:
    """Turns texts that came from the environment or hold secrets into `Secret`, in place."""

    def marked(value: Any, path: Path, expression: str) -> Any:
        expression = found.get(path, expression)
        if dataclasses.is_dataclass(value):
            for each in dataclasses.fields(value):
                setattr(value, each.name, marked(getattr(value, each.name), (*path, each.name), expression))
        elif isinstance(value, dict):
            return {
                name: marked(part, (*path, name), expression) for name, part in cast("dict[str, Any]", value).items()
            }
        elif isinstance(value, list):
            return [marked(part, (*path, at), expression) for at, part in enumerate(cast("list[Any]", value))]
        elif isinstance(value, str) and expression and path not in PUBLIC:
            return Secret(value, expression, expression)
        elif isinstance(value, str) and (shown := secrets.hide_url_secrets(value)) != value:
            return Secret(value, shown)
        return value

    marked(config, (), "")


def stored(config: Config) -> tuple[dict[str, Any], dict[str, str]]:
    """Returns (a config as nested dicts without its secrets, digests of values from the environment by dotted key)."""
    digests: dict[str, str] = {}

    def plain(value: Any, path: Path) -> Any:
        if isinstance(value, Secret):
            if value.expression:
                digests[".".join(map(str, path))] = value.digest
            return value.stored
        if isinstance(value, dict):
            return {name: plain(part, (*path, name)) for name, part in cast("dict[str, Any]", value).items()}
        if isinstance(value, list):
            return [plain(part, (*path, at)) for at, part in enumerate(cast("list[Any]", value))]
        return secrets.hide_url_secrets(value) if isinstance(value, str) else value

    return plain(dataclasses.asdict(config), ()), digests


def source(config: Config) -> dict[str, Any]:
    """Returns a config as nested dicts from which it can be loaded again: with its URLs and interpolations."""

    def plain(value: Any) -> Any:
        if isinstance(value, Secret):
            return value.expression or str(value)
        if isinstance(value, dict):
            return {name: plain(part) for name, part in cast("dict[str, Any]", value).items()}
        return [plain(part) for part in cast("list[Any]", value)] if isinstance(value, list) else value

    return plain(dataclasses.asdict(config))
