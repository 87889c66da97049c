"""Units and the small language in which people name them."""

import difflib
import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, cast

from openmaia.errors import UsageError


class Scope(StrEnum):
    """What one investigation is about."""

    UNIT = "unit"
    LAYER = "layer"
    NETWORK = "network"


WHOLE = -1
"""The index of a layer as a whole."""

OUTPUT = "output"
"""The layer that is a network's final output. Its units may be named by their classes."""

SHOWN_LAYERS = 12
"""Of a network with more, a message names only the nearest and the outermost: so many of each."""

NETWORK = "*"
"""The layer of a network as a whole."""


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Unit:
    """One neuron: channel `index` of what `layer` of `target` puts out. With the index WHOLE it is the layer, or with the
    layer NETWORK too the network, and has no activation of its own."""

    target: str
    layer: str
    index: int

    @property
    def scope(self) -> Scope:
        return Scope.UNIT if self.index != WHOLE else Scope.LAYER if self.layer != NETWORK else Scope.NETWORK

    def __str__(self) -> str:
        match self.scope:
            case Scope.UNIT:
                return f"{self.target}/{self.layer}/{self.index}"
            case Scope.LAYER:
                return f"{self.target}/{self.layer}"
            case Scope.NETWORK:
                return self.target


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetInfo:
    """What a target has to offer. layers: name -> number of units. digest: of the weights, in hexadecimal."""

    name: str
    layers: Mapping[str, int]
    digest: str
    input_size: tuple[int, int]
    """(height, width) of the network's own preprocessing."""
    mask_threshold: float | None = None
    """Where a mask begins, for a target that knows; elsewhere it is a quantile of the unit's activations."""
    classes: tuple[str, ...] = ()
    """Names of the units of OUTPUT, where it is a classifier's and they are known. Two classes may have one name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    units: tuple[Unit, ...]
    duplicates: int
    """How many repeated mentions were dropped."""


def select(spec: str, info: TargetInfo, scope: Scope = Scope.UNIT) -> Selection:
    """`layer4=122,210:layer3=5-31`, `layer4=random:20`, `random:20`, `output=tiger,pig`, `all`, or a JSON file -> units in
    order.

    Where the scope is a layer, names of layers are enough: `layer3:layer4` or `all`; of a network there is nothing to choose.

    `random:n` draws n units of a layer by a hash of the weights, so that nobody can have chosen them.
    Raises UsageError for an unknown layer, a unit out of range, or a spec that cannot be read.
    """
    if scope is Scope.NETWORK:
        return Selection(units=(Unit(target=info.name, layer=NETWORK, index=WHOLE),), duplicates=0)
    if scope is Scope.LAYER:
        layers = _layers(spec.strip(), info)
        return Selection(units=tuple(Unit(target=info.name, layer=name, index=WHOLE) for name in layers), duplicates=0)
    wanted = [
        Unit(target=info.name, layer=layer, index=index)
        for layer, part in _parts(spec.strip(), info)
        for index in _indices(part, layer, info)
    ]
    units = tuple(dict.fromkeys(wanted))
    if not units:
        raise UsageError(f"units={spec!r} names no unit; give for example {next(iter(info.layers))}=0-9 or all")
    return Selection(units=units, duplicates=len(wanted) - len(units))


def _layers(spec: str, info: TargetInfo) -> list[str]:
    if spec == "all":
        return list(info.layers)
    named = list(dict.fromkeys(piece.strip() for piece in spec.split(":")))
    for layer in named:
        if layer not in info.layers:
            raise unknown_layer(layer, info.name, list(info.layers))
    return named


def _parts(spec: str, info: TargetInfo) -> Iterable[tuple[str, str]]:
    if spec.endswith(".json"):
        return _from_json(Path(spec), info)
    if spec == "all" or re.fullmatch(r"random:\d{1,9}", spec):
        return [(layer, spec) for layer in info.layers]
    pieces: list[str] = []
    for piece in spec.split(":"):
        if "=" in piece or not pieces:
            pieces.append(piece)
        else:
            pieces[-1] += ":" + piece
    pairs = [piece.partition("=") for piece in pieces]
    for layer, equals, _ in pairs:
        if not equals:
            raise UsageError(
                f"units={spec!r}: {layer!r} has no '='; expected LAYER=INDICES, such as layer4=122,210-219"
            )
    return [(layer.strip(), part) for layer, _, part in pairs]


def _from_json(path: Path, info: TargetInfo) -> list[tuple[str, str]]:
    """{layer: [index, …]}, or the same nested below the target's name."""
    try:
        data = json.loads(path.read_text())
    except OSError as error:
        raise UsageError(f"unit list {path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise UsageError(f"unit list {path} is not JSON: {error}") from error
    if isinstance(data, dict):
        named = cast(dict[str, Any], data)
        inner = named.get(info.name, named)
        if isinstance(inner, dict) and all(_is_index_list(value) for value in cast(dict[str, Any], inner).values()):
            return [
                (layer, ",".join(map(str, value)))
                for layer, value in cast(dict[str, list[int]], inner).items()
                if value
            ]
    raise UsageError(f'unit list {path}: expected {{"layer": [index, …]}}, possibly below the name {info.name!r}')


def _is_index_list(value: Any) -> bool:
    return isinstance(value, list) and all(type(item) is int for item in cast(list[Any], value))


def _indices(part: str, layer: str, info: TargetInfo) -> list[int]:
    if layer not in info.layers:
        raise unknown_layer(layer, info.name, list(info.layers))
    count = info.layers[layer]
    if part.strip() == "all":
        return list(range(count))
    if drawn := re.fullmatch(r"\s*random:(\d{1,9})\s*", part):
        return _draw(int(drawn[1]), layer, count, info.digest)
    indices: list[int] = []
    for piece in part.split(","):
        span = re.fullmatch(r"\s*(\d{1,15})(?:-(\d{1,15}))?\s*", piece)
        if not span and layer == OUTPUT:
            indices.extend(_of_class(piece.strip(), info))
            continue
        if not span:
            raise UsageError(
                f"units: {piece[:40]!r} of layer {layer!r} is no index; expected 7, 5-31, all or random:20"
            )
        first, last = int(span[1]), int(span[2] or span[1])
        if last < first:
            raise UsageError(f"units: {piece!r} of layer {layer!r} runs backwards; write {last}-{first}")
        if last >= count:
            raise UsageError(f"unit {last} is out of range: layer {layer!r} of {info.name} has units 0 to {count - 1}")
        indices.extend(range(first, last + 1))
    return indices


def _of_class(name: str, info: TargetInfo) -> list[int]:
    """All outputs of that name, case aside."""
    if not info.classes:
        raise UsageError(
            f"units: {name[:40]!r} of layer {OUTPUT!r} is no index, and the names of {info.name}'s classes are not known; "
            f"give indices, such as {OUTPUT}=291"
        )
    found = [index for index, known in enumerate(info.classes) if known.casefold() == name.casefold()]
    if not found:
        near = difflib.get_close_matches(name, list(dict.fromkeys(info.classes)), n=3, cutoff=0.0)
        raise UsageError(
            f"units: {info.name} has no class {name[:40]!r}; the nearest of its {len(info.classes)} are {', '.join(near)}"
        )
    return found


def unknown_layer(layer: str, target: str, known: Sequence[str]) -> UsageError:
    near = difflib.get_close_matches(layer, known, n=SHOWN_LAYERS, cutoff=0.0)
    has = f"has: {', '.join(known)}"
    if len(known) > SHOWN_LAYERS:
        outermost = [name for name in known if "." not in name][:SHOWN_LAYERS]
        has = f"has {len(known)} layers; near that name {', '.join(near)}; outermost {', '.join(outermost)}"
    meant = f"; did you mean {near[0]!r}? It {has}" if near else f"; it {has}"
    return UsageError(f"unknown layer {layer!r} of {target or 'the target'}{meant}")


def _draw(n: int, layer: str, count: int, digest: str) -> list[int]:
    if n > count:
        raise UsageError(f"units: random:{n} of layer {layer!r}, which has only {count} units")

    def key(index: int) -> bytes:
        return hashlib.sha256(f"{digest}/{layer}/{index}".encode()).digest()

    return sorted(sorted(range(count), key=key)[:n])


def count(spec: str, layers: Sequence[str]) -> int | None:
    """How many units a spec names, as far as that can be told without the target: None where it depends on how many
    units a layer has, or on which layers there are (no layers: the target has its own). Raises UsageError for a spec
    that cannot be read."""
    if not layers:
        return None
    info = TargetInfo(name="", layers=dict.fromkeys(layers, 10**7), digest="", input_size=(0, 0))
    named: set[tuple[str, int]] = set()
    drawn: dict[str, int] = {}
    for layer, part in _parts(spec.strip(), info):
        if part.strip() == "all":
            return None
        if found := re.fullmatch(r"\s*random:(\d{1,9})\s*", part):
            drawn[layer] = max(drawn.get(layer, 0), int(found[1]))
        else:
            named.update(_counted(part, layer, info))
    if any(layer in drawn for layer, _ in named):
        return None  # whether a drawn unit is one of those that are named as well
    return len(named) + sum(drawn.values())


def _counted(part: str, layer: str, info: TargetInfo) -> Iterable[tuple[str, int]]:
    """A class counts as one output: which it is only the target knows."""
    pieces = [piece.strip() for piece in part.split(",")]
    classes = [piece for piece in pieces if layer == OUTPUT and piece and not piece[0].isdigit()]
    rest = ",".join(piece for piece in pieces if piece not in classes)
    yield from ((layer, -1 - at) for at in range(len(set(classes))))
    if rest or not classes:
        yield from ((layer, index) for index in _indices(rest, layer, info))
