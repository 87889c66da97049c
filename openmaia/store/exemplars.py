"""Reads and writes the exemplars of units: rows per (unit, kind, rank), each picture once."""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from openmaia.errors import StoreError
from openmaia.images import Picture
from openmaia.services import Exemplar, Map, UnitExemplars
from openmaia.store import tables
from openmaia.store.files import Files, safe
from openmaia.store.records import dumps
from openmaia.units import Unit

VERSION = 1

_ROWS = pa.schema(
    [
        ("unit", pa.int32()),
        ("kind", pa.string()),
        ("rank", pa.int32()),
        ("activation", pa.float64()),
        ("picture", pa.string()),
        ("map", pa.binary()),
        ("map_shape", pa.list_(pa.int32())),
    ]
)
_UNITS = pa.schema(
    [
        ("unit", pa.int32()),
        ("threshold", pa.float64()),
        ("maxima", pa.list_(pa.float64())),
        ("mean", pa.float64()),
        ("std", pa.float64()),
    ]
)
_PICTURES = pa.schema([("digest", pa.string()), ("data", pa.binary()), ("sources", pa.list_(pa.string()))])


@dataclass(frozen=True, slots=True)
class ExemplarStore:
    """One folder per (network, preprocessing, pictures, k, quantile); the manifest says which."""

    files: Files

    @classmethod
    def at(cls, root: str, target: str, dataset: str, key: str) -> "ExemplarStore":
        return cls(Files(f"{root}/{safe(target)}/{safe(dataset)}-{key[:12]}"))

    def units(self, layer: str) -> set[int]:
        """Units of a layer that are there."""
        data = self.files.read(f"{safe(layer)}.units.parquet")
        return (
            set()
            if data is None
            else {row["unit"] for row in tables.load(data, f"{self.files.root}/{safe(layer)}.units.parquet")[0]}
        )

    def write(self, layer: str, units: Sequence[UnitExemplars], manifest: dict[str, Any]) -> None:
        """All units of a layer at once; the units file is written last and makes them visible."""
        stem = safe(layer)
        pictures = {e.picture.digest: e.picture for unit in units for e in unit.exemplars}
        rows = [
            {"digest": digest, "data": picture.data, "sources": list(picture.sources)}
            for digest, picture in sorted(pictures.items())
        ]
        self._write(f"{stem}.pictures.parquet", rows, _PICTURES, group=8)
        exemplars = [_row(unit, exemplar) for unit in units for exemplar in unit.exemplars]
        per_unit = max((len(unit.exemplars) for unit in units), default=1)
        self._write(f"{stem}.rows.parquet", exemplars, _ROWS, group=per_unit)
        self.files.write("manifest.json", dumps(manifest | {"version": VERSION}).encode())
        self._write(f"{stem}.units.parquet", [_unit_row(unit) for unit in units], _UNITS, group=1024)

    def read(self, unit: Unit) -> UnitExemplars:
        stem = safe(unit.layer)
        if self._version() != VERSION:
            raise StoreError(f"{self.files.root} holds no exemplars of version {VERSION}")
        found = tables.select(self.files, f"{stem}.units.parquet", "unit", [unit.index])
        if not found:
            raise StoreError(f"{self.files.root} holds no exemplars of {unit}")
        rows = tables.select(self.files, f"{stem}.rows.parquet", "unit", [unit.index])
        digests = sorted({row["picture"] for row in rows})
        pictures = {
            row["digest"]: Picture(data=row["data"], sources=tuple(row["sources"]))
            for row in tables.select(self.files, f"{stem}.pictures.parquet", "digest", digests)
        }
        return UnitExemplars(
            unit=unit,
            threshold=found[0]["threshold"],
            maxima=np.array(found[0]["maxima"]),
            mean=found[0]["mean"],
            std=found[0]["std"],
            exemplars=tuple(_exemplar(row, pictures) for row in rows),
        )

    def _version(self) -> Any:
        try:
            return json.loads(self.files.read("manifest.json") or b"{}").get("version")
        except ValueError as error:
            raise StoreError(f"{self.files.path('manifest.json')} is damaged: {error}; remove the folder") from error

    def _write(self, name: str, rows: list[dict[str, Any]], schema: pa.Schema, group: int) -> None:
        self.files.write(name, tables.dump(rows, schema, {"version": VERSION}, group))


def _row(unit: UnitExemplars, exemplar: Exemplar) -> dict[str, Any]:
    small = None if exemplar.map is None else _compact(exemplar.map)
    return {
        "unit": unit.unit.index,
        "kind": exemplar.kind,
        "rank": exemplar.rank,
        "activation": exemplar.activation,
        "picture": exemplar.picture.digest,
        "map": None if small is None else small.tobytes(),
        "map_shape": None if small is None else list(small.shape),
    }


def _compact(small: Map) -> npt.NDArray[np.float16 | np.float32]:
    """Half precision where its range holds the map; a reader tells by the number of bytes."""
    top = float(np.abs(small).max(initial=0))
    return small.astype(np.float16) if top == 0 or 1e-2 < top < 6e4 else small


def _unit_row(unit: UnitExemplars) -> dict[str, Any]:
    return {
        "unit": unit.unit.index,
        "threshold": unit.threshold,
        "maxima": unit.maxima.tolist(),
        "mean": unit.mean,
        "std": unit.std,
    }


def _exemplar(row: dict[str, Any], pictures: dict[str, Picture]) -> Exemplar:
    small = None
    if row["map"] is not None:
        shape = tuple(row["map_shape"])
        kind = np.float16 if len(row["map"]) == 2 * math.prod(shape) else np.float32
        small = np.frombuffer(row["map"], dtype=kind).reshape(shape).astype(np.float32)
    return Exemplar(
        kind=row["kind"],
        rank=row["rank"],
        activation=row["activation"],
        picture=pictures[row["picture"]],
        map=small,
    )
