"""Imported exemplars into an exemplar store, a unit at a time."""

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pyarrow as pa

from openmaia.images import Picture
from openmaia.interchange import exemplars
from openmaia.services import UnitExemplars
from openmaia.store import pictures
from openmaia.store.exemplars import ROWS, ExemplarStore, row
from openmaia.store.files import safe

Progress = Callable[[str, int, int], None]


def claim(store: ExemplarStore, target: str, source: str, estimated: set[str]) -> None:
    """Marks the store as imported, and adds to what an earlier import has estimated there. Raises UsageError where the
    store holds exemplars that were computed here."""
    before = store.manifest() or {}
    if before.get("imported"):
        estimated = estimated | set(before.get("estimated", ()))
        store.files.delete("manifest.json")
    store.claim({"target": target, "imported": "maia", "source": source, "estimated": sorted(estimated)})


def write(store: ExemplarStore, layer: exemplars.Layer, target: str, progress: Progress) -> None:
    """Pictures go to the disk as they are read, each once; what stays in memory is the maps (6 KB an exemplar)."""
    name = f"{safe(layer.name)}.pictures.arrow"
    numbers: dict[str, int] = {}
    rows: list[dict[str, Any]] = []
    found: list[UnitExemplars] = []

    def each() -> Iterator[Picture]:
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            for unit in exemplars.units(layer, target):
                fresh = {e.picture.digest: e.picture for e in unit.exemplars if e.picture.digest not in numbers}
                numbers.update({digest: len(numbers) + i for i, digest in enumerate(fresh)})
                yield from pool.map(Picture.packed, fresh.values())
                rows.extend(
                    row(unit.unit.index, e.kind, e.rank, e.activation, numbers[e.picture.digest], e.map)
                    for e in unit.exemplars
                )
                found.append(replace(unit, exemplars=()))
                progress(layer.name, len(found), len(layer.units))

    pictures.write(store.files, name, each())
    store.write_layer(layer.name, found, pa.Table.from_pylist(rows, schema=ROWS), name)
