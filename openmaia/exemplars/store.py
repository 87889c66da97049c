"""Reads and writes exemplars.

    <root>/<target>/<dataset>/manifest.json          the network, images and parameters that the exemplars depend on
                              <layer>.units.parquet  one row per unit: threshold, quantiles, distribution of activations
                              <layer>.rows.parquet   one row per (unit, kind, rank): activation, image number, map
                              <layer>.drives.parquet what the units raise, if it was asked (see drives.py)
                              <pictures>.arrow       the images as a whole, each stored once

The units file of a layer is written last: a layer is complete if this file exists.
"""

import math
import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any, cast

import numpy as np
import pyarrow as pa

from openmaia.core.errors import StoreError, UsageError
from openmaia.core.images import EncodedImage, ViewBox
from openmaia.core.services import (
    QUANTILES,
    ActivationCounts,
    Exemplar,
    ExemplarKind,
    Map,
    PositionStatistics,
    UnitExemplars,
    UnitState,
)
from openmaia.core.units import Unit
from openmaia.exemplars import image_table
from openmaia.runs import tables
from openmaia.runs.files import Files, safe, unsafe
from openmaia.runs.records import dumps

STORE_VERSION = 8

_CHANGED = {"pictures": "the pictures changed", "component": "the keys or the code of the target changed"}
"""What is said about facts whose values tell a user nothing."""

KINDS: tuple[ExemplarKind, ...] = ("top", "bottom", "random", "ladder", "levels")

ROW_SCHEMA = pa.schema(
    [
        ("unit", pa.int32()),
        ("kind", pa.int8()),
        ("rank", pa.int32()),
        ("activation", pa.float64()),
        ("picture", pa.int64()),
        ("box", pa.list_(pa.float64(), 4)),
        ("map", pa.binary()),
        ("map_shape", pa.list_(pa.int32())),
    ]
)
"""Columns of the file with one row per exemplar of a layer. `kind` is an index into KINDS, `picture` the number of the
image in the images file."""

_UNITS = pa.schema(
    [
        ("unit", pa.int32()),
        ("threshold", pa.float64()),
        ("maxima", pa.list_(pa.float64())),
        ("mean", pa.float64()),
        ("std", pa.float64()),
        ("count_values", pa.list_(pa.float64())),
        ("count_images", pa.list_(pa.int64())),
        ("quantiles", pa.list_(pa.float64())),
        ("position_mean", pa.float64()),
        ("position_variance", pa.float64()),
        ("positive", pa.float64()),
        ("class_name", pa.string()),
        ("state", pa.string()),
    ]
)
_UNITS_PER_GROUP = 8
"""Average number of units in a row group of that file. Only whole groups are read."""


@dataclass(frozen=True, slots=True)
class ExemplarStore:
    """A folder, local or at a URL, with the exemplars of the units of one target in one dataset."""

    files: Files

    @classmethod
    def at(cls, root: str, target: str, dataset: str) -> "ExemplarStore":
        """Returns the store below the folder or URL `root`. It may not exist yet."""
        return cls(Files(root).inside(f"{safe(target)}/{safe(dataset)}"))

    def claim(self, facts: Mapping[str, Any]) -> None:
        """Reserves the store for exemplars that depend on the given facts, such as the digest of the network.

        A new store gets a manifest with these facts. Of imported exemplars, only the version of the format is checked.

        Raises:
            UsageError: The manifest of the store contains other facts. The message names the differences.
        """
        manifest = self.manifest()
        if manifest is None:
            self.write_manifest(facts)
            return
        wanted = {**(manifest if manifest.get("imported") else facts), "version": STORE_VERSION}
        # A fact that is false or empty is as good as absent: a target that gets a switch keeps the exemplars without it.
        keys = wanted.keys() | manifest.keys()
        differing = sorted(key for key in keys if (wanted.get(key) or None) != (manifest.get(key) or None))
        if differing:
            said = ", ".join(
                _CHANGED.get(key) or f"{key} ({manifest.get(key)!r} there, {wanted.get(key)!r} wanted)"
                for key in differing
            )
            raise UsageError(
                f"{self.files.root} holds exemplars of something else: {said}. Remove the folder, or compute "
                "exemplars anew with exemplars.dataset=NAME (or another target.name or paths.exemplars), which keeps these"
            )

    def write_manifest(self, facts: Mapping[str, Any]) -> None:
        """Writes manifest.json, or replaces it."""
        self.files.write("manifest.json", dumps({**facts, "version": STORE_VERSION}).encode())

    def manifest(self) -> dict[str, Any] | None:
        """Returns the facts of manifest.json and the version of the format. None if the store is new.

        Raises:
            StoreError: The file is damaged.
        """
        found: Any = self.files.read_json("manifest.json", remedy="remove the folder")
        if found is not None and not isinstance(found, dict):
            raise StoreError(f"{self.files.path('manifest.json')} is damaged: it is no JSON object; remove the folder")
        return cast("dict[str, Any] | None", found)

    def is_current(self) -> bool:
        """Returns whether the store has the present version of the format. False for a new store.

        Raises:
            StoreError: The manifest is damaged.
        """
        return (self.manifest() or {}).get("version") == STORE_VERSION

    def layers(self) -> list[str]:
        """Returns the names of the layers that have exemplars."""
        ends = ".units.parquet"
        return [unsafe(name.removesuffix(ends)) for name in self.files.names("") if name.endswith(ends)]

    def states(self, layer: str) -> dict[int, UnitState]:
        """Returns the state of each unit of a layer by unit index. Empty if the layer has no exemplars."""
        name = f"{safe(layer)}.units.parquet"
        data = self.files.read(name)
        rows = [] if data is None else tables.load(data, self.files.path(name), schema=_UNITS)[0]
        return {row["unit"]: row["state"] for row in rows}

    def statistics(self, target: str, layer: str) -> dict[Unit, UnitExemplars]:
        """Returns the units of a layer with their statistics and without exemplars. Empty if the layer has none.

        Raises:
            StoreError: The file is damaged.
        """
        name = f"{safe(layer)}.units.parquet"
        data = self.files.read(name)
        rows = [] if data is None else tables.load(data, self.files.path(name), schema=_UNITS)[0]
        units = [Unit(target=target, layer=layer, index=row["unit"]) for row in rows]
        try:
            return {unit: _unit(unit, row, [], {}) for unit, row in zip(units, rows, strict=True)}
        except (LookupError, TypeError, ValueError, OverflowError) as error:
            raise StoreError(f"{self.files.path(name)} is damaged: {error!r}; compute the exemplars again") from error

    def spread(self, layer: str) -> dict[int, tuple[float, float]]:
        """Returns the mean and the standard deviation of the activations on images, by unit index.

        Units without statistics, such as imported ones, are left out. Empty if the layer has no exemplars.
        """
        name = f"{safe(layer)}.units.parquet"
        data = self.files.read(name)
        columns = ("unit", "mean", "std")
        rows = [] if data is None else tables.load(data, self.files.path(name), columns, _UNITS)[0]
        return {row["unit"]: (row["mean"], row["std"]) for row in rows if row["std"] is not None}

    def top_means(self, layer: str) -> dict[int, float]:
        """Returns the mean activation of each unit on its top exemplars, by unit index. Empty without exemplars."""
        name = f"{safe(layer)}.rows.parquet"
        data = self.files.read(name)
        columns = ("unit", "kind", "activation")
        rows = [] if data is None else tables.load(data, self.files.path(name), columns, ROW_SCHEMA)[0]
        top: defaultdict[int, list[float]] = defaultdict(list)
        for row in rows:
            if KINDS[row["kind"]] == "top":
                top[row["unit"]].append(row["activation"])
        return {unit: fmean(activations) for unit, activations in top.items()}

    def top_pictures(self, layer: str) -> dict[int, tuple[int, ...]]:
        """Returns the numbers of the images that excite each unit most, by unit index. Empty without exemplars."""
        name = f"{safe(layer)}.rows.parquet"
        data = self.files.read(name)
        columns = ("unit", "kind", "picture")
        rows = [] if data is None else tables.load(data, self.files.path(name), columns, ROW_SCHEMA)[0]
        top: defaultdict[int, list[int]] = defaultdict(list)
        for row in rows:
            if KINDS[row["kind"]] == "top":
                top[row["unit"]].append(row["picture"])
        return {unit: tuple(numbers) for unit, numbers in top.items()}

    def pictures(self, layer: str, numbers: Sequence[int]) -> dict[int, EncodedImage]:
        """Returns images of a layer that has exemplars, by number. Raises StoreError if a file is damaged or lacks one."""
        name = f"{safe(layer)}.rows.parquet"
        return image_table.read(self.files, self._pictures_file(name, tables.header(self.files, name)), numbers)

    def size(self) -> int:
        """Returns the size of the exemplars in bytes, without subfolders such as those of contact sheets."""
        return sum(size for name, size in self.files.sizes("").items() if "/" not in name)

    def units(self, layer: str) -> set[int]:
        """Returns the indices of the units of a layer that have exemplars. Empty if the layer has none."""
        return set(self.states(layer))

    def write(self, layer: str, units: Iterable[UnitExemplars], images_name: str = "") -> None:
        """Writes a layer, with a file of its own for the images. Only the activation maps of all units stay in memory.

        Args:
            layer: Name of the layer.
            units: The units with their exemplars. The iterable may read them from this store during the call. Then
                `images_name` must be a new name, because the file with the old images must not be overwritten.
            images_name: Name of the file with the images, without its ending. Empty for the name of the layer.
        """
        name = f"{safe(images_name or layer)}.pictures.arrow"
        numbers: dict[str, int] = {}
        rows: list[dict[str, Any]] = []
        written: list[UnitExemplars] = []

        def images() -> Iterator[EncodedImage]:
            with ThreadPoolExecutor(os.cpu_count()) as pool:
                for unit in units:
                    new = {e.image.digest: e.image for e in unit.exemplars if e.image.digest not in numbers}
                    numbers.update({digest: len(numbers) + i for i, digest in enumerate(new)})
                    yield from pool.map(EncodedImage.packed, new.values())
                    rows.extend(
                        row(unit.unit.index, e.kind, e.rank, e.activation, numbers[e.image.digest], e.box, e.map)
                        for e in unit.exemplars
                    )
                    written.append(replace(unit, exemplars=()))

        image_table.write(self.files, name, images())
        rows.sort(key=lambda row: row["unit"])
        self.write_rows(layer, pa.Table.from_pylist(rows, schema=ROW_SCHEMA), name)
        self.write_units(layer, pack_units(written, name))

    def write_rows(self, layer: str, rows: pa.Table, pictures_file: str) -> None:
        """Writes the exemplars of a layer, of the schema ROW_SCHEMA sorted by unit, whose images are stored already."""
        units: Any = rows.column("unit").unique()
        group = max(len(rows) * _UNITS_PER_GROUP // max(len(units), 1), 1)
        with self.files.writing(f"{safe(layer)}.rows.parquet") as stream:
            tables.write(stream, rows, _header(pictures_file), group)

    def write_units(self, layer: str, table: bytes) -> None:
        """Writes the result of `pack_units` for a layer, after its other files: the layer then counts as complete."""
        self.files.write(f"{safe(layer)}.units.parquet", table)

    def read(self, unit: Unit) -> UnitExemplars:
        """Returns a unit. From a local disk, little more than its own rows and images is read.

        Raises:
            StoreError: The unit has no exemplars, or a file is damaged or has another version.
        """
        stem = safe(unit.layer)
        if not self.is_current():
            raise StoreError(f"{self.files.root} holds no exemplars of version {STORE_VERSION}")
        found, _ = tables.select(self.files, f"{stem}.units.parquet", "unit", unit.index, _UNITS)
        if not found:
            raise StoreError(f"{self.files.root} holds no exemplars of {unit}")
        name = f"{stem}.rows.parquet"
        rows, header = tables.select(self.files, name, "unit", unit.index, ROW_SCHEMA)
        try:
            shown = image_table.read(
                self.files, self._pictures_file(name, header), sorted({row["picture"] for row in rows})
            )
            return _unit(unit, found[0], rows, shown)
        except (LookupError, TypeError, ValueError, OverflowError) as error:
            raise StoreError(f"{self.files.path(name)} is damaged: {error!r}; compute the exemplars again") from error

    def _pictures_file(self, name: str, header: Mapping[str, Any]) -> str:
        pictures: Any = header.get("pictures")
        if not isinstance(pictures, str) or "/" in pictures:
            raise StoreError(f"{self.files.path(name)} names no file with its images")
        return pictures


def pack_units(units: Iterable[UnitExemplars], pictures_file: str) -> bytes:
    """Returns the table with the statistics of the units of a layer, one row per unit, without their exemplars."""
    found = sorted(units, key=lambda unit: unit.unit.index)
    return tables.dump([_unit_row(unit) for unit in found], _UNITS, _header(pictures_file), 64)


def _header(pictures_file: str) -> dict[str, Any]:
    return {"version": STORE_VERSION, "pictures": pictures_file, "quantiles": QUANTILES}


def row(
    unit: int, kind: ExemplarKind, rank: int, activation: float, image: int, box: ViewBox, small: Map | None
) -> dict[str, Any]:
    """Returns the table row (see ROW_SCHEMA) of one exemplar."""
    return {
        "unit": unit,
        "kind": KINDS.index(kind),
        "rank": rank,
        "activation": activation,
        "picture": image,
        "box": box,
        "map": pack_maps([small])[0],
        "map_shape": None if small is None else list(small.shape),
    }


def pack_maps(maps: Sequence[Map | None]) -> list[bytes | None]:
    """Returns the bytes of activation maps: float16 where the values of a map fit, else float32.

    The reader recognizes the type by the number of bytes. None stays None.
    """
    by_shape: defaultdict[tuple[int, ...], list[int]] = defaultdict(list)
    for at, small in enumerate(maps):
        if small is not None:
            by_shape[small.shape].append(at)
    packed: list[bytes | None] = [None] * len(maps)
    for rows in by_shape.values():
        # All maps of a shape at once: one by one, they would take most of the time of a row.
        stacked = np.array([maps[at] for at in rows], dtype=np.float32)
        top = np.abs(stacked).max(axis=(1, 2), initial=0)
        with np.errstate(over="ignore"):
            halves = stacked.astype(np.float16)
        fits = (top == 0) | ((top > 1e-2) & (top < 6e4))
        for at, whole, half, is_half in zip(rows, stacked, halves, fits.tolist(), strict=True):
            packed[at] = (half if is_half else whole).tobytes()
    return packed


def _unit_row(unit: UnitExemplars) -> dict[str, Any]:
    positions = unit.positions
    return {
        "unit": unit.unit.index,
        "threshold": unit.threshold,
        "maxima": None if unit.maxima is None else unit.maxima.tolist(),
        "mean": unit.mean,
        "std": unit.std,
        "count_values": None if unit.counts is None else unit.counts.values.tolist(),
        "count_images": None if unit.counts is None else unit.counts.images.tolist(),
        "quantiles": positions and list(positions.quantiles),
        "position_mean": positions and positions.mean,
        "position_variance": positions and positions.variance,
        "positive": positions and positions.positive,
        "class_name": unit.class_name,
        "state": unit.state,
    }


def _unit(
    unit: Unit, found: tables.TableRow, rows: Sequence[tables.TableRow], shown: Mapping[int, EncodedImage]
) -> UnitExemplars:
    positions = None
    if found["quantiles"] is not None:
        positions = PositionStatistics(
            quantiles=tuple(found["quantiles"]),
            mean=found["position_mean"],
            variance=found["position_variance"],
            positive=found["positive"],
        )
    return UnitExemplars(
        unit=unit,
        threshold=found["threshold"],
        maxima=None if found["maxima"] is None else np.array(found["maxima"]),
        mean=found["mean"],
        std=found["std"],
        counts=_counts(found),
        class_name=found["class_name"],
        exemplars=tuple(_exemplar(row, shown) for row in rows),
        positions=positions,
        state=found["state"],
    )


def _counts(found: tables.TableRow) -> ActivationCounts | None:
    if found["count_values"] is None:
        return None
    values, images = np.array(found["count_values"], np.float64), np.array(found["count_images"], np.int64)
    if values.shape != images.shape:
        raise ValueError(f"{len(values)} bins with {len(images)} counts")
    return ActivationCounts(values=values, images=images)


def _exemplar(row: tables.TableRow, shown: Mapping[int, EncodedImage]) -> Exemplar:
    small = None
    if row["map"] is not None:
        shape = tuple(row["map_shape"])
        kind = np.float16 if len(row["map"]) == 2 * math.prod(shape) else np.float32
        small = np.frombuffer(row["map"], dtype=kind).reshape(shape).astype(np.float32)
    return Exemplar(
        kind=KINDS[int(row["kind"])],
        rank=row["rank"],
        activation=row["activation"],
        image=shown[row["picture"]],
        box=tuple(row["box"]),
        map=small,
    )
