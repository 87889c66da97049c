"""Says where each value of a config comes from: a line of a file, an override, or the default."""

from collections.abc import Iterator, Sequence
from typing import Any, cast

import yaml

from openmaia.config.loading import BESIDE, SWEEPS, find_left_out, is_free, leaf, to_dict
from openmaia.config.named import find_config
from openmaia.config.schema import Config
from openmaia.core.documents import compose_yaml

DEFAULT, OVERRIDE = "default", "override"
COLUMN = 40  # where the origins begin, unless a value is longer


def find_origins(sources: Sequence[str]) -> dict[str, str]:
    """Returns `FILE:LINE` or `override` by dotted key, for the `sources` of `load`. Keys that none sets are left out."""
    found: dict[str, str] = {}
    for source in sources:
        if (path := find_config(source)) is None:
            found[leaf(source.partition("=")[0])] = OVERRIDE
            continue
        root = compose_yaml(path.read_bytes())
        found |= {key: f"{source}:{line}" for key, line in _lines(root) if key != SWEEPS}
    return found


def _lines(node: Any, prefix: str = "") -> Iterator[tuple[str, int]]:
    """Yields (dotted key of a leaf, its line, counted from 1)."""
    if not isinstance(node, yaml.MappingNode):
        return
    for key_node, value in node.value:
        key = f"{prefix}{key_node.value}"
        if isinstance(value, yaml.MappingNode) and not is_free(key):
            yield from _lines(value, f"{key}.")
        else:
            yield key, key_node.start_mark.line + 1


def explain(config: Config, sources: Sequence[str], *, only_given: bool = False, listing: str = "") -> Iterator[str]:
    """Yields the lines of a config as YAML, each value with a comment that says where it comes from.

    Args:
        only_given: Whether to leave out the keys that no source sets, and those that the config does not use.
        listing: As for `openmaia.config.loading.load`.
    """
    found = find_origins(sources)
    for key, reason in find_left_out(sources, listing).items():
        place = found.pop(key)
        if not only_given:
            found[key] = f"{DEFAULT} ({place} is for another component than {reason})"
    yield from _section(
        {name: value for name, value in to_dict(config).items() if name not in BESIDE},
        found,
        only_given,
        "",
    )


def _section(values: dict[str, Any], found: dict[str, str], only_given: bool, prefix: str) -> Iterator[str]:
    indent = "  " * prefix.count(".")
    for name, value in values.items():
        key = f"{prefix}{name}"
        if isinstance(value, dict) and value and not is_free(key):
            if lines := list(_section(cast(dict[str, Any], value), found, only_given, f"{key}.")):
                yield f"{indent}{name}:"
                yield from lines
        elif key in found or not only_given:
            line = f"{indent}{name}: {_flow(value)}"
            yield f"{line:<{COLUMN}}  # {found.get(key, DEFAULT)}"


def _flow(value: Any) -> str:
    text = yaml.safe_dump(value, default_flow_style=True, allow_unicode=True, width=10**9, sort_keys=False)
    return text.removesuffix("\n").removesuffix("\n...")
