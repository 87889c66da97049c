"""Lists of units: {layer: [index, ...]}, the file named after the model, or the same nested below models' names."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from openmaia.interchange import reading
from openmaia.interchange.reading import Refused

LONGEST = 80
"""Bytes of a model's or layer's name: files are named after it, with up to three characters a byte."""

Layers = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitList:
    """models: model -> layer -> units, each once, in the order of the file. repeated: those that were listed again."""

    models: Mapping[str, Layers]
    repeated: tuple[str, ...]


def read(path: Path) -> UnitList:
    """Raises Refused."""
    data = reading.json_data(path)
    if not isinstance(data, dict) or not data:
        raise Refused('is no list of units; expected {"layer": [index, ...]}')
    named = cast(dict[str, Any], data)
    nested = all(isinstance(value, dict) for value in named.values())
    if any(not name.isprintable() or len(name.encode()) > LONGEST for name in named):
        raise Refused(f"is no list of units: it has a name of unprintable characters, or of more than {LONGEST} bytes")
    repeated: list[str] = []
    models = {
        model: {layer: _indices(f"{model}/{layer}", value, repeated) for layer, value in layers.items()}
        for model, layers in (named if nested else {path.stem: named}).items()
    }
    return UnitList(models=models, repeated=tuple(repeated))


def grammar(layers: Layers) -> str:
    """As `units=` takes it: layer3=229,288:layer4=122."""
    return ":".join(f"{layer}={','.join(map(str, indices))}" for layer, indices in layers.items() if indices)


def as_json(layers: Layers) -> bytes:
    """As `units=FILE.json` takes it."""
    return (json.dumps({layer: list(indices) for layer, indices in layers.items()}, indent=1) + "\n").encode()


def _indices(name: str, value: Any, repeated: list[str]) -> tuple[int, ...]:
    listed = cast(list[Any], value) if isinstance(value, list) else [None]
    if not all(type(item) is int and 0 <= item < 2**31 for item in listed):
        raise Refused(f'is no list of units: {name[:80]!r} holds something else; expected {{"layer": [index, ...]}}')
    seen: set[int] = set()
    for index in cast(list[int], listed):
        if index in seen:
            repeated.append(f"{name}/{index}")
        seen.add(index)
    return tuple(dict.fromkeys(cast(list[int], listed)))
