"""Reads and writes the exemplars of units.

    <root>/<target>/<dataset>/manifest.json          what they were computed from
                              <layer>.units.parquet  one row per unit: threshold, quantiles, distribution of activations
                              <layer>.rows.parquet   one row per (unit, kind, rank): activation, picture, map
                              <pictures>.arrow       every picture once; mapped into memory where the disk is local

A layer is there when its units file is: that is written last.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from openmaia.errors import StoreError, UsageError
from openmaia.images import Picture
from openmaia.services import QUANTILES, Exemplar, ExemplarKind, Map, Positions, UnitExemplars, UnitState
from openmaia.store import pictures, tables
from openmaia.store.files import Files, safe, unsafe
from openmaia.store.records import dumps
from openmaia.units import Unit

VERSION = 2

KINDS: tuple[ExemplarKind, ...] = ("top", "bottom", "random", "ladder")

ROWS = pa.schema(
    [
        ("unit", pa.int32()),
        ("kind", pa.int8()),
        ("rank", pa.int32()),
        ("activation", pa.float64()),
        ("picture", pa.int64()),
        ("map", pa.binary()),
        ("map_shape", pa.list_(pa.int32())),
    ]
)
"""kind: index into KINDS. picture: row of the pictures file."""

_UNITS = pa.schema(
    [
        ("unit", pa.int32()),
        ("threshold", pa.float64()),
        ("maxima", pa.list_(pa.float64())),
        ("mean", pa.float64()),
        ("std", pa.float64()),
        ("quantiles", pa.list_(pa.float64())),
        ("position_mean", pa.float64()),
        ("position_variance", pa.float64()),
        ("positive", pa.float64()),
        ("state", pa.string()),
    ]
)
UNITS_PER_GROUP = 8
"""Units whose rows are read together with those of the unit asked for."""


@dataclass(frozen=True, slots=True)
class ExemplarStore:
    files: Files

    @classmethod
    def at(cls, root: str, target: str, dataset: str) -> "ExemplarStore":
        return cls(Files(f"{root}/{safe(target)}/{safe(dataset)}"))

    def claim(self, facts: Mapping[str, Any]) -> None:
        """Makes this the store of exemplars computed from `facts`. Raises UsageError where it holds others already,
        naming what differs."""
        manifest = self.manifest()
        if manifest is None:
            self.files.write("manifest.json", dumps({**facts, "version": VERSION}).encode())
            return
        wanted = {**facts, "version": VERSION}
        differing = sorted(key for key in wanted.keys() | manifest.keys() if wanted.get(key) != manifest.get(key))
        if differing and not manifest.get("imported"):
            said = ", ".join(f"{key} ({manifest.get(key)!r} there, {wanted.get(key)!r} wanted)" for key in differing)
            raise UsageError(
                f"{self.files.root} holds exemplars of something else: {said}. Remove the folder, or give another "
                "target.name, exemplars.dataset or paths.exemplars"
            )

    def manifest(self) -> dict[str, Any] | None:
        return self.files.read_json("manifest.json", remedy="remove the folder")

    def layers(self) -> list[str]:
        """Layers that are there."""
        ends = ".units.parquet"
        return [unsafe(name.removesuffix(ends)) for name in self.files.names("") if name.endswith(ends)]

    def states(self, layer: str) -> dict[int, UnitState]:
        """The units of a layer that are there, and whether they are alive."""
        name = f"{safe(layer)}.units.parquet"
        data = self.files.read(name)
        rows = [] if data is None else tables.load(data, self.files.path(name))[0]
        return {row["unit"]: row["state"] for row in rows}

    def spread(self, layer: str) -> dict[int, tuple[float, float]]:
        """Mean and standard deviation of the per-picture activations of each unit of a layer."""
        name = f"{safe(layer)}.units.parquet"
        data = self.files.read(name)
        columns = ("unit", "mean", "std")
        rows = [] if data is None else tables.load(data, self.files.path(name), columns)[0]
        return {row["unit"]: (row["mean"], row["std"]) for row in rows}

    def size(self) -> int:
        """Bytes of what is read; contact sheets lie in a folder of their own."""
        return sum(self.files.size(name) for name in self.files.names("") if "/" not in name)

    def units(self, layer: str) -> set[int]:
        return set(self.states(layer))

    def write(self, layer: str, units: Sequence[UnitExemplars]) -> None:
        """All units of a layer at once, with a pictures file of its own."""
        kept = {e.picture.digest: e.picture for unit in units for e in unit.exemplars}
        numbers = {digest: number for number, digest in enumerate(sorted(kept))}
        name = f"{safe(layer)}.pictures.arrow"
        pictures.write(self.files, name, (kept[digest].packed() for digest in numbers))
        rows = [
            row(unit.unit.index, e.kind, e.rank, e.activation, numbers[e.picture.digest], e.map)
            for unit in sorted(units, key=lambda unit: unit.unit.index)
            for e in unit.exemplars
        ]
        self.write_layer(layer, units, pa.Table.from_pylist(rows, schema=ROWS), name)

    def write_layer(self, layer: str, units: Iterable[UnitExemplars], rows: pa.Table, pictures_file: str) -> None:
        """rows: as ROWS, sorted by unit. pictures_file: where their pictures are."""
        found = sorted(units, key=lambda unit: unit.unit.index)
        group = max(len(rows) * UNITS_PER_GROUP // max(len(found), 1), 1)
        header = {"version": VERSION, "pictures": pictures_file, "quantiles": QUANTILES}
        with self.files.writing(f"{safe(layer)}.rows.parquet") as stream:
            tables.write(stream, rows, header, group)
        data = tables.dump([_unit_row(unit) for unit in found], _UNITS, header, 64)
        self.files.write(f"{safe(layer)}.units.parquet", data)

    def read(self, unit: Unit) -> UnitExemplars:
        """Touches the rows and pictures of this unit and, on a disk, little else."""
        stem = safe(unit.layer)
        if (self.manifest() or {}).get("version") != VERSION:
            raise StoreError(f"{self.files.root} holds no exemplars of version {VERSION}")
        found, _ = tables.select(self.files, f"{stem}.units.parquet", "unit", unit.index)
        if not found:
            raise StoreError(f"{self.files.root} holds no exemplars of {unit}")
        rows, header = tables.select(self.files, f"{stem}.rows.parquet", "unit", unit.index)
        shown = pictures.read(self.files, header["pictures"], sorted({row["picture"] for row in rows}))
        return _unit(unit, found[0], rows, shown)


def row(unit: int, kind: ExemplarKind, rank: int, activation: float, picture: int, small: Map | None) -> dict[str, Any]:
    compact = None if small is None else _compact(small)
    return {
        "unit": unit,
        "kind": KINDS.index(kind),
        "rank": rank,
        "activation": activation,
        "picture": picture,
        "map": None if compact is None else compact.tobytes(),
        "map_shape": None if compact is None else list(compact.shape),
    }


def _compact(small: Map) -> npt.NDArray[np.float16 | np.float32]:
    """Half precision where its range holds the map; a reader tells by the number of bytes."""
    top = float(np.abs(small).max(initial=0))
    return small.astype(np.float16) if top == 0 or 1e-2 < top < 6e4 else small


def _unit_row(unit: UnitExemplars) -> dict[str, Any]:
    positions = unit.positions
    return {
        "unit": unit.unit.index,
        "threshold": unit.threshold,
        "maxima": unit.maxima.tolist(),
        "mean": unit.mean,
        "std": unit.std,
        "quantiles": positions and list(positions.quantiles),
        "position_mean": positions and positions.mean,
        "position_variance": positions and positions.variance,
        "positive": positions and positions.positive,
        "state": unit.state,
    }


def _unit(unit: Unit, found: tables.Row, rows: Sequence[tables.Row], shown: Mapping[int, Picture]) -> UnitExemplars:
    positions = None
    if found["quantiles"] is not None:
        positions = Positions(
            quantiles=tuple(found["quantiles"]),
            mean=found["position_mean"],
            variance=found["position_variance"],
            positive=found["positive"],
        )
    return UnitExemplars(
        unit=unit,
        threshold=found["threshold"],
        maxima=np.array(found["maxima"]),
        mean=found["mean"],
        std=found["std"],
        exemplars=tuple(_exemplar(row, shown) for row in rows),
        positions=positions,
        state=found["state"],
    )


def _exemplar(row: tables.Row, shown: Mapping[int, Picture]) -> Exemplar:
    small = None
    if row["map"] is not None:
        shape = tuple(row["map_shape"])
        kind = np.float16 if len(row["map"]) == 2 * math.prod(shape) else np.float32
        small = np.frombuffer(row["map"], dtype=kind).reshape(shape).astype(np.float32)
    return Exemplar(
        kind=KINDS[int(row["kind"])],
        rank=row["rank"],
        activation=row["activation"],
        picture=shown[row["picture"]],
        map=small,
    )
