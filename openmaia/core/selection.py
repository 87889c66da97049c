"""Parses specifications of units, such as `layer4=122,210:layer3=5-31`, `layer4/122`, `layer4=random:20` or `all`."""

import difflib
import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from openmaia.core import tables
from openmaia.core.documents import parse_json
from openmaia.core.errors import UsageError
from openmaia.core.paths import user_path
from openmaia.core.units import NETWORK, OUTPUT, WHOLE, Scope, TargetInfo, Unit, unknown_layer

_SLASHED = re.compile(
    rf"(?P<layer>[^=]*[^=/\s])\s*/(?P<part>\s*(\d[\d,\s-]*|all|random(:.*)?)\s*)|\s*{OUTPUT}\s*/(?P<class>[^=]+)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The units that a specification names, without duplicates."""

    units: tuple[Unit, ...]
    duplicates: int
    """How often the specification names a unit again."""


def select(spec: str, info: TargetInfo, scope: Scope = Scope.UNIT) -> Selection:
    """Returns the units that a specification names, in its order.

    Args:
        spec: `layer4=122,210:layer3=5-31`, `layer4=random:20`, `random:20`, `output=tiger,pig`, `all`, or the
            path of a JSON file {layer: [index, ...]} or of a table with the columns layer and unit. A slash may stand in
            the place of the equals sign, and the name of the target before the layer: `layer4/122`, `net/layer4/122`.
            `random:n` draws n units of each layer by a hash of the weights, so that users cannot influence the choice.
            For the scope LAYER, names of layers, such as `layer3:layer4`, or `all`. For NETWORK it is ignored.

    Raises:
        UsageError: The specification cannot be read, or names an unknown layer or a unit that does not exist.
    """
    if scope is Scope.NETWORK:
        return Selection(units=(Unit(target=info.name, layer=NETWORK, index=WHOLE),), duplicates=0)
    if scope is Scope.LAYER:
        layers = _layers(spec.strip(), info)
        return Selection(units=tuple(Unit(target=info.name, layer=name, index=WHOLE) for name in layers), duplicates=0)
    named = [
        Unit(target=info.name, layer=layer, index=index)
        for layer, part in _parts(spec.strip(), info)
        for index in _indices(part, layer, info)
    ]
    units = tuple(dict.fromkeys(named))
    if not units:
        raise UsageError(f"units={spec!r} names no unit; give for example {next(iter(info.layers))}=0-9 or all")
    return Selection(units=units, duplicates=len(named) - len(units))


def count(spec: str, layers: Mapping[str, int | None], target: str) -> int | None:
    """Counts the units that a specification names, without loading the target. None if the number depends on it.

    Args:
        layers: Those of the config, each with its number of units; None if that is not known. Empty if it leaves the choice
            to the target.
        target: Its name, below which a JSON file of units may hold its object.

    Raises:
        UsageError: The specification cannot be read, or draws more units of a layer than it is known to have.
    """
    if not layers:
        return None
    sizes = {layer: 10**7 if size is None else size for layer, size in layers.items()}
    info = TargetInfo(name=target, layers=sizes, digest="", input_size=(0, 0))
    named: set[tuple[str, int | str]] = set()
    random: dict[str, int] = {}
    for layer, part in _parts(spec.strip(), info):
        # Where a size is missing, the target may add layers, such as layer4/directions.
        if layer not in layers and None not in layers.values():
            raise unknown_layer(layer, target, list(layers))
        if part.strip() == "all":
            if (size := layers.get(layer)) is None:
                return None
            named.update((layer, index) for index in range(size))
        elif drawn := re.fullmatch(r"\s*random:(\d{1,9})\s*", part):
            _check_drawn(int(drawn[1]), layer, info.layers[layer])
            random[layer] = max(random.get(layer, 0), int(drawn[1]))
        else:
            named.update(_counted(part, layer, info))
    if any(layer in random for layer, _ in named):
        return None  # a random unit may be one of the named units
    return len(named) + sum(random.values())


def _layers(spec: str, info: TargetInfo) -> list[str]:
    if spec == "all":
        return list(info.layers)
    named = list(dict.fromkeys(piece.strip() for piece in spec.split(":")))
    for layer in named:
        if layer not in info.layers:
            raise unknown_layer(layer, info.name, list(info.layers))
    return named


def split_units(spec: str) -> list[tuple[str, str]]:
    """Splits a specification into (layer, text that names its units; "" if there is none).

    The text follows an equals sign. Without one it follows the last slash, if it is a number, `all` or `random:n`, or
    if the layer is OUTPUT, whose units have names.
    """
    pieces: list[str] = []
    for piece in spec.split(":"):
        if "=" in piece or _SLASHED.fullmatch(piece) or not pieces:
            pieces.append(piece)
        else:
            pieces[-1] += ":" + piece
    return [_pair(piece) for piece in pieces]


def _pair(piece: str) -> tuple[str, str]:
    slashed = None if "=" in piece else _SLASHED.fullmatch(piece)
    layer, part = (
        (slashed["layer"] or OUTPUT, slashed["part"] or slashed["class"]) if slashed else piece.partition("=")[::2]
    )
    return layer.strip(), part


def _parts(spec: str, info: TargetInfo) -> Iterable[tuple[str, str]]:
    if (path := user_path(spec)).suffix.lower() == ".json":
        return _from_json(path, info)
    if path.suffix.lower() in tables.SUFFIXES and "=" not in spec:
        return _from_table(path)
    if spec == "all" or re.fullmatch(r"random:\d{1,9}", spec):
        return [(layer, spec) for layer in info.layers]
    found = split_units(spec)
    for layer, part in found:
        if not part and "=" not in spec:
            raise UsageError(
                f"units={spec!r}: {layer!r} has no '='; expected LAYER=INDICES, such as layer4=122,210-219, or LAYER/INDEX"
            )
    prefix = f"{info.name}/"
    return [(layer if layer in info.layers else layer.removeprefix(prefix), part) for layer, part in found]


def _from_table(path: Path) -> list[tuple[str, str]]:
    try:
        table = tables.read(path.read_bytes())
        if missing := [name for name in ("layer", "unit") if name not in table.columns]:
            has = ", ".join(table.columns) or "no header"
            raise UsageError(f"unit list {path} lacks the column {' and '.join(missing)}; it has {has}")
        return [(row["layer"], str(_index(path, number, row["unit"]))) for number, row in table.rows]
    except OSError as error:
        raise UsageError(f"unit list {path} cannot be read: {error.strerror}") from error
    except tables.UnreadableTable as error:
        raise UsageError(f"unit list {path} {error.message}") from error


def _index(path: Path, number: int, cell: str) -> int:
    try:
        return tables.parse_index(cell)
    except ValueError as error:
        raise UsageError(f"unit list {path}, row {number}: {error}") from error


def _from_json(path: Path, info: TargetInfo) -> list[tuple[str, str]]:
    """Reads {layer: [index, ...]}, or {name of the target: such an object}, into pairs such as ("layer4", "3,17")."""
    try:
        data = parse_json(tables.decode(path.read_bytes()))
    except OSError as error:
        raise UsageError(f"unit list {path} cannot be read: {error.strerror}") from error
    except tables.UnreadableTable as error:
        raise UsageError(f"unit list {path} {error.message}") from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"unit list {path} is not JSON: {error}") from error
    if isinstance(data, dict) and (lists := _index_lists(cast(dict[str, Any], data), info.name)) is not None:
        return [(layer, ",".join(map(str, indices))) for layer, indices in lists.items() if indices]
    raise UsageError(f'unit list {path}: expected {{"layer": [index, …]}}, possibly below the name {info.name!r}')


def count_listed(data: Mapping[str, Any], target: str) -> tuple[int, int] | None:
    """Counts what a list {layer: [index, ...]}, or {target: such an object}, names.

    Returns:
        The number of units, and of those that are listed more than once. None if it is no list of units.
    """
    lists = _index_lists(data, target)
    if lists is None:
        return None
    counts = Counter((layer, index) for layer, indices in lists.items() for index in indices)
    return len(counts), sum(count > 1 for count in counts.values())


def _index_lists(data: Mapping[str, Any], target: str) -> dict[str, list[int]] | None:
    """Returns the indices by layer; None if it is no list of units."""
    inner = data.get(target, data)
    if not isinstance(inner, dict) or not all(_is_index_list(value) for value in cast(dict[str, Any], inner).values()):
        return None
    return {layer: [int(index) for index in indices] for layer, indices in cast(dict[str, list[float]], inner).items()}


def _is_index_list(value: Any) -> bool:
    return isinstance(value, list) and all(
        type(item) is int or (isinstance(item, float) and item.is_integer()) for item in cast(list[Any], value)
    )


def _indices(part: str, layer: str, info: TargetInfo) -> list[int]:
    if layer not in info.layers:
        raise unknown_layer(layer, info.name, list(info.layers))
    size = info.layers[layer]
    if part.strip() == "all":
        return list(range(size))
    if drawn := re.fullmatch(r"\s*random:(\d{1,9})\s*", part):
        return _draw(int(drawn[1]), layer, size, info.digest)
    if layer == OUTPUT and "," in part and any(known.casefold() == part.strip().casefold() for known in info.classes):
        return _of_class(part.strip(), info)  # such as "tench, Tinca tinca"
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
        if last >= size:
            raise UsageError(f"unit {last} is out of range: layer {layer!r} of {info.name} has units 0 to {size - 1}")
        indices.extend(range(first, last + 1))
    return indices


def _of_class(name: str, info: TargetInfo) -> list[int]:
    if not info.classes:
        raise UsageError(
            f"units: {name[:40]!r} of layer {OUTPUT!r} is no index, and the names of {info.name}'s classes are not known; "
            f"give indices, such as {OUTPUT}=291"
        )
    # Several, because names of classes need not be unique.
    indices = [index for index, known in enumerate(info.classes) if known.casefold() == name.casefold()]
    if not indices:
        near = difflib.get_close_matches(name, list(dict.fromkeys(info.classes)), n=3, cutoff=0.0)
        raise UsageError(
            f"units: {info.name} has no class {name[:40]!r}; the nearest of its {len(info.classes)} are {', '.join(near)}"
        )
    return indices


def _check_drawn(n: int, layer: str, size: int) -> None:
    if n > size:
        raise UsageError(f"units: random:{n} of layer {layer!r}, which has only {size} units")


def _draw(n: int, layer: str, size: int, digest: str) -> list[int]:
    _check_drawn(n, layer, size)

    def key(index: int) -> bytes:
        return hashlib.sha256(f"{digest}/{layer}/{index}".encode()).digest()

    return sorted(sorted(range(size), key=key)[:n])


def _counted(part: str, layer: str, info: TargetInfo) -> Iterable[tuple[str, int | str]]:
    """Yields a key for each unit: its index, or the name of a class, whose index only the target knows."""
    pieces = [piece.strip() for piece in part.split(",")]
    classes = [piece for piece in pieces if layer == OUTPUT and piece and not piece[0].isdigit()]
    rest = ",".join(piece for piece in pieces if piece not in classes)
    yield from ((layer, name) for name in classes)
    if rest or not classes:
        yield from ((layer, index) for index in _indices(rest, layer, info))
