"""Intermediate results of the two passes that compute exemplars (see compute.py), in a folder of the exemplar store.

work-<hash of layers>/units-<layer number>.parquet   statistics of the units, from the first pass
                      places.npy                     the exemplars that the first pass chose; written last
                      part-<random>.*                rows (.parquet) and images (.arrow) of a part of the second pass
"""

import hashlib
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import numpy as np
import pyarrow as pa

from openmaia.core.errors import StoreError
from openmaia.core.services import UnitExemplars
from openmaia.exemplars import image_table
from openmaia.exemplars.passes import Kept, Places
from openmaia.exemplars.store import ROW_SCHEMA, ExemplarStore, pack_maps, pack_units
from openmaia.runs import tables

_LAYERED = pa.schema([pa.field("layer", pa.int32()), *ROW_SCHEMA])


@dataclass(frozen=True, slots=True)
class Work:
    """Reads and writes the intermediate results of the exemplars of some layers, which several workers may share."""

    store: ExemplarStore
    layers: tuple[str, ...]

    @property
    def folder(self) -> str:
        """Name of the folder with the intermediate results."""
        return f"work-{self._hash}"

    @property
    def pictures_file(self) -> str:
        """Name of the file with the images of all layers in the store."""
        return f"pictures-{self._hash}.arrow"

    @property
    def _hash(self) -> str:
        return hashlib.sha256("\x00".join(self.layers).encode()).hexdigest()[:12]

    def places(self) -> Places | None:
        """Returns what the first pass chose, or None if it has not ended. Raises StoreError if the file is damaged."""
        name = f"{self.folder}/places.npy"
        if (data := self.store.files.read(name)) is None:
            return None
        try:
            return np.load(io.BytesIO(data), allow_pickle=False)
        except (ValueError, OSError, EOFError) as error:
            path = self.store.files.path(self.folder)
            raise StoreError(
                f"{path}/places.npy is damaged: {error}; remove {path} to start the passes anew"
            ) from error

    def save_first(self, units: Mapping[str, Sequence[UnitExemplars]], places: Places) -> None:
        """Saves the results of the first pass, which ends it."""
        for i, layer in enumerate(self.layers):
            self.store.files.write(self._units_file(i), pack_units(units[layer], self.pictures_file))
        buffer = io.BytesIO()
        np.save(buffer, places)
        # Last, because the first pass counts as ended if this file exists.
        self.store.files.write(f"{self.folder}/places.npy", buffer.getvalue())

    def save_part(self, kept: Sequence[Kept]) -> str:
        """Saves the results of the second pass for some images, and returns the name of the files without an ending."""
        # A random name: a worker that counts as dead may still write beside the one that replaces it.
        name = f"{self.folder}/part-{uuid4().hex[:12]}"
        image_table.write(self.store.files, f"{name}.arrow", (each.image for each in kept))
        with self.store.files.writing(f"{name}.parquet") as stream:
            tables.write(stream, _table(kept).sort_by("layer"), {}, 4096)
        return name

    def delete_parts(self) -> None:
        """Deletes what an interrupted second pass has left."""
        for name in self.store.files.names(self.folder):
            if name.startswith(f"{self.folder}/part-"):
                self.store.files.delete(name)

    def finish(self, parts: Sequence[str]) -> None:
        """Writes the final files of the store from the parts that `save_part` named, and deletes the intermediate results."""
        files = self.store.files
        starts = image_table.join(files, self.pictures_file, [f"{part}.arrow" for part in parts])
        for i, layer in enumerate(self.layers):
            rows = [self._rows(f"{part}.parquet", i, start) for part, start in zip(parts, starts, strict=True)]
            self.store.write_rows(layer, _sorted(pa.concat_tables(rows)), self.pictures_file)
        # After all rows, because a layer with this table counts as complete.
        for i, layer in enumerate(self.layers):
            if (table := files.read(self._units_file(i))) is None:
                raise StoreError(f"{files.path(self._units_file(i))} is missing; start again")
            self.store.write_units(layer, table)
        files.delete_folder(self.folder)

    def _units_file(self, layer: int) -> str:
        return f"{self.folder}/units-{layer}.parquet"

    def _rows(self, name: str, layer: int, start: int) -> pa.Table:
        table = tables.matching(self.store.files, name, "layer", layer).drop_columns(["layer"])
        at = table.schema.get_field_index("picture")
        numbers: Any = table.column(at).to_numpy()
        return table.set_column(at, ROW_SCHEMA.field("picture"), pa.array(numbers + start))


def _table(images: Sequence[Kept]) -> pa.Table:
    places = np.concatenate([each.places for each in images])
    counts = [len(each.places) for each in images]
    maps = [small for each in images for small in each.maps]
    boxes = np.repeat(np.array([each.box for each in images], dtype=np.float64), counts, axis=0)
    columns = {
        **{name: places[name] for name in ("layer", "unit", "kind", "rank", "activation")},
        "picture": np.repeat(np.arange(len(images)), counts),
        "box": pa.FixedSizeListArray.from_arrays(pa.array(boxes.ravel()), 4),
        "map": pack_maps(maps),
        "map_shape": [None if small is None else small.shape for small in maps],
    }
    return pa.table([pa.array(columns[field.name], field.type) for field in _LAYERED], schema=_LAYERED)


def _sorted(rows: pa.Table) -> pa.Table:
    # To sort, Arrow joins all maps into one array, in which the type `binary` can hold 2 GiB only.
    at = rows.schema.get_field_index("map")
    large: Any = rows.column(at).cast(pa.large_binary())
    rows = rows.set_column(at, pa.field("map", pa.large_binary()), large)
    return rows.sort_by([(key, "ascending") for key in ("unit", "kind", "rank")])
