"""Reads the descriptions that several methods gave to units of a target, from a table or from imported labels.

    layer,unit,method,description
    layer4,122,MILAN,bow ties
    layer4,122,a person,"bow ties, and knots of ties"

A table may have a column `labels`, whose labels are separated by semicolons, in the place of `description` or beside
it. Tables in the formats of other projects, which `openmaia import` reads, are accepted too. The exception is the
format of MILAN, which does not tell the method: its tables need the column `method`.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from openmaia.core.errors import UsageError
from openmaia.core.paths import user_path
from openmaia.core.tables import is_table, parse_index
from openmaia.core.units import TargetInfo, Unit, unknown_layer
from openmaia.interop import reading
from openmaia.interop.label_backbone import read_labels
from openmaia.interop.reading import Refused

_REQUIRED = ("layer", "unit", "method")
_TEXTS = ("description", "labels")
_SEPARATOR = ";"


@dataclass(frozen=True, slots=True, kw_only=True)
class TabledClaim:
    """A claim of a table. Of a description and labels, one that is missing is made from the other."""

    method: str
    unit: Unit
    description: str
    labels: tuple[str, ...]
    place: str
    """Where the description stands: the file, and in a table the row. For messages."""


def read_claim_file(path: str, info: TargetInfo) -> list[TabledClaim]:
    """Reads claims about units of a target.

    Args:
        path: A table (.csv, .tsv) as at the top of this module, a labels.jsonl that `openmaia import` wrote, or its
            folder.
        info: The target.

    Raises:
        UsageError: The file cannot be read, has no description of this target, or lacks a column. Or a row names an
            unknown layer or unit, has an empty description, or repeats the unit and the method of an earlier row.
    """
    file = user_path(path)
    columns, rows = _table(file, path) if is_table(file) else (set[str](), [])
    claims = list(_rows(path, rows, info) if columns.issuperset(_REQUIRED) else _imported(path, columns, info))
    if not claims:
        raise UsageError(f"--claims {path} holds no description of a unit of {info.name}")
    places: dict[tuple[str, Unit], str] = {}
    for claim in claims:
        _check_unit(claim, info)
        if earlier := places.get((claim.method, claim.unit)):
            raise UsageError(
                f"{claim.place}: {claim.method} describes {claim.unit.layer}/{claim.unit.index} a second time, after {earlier}; "
                "leave one of the two out"
            )
        places[claim.method, claim.unit] = claim.place
    return claims


def _table(file: Path, path: str) -> tuple[set[str], list[tuple[int, dict[str, str]]]]:
    try:
        table = reading.read_table(file)
    except Refused as error:
        raise UsageError(f"--claims {path} {error.message}") from error
    columns = set(table.columns)
    has_text = bool(columns.intersection(_TEXTS))
    if {"layer", "unit"} <= columns and has_text and not columns.intersection(("method", "similarity")):
        raise UsageError(
            f"--claims {path} lacks the column method, which names the method of each description; add it to the table, "
            "or import the table (openmaia import --method NAME) and give the labels.jsonl that this writes"
        )
    if missing := [name for name in _REQUIRED if name not in columns]:
        if "method" not in missing:
            raise UsageError(f"--claims {path} lacks the column {' and '.join(missing)}; it has {_listed(columns)}")
    elif not has_text:
        raise UsageError(
            f"--claims {path} lacks a column description or labels, with what the methods say; it has {_listed(columns)}"
        )
    return columns, table.rows


def _listed(columns: set[str]) -> str:
    return ", ".join(sorted(columns)) or "no header"


def _rows(path: str, rows: list[tuple[int, dict[str, str]]], info: TargetInfo) -> Iterator[TabledClaim]:
    for number, row in rows:
        place = f"--claims {path}, row {number}"
        try:
            unit = parse_index(row["unit"])
        except ValueError as error:
            raise UsageError(f"{place}: {error}") from error
        if not row["method"]:
            raise UsageError(f"{place}: the method is empty; give the name of the method that made the description")
        description, labels = _texts(row)
        if not description:
            raise UsageError(f"{place}: the description is empty; if the method says nothing, leave the row out")
        yield TabledClaim(
            method=row["method"],
            unit=Unit(target=info.name, layer=row["layer"], index=unit),
            description=description,
            labels=labels,
            place=place,
        )


def _texts(row: Mapping[str, str]) -> tuple[str, tuple[str, ...]]:
    """Returns the description and the labels of a row. If one of them is missing, it is made from the other."""
    description = " ".join(row.get("description", "").split())
    parts = (" ".join(part.split()) for part in row.get("labels", "").split(_SEPARATOR))
    labels = tuple(dict.fromkeys(filter(None, parts)))
    return description or "; ".join(labels), labels or tuple(filter(None, [description]))


def _imported(path: str, columns: set[str], info: TargetInfo) -> Iterator[TabledClaim]:
    try:
        found = read_labels(path, info.name, "--claims")
    except UsageError as error:
        expected = f"; expected the columns {', '.join(_REQUIRED)}, and description or labels" if columns else ""
        raise UsageError(f"{error.message}{expected}") from error
    for label in found:
        if label.target == info.name:
            yield TabledClaim(
                method=label.method,
                unit=Unit(target=info.name, layer=label.layer, index=label.unit),
                description=label.text,
                labels=label.labels,
                place=f"--claims {path}, {label.method} of {label.layer}/{label.unit}",
            )


def _check_unit(claim: TabledClaim, info: TargetInfo) -> None:
    layer, index = claim.unit.layer, claim.unit.index
    if layer not in info.layers:
        raise UsageError(f"{claim.place}: {unknown_layer(layer, info.name, list(info.layers)).message}")
    if index >= info.layers[layer]:
        raise UsageError(
            f"{claim.place}: layer {layer} of {info.name} has no unit {index}; its units are 0 to {info.layers[layer] - 1}"
        )
