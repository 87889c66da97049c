"""Compares values that were read from a file with type hints."""

import math
import types
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from typing import Any, Literal, Union, cast, get_args, get_origin, get_type_hints

MAX_INTEGER = 2**63 - 1  # larger ones fit into no column and no float


def find_mistyped(value: Any, hint: Any, *, finite: bool = True) -> str | None:
    """Returns where a value does not fit a type hint, such as ".labels[2]"; "" for the value itself, None if it fits.

    A list fits a tuple, an integer a float, the value of an Enum the Enum, and a mapping with the names of all fields a
    dataclass. Floats have to be `finite`.
    """
    if hint is Any:
        return None
    origin, parts = _taken_apart(hint)
    if origin in (Union, types.UnionType):
        places = [find_mistyped(value, part, finite=finite) for part in parts]
        return None if None in places else max((place or "" for place in places), key=len)
    if origin is Literal:
        return None if value in parts else ""
    if origin in (list, Sequence, tuple):
        return _mistyped_items(value, parts, finite)
    if origin in (dict, Mapping):
        return _first(value, dict.fromkeys(value, parts[1]), finite) if _is_mapping(value) else ""
    if is_dataclass(hint):
        kinds = _fields(cast(type, hint))
        if not _is_mapping(value) or not value.keys() <= kinds.keys():
            return ""
        return _first(value, kinds, finite)
    return None if _is_scalar(value, hint, finite) else ""


def _mistyped_items(value: Any, parts: tuple[Any, ...], finite: bool) -> str | None:
    if not isinstance(value, (list, tuple)):
        return ""
    items = cast("Sequence[Any]", value)
    several = parts if len(parts) > 1 and parts[1] is not Ellipsis else parts[:1] * len(items)
    if len(several) != len(items):
        return ""
    for n, (item, hint) in enumerate(zip(items, several, strict=True)):
        if (place := find_mistyped(item, hint, finite=finite)) is not None:
            return f"[{n}]{place}"
    return None


def _first(values: Mapping[Any, Any], kinds: Mapping[Any, Any], finite: bool) -> str | None:
    for key, kind in kinds.items():
        place = find_mistyped(values[key], kind, finite=finite) if key in values else ""
        if place is not None:
            return f".{key}{place}"
    return None


def _is_mapping(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(key, str) for key in cast("dict[Any, Any]", value))


def _is_scalar(value: Any, hint: Any, finite: bool) -> bool:
    if hint is None or hint is type(None):
        return value is None
    if isinstance(hint, type) and issubclass(hint, Enum):
        return value in [each.value for each in hint] or isinstance(value, hint)
    if isinstance(value, bool):
        return hint is bool
    if isinstance(value, int):
        return hint in (int, float) and abs(value) <= MAX_INTEGER
    if isinstance(value, float):
        return hint is float and (math.isfinite(value) or not finite)
    return isinstance(value, hint)


@cache
def _taken_apart(hint: Any) -> tuple[Any, tuple[Any, ...]]:
    return get_origin(hint), get_args(hint)


@cache
def _fields(kind: type) -> dict[str, Any]:
    hints = get_type_hints(kind)
    return {field.name: hints[field.name] for field in fields(kind)}
