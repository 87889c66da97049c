"""What the passes leave behind while they run, so that whoever takes over goes on: a folder of the store.

work-<layers>/scales.npz           bounds of the histograms
              first-<worker>.npz   the summaries of one worker, and of which shards
              second-<shard>.*     rows and pictures of one shard of the second pass
"""

import hashlib
import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from openmaia.dissection.passes import Scales, Wanted
from openmaia.dissection.summary import Summary
from openmaia.errors import StoreError
from openmaia.images import Picture
from openmaia.services import Map, UnitExemplars
from openmaia.store import pictures, tables
from openmaia.store.exemplars import ROWS, ExemplarStore, row

Kept = tuple[int, Picture, list[tuple[Wanted, Map | None]]]

_LAYERED = pa.schema([pa.field("layer", pa.int32()), *ROWS])


@dataclass(frozen=True, slots=True)
class Work:
    """Of one pass over one dataset for some layers."""

    store: ExemplarStore
    layers: tuple[str, ...]
    k: int

    @property
    def folder(self) -> str:
        return "work-" + hashlib.sha256("\x00".join(self.layers).encode()).hexdigest()[:12]

    # -- first pass --------------------------------------------------------------------------------------------------

    def scales(self) -> Scales | None:
        packed = self._load("scales.npz")
        return None if packed is None else {layer: packed[str(i)] for i, layer in enumerate(self.layers)}

    def save_scales(self, scales: Scales) -> None:
        self._save("scales.npz", {str(i): scales[layer] for i, layer in enumerate(self.layers)})

    def save_first(self, worker: str, shards: Iterable[int], summaries: Mapping[str, Summary]) -> None:
        packed = {"shards": np.array(sorted(shards), dtype=np.int64)}
        for i, layer in enumerate(self.layers):
            packed |= {f"{i} {name}": array for name, array in summaries[layer].arrays().items()}
        self._save(f"first-{worker}.npz", packed)

    def done_first(self) -> set[int]:
        return {int(shard) for packed in self._firsts(lambda name: name == "shards") for shard in packed["shards"]}

    def merged(self, scales: Scales) -> dict[str, Summary]:
        total = {layer: Summary.empty(scales[layer], self.k) for layer in self.layers}
        for packed in self._firsts(lambda name: name != "shards"):
            for i, layer in enumerate(self.layers):
                own = {name.split(" ")[1]: packed[name] for name in packed if name.startswith(f"{i} ")}
                total[layer].add(Summary.of_arrays(own, scales[layer], self.k))
        return total

    def _firsts(self, wanted: Callable[[str], bool]) -> Iterable[dict[str, npt.NDArray[Any]]]:
        for name in self.store.files.names(self.folder):
            if name.startswith(f"{self.folder}/first-"):
                packed = self._load(name.removeprefix(f"{self.folder}/"), wanted)
                if packed is not None:
                    yield packed

    # -- second pass -------------------------------------------------------------------------------------------------

    def done_second(self) -> set[int]:
        """A shard's rows are written after its pictures."""
        stem = f"{self.folder}/second-"
        names = [name for name in self.store.files.names(self.folder) if name.startswith(stem)]
        return {int(name.removeprefix(stem).split(".")[0]) for name in names if name.endswith(".parquet")}

    def save_second(self, shard: int, kept: Iterable[Kept]) -> None:
        rows: list[dict[str, Any]] = []

        def noted() -> Iterable[Picture]:
            for at, (_, picture, places) in enumerate(kept):
                for place, small in places:
                    made = row(place.unit, place.kind, place.rank, place.activation, at, small)
                    rows.append({"layer": self.layers.index(place.layer), **made})
                yield picture

        pictures.write(self.store.files, f"{self.folder}/second-{shard:06d}.arrow", noted())
        rows.sort(key=lambda made: made["layer"])
        with self.store.files.writing(f"{self.folder}/second-{shard:06d}.parquet") as stream:
            tables.write(stream, pa.Table.from_pylist(rows, schema=_LAYERED), {}, 4096)

    def finish(self, units: Mapping[str, Sequence[UnitExemplars]]) -> None:
        """Joins the shards of the second pass into the files that are read, and forgets the rest."""
        shards = sorted(self.done_second())
        files, name = self.store.files, f"pictures-{self.folder.removeprefix('work-')}.arrow"
        starts = pictures.join(files, name, [f"{self.folder}/second-{shard:06d}.arrow" for shard in shards])
        for i, layer in enumerate(self.layers):
            parts = [
                self._rows(f"{self.folder}/second-{shard:06d}.parquet", i, start)
                for shard, start in zip(shards, starts, strict=True)
            ]
            rows = pa.concat_tables(parts).sort_by([(key, "ascending") for key in ("unit", "kind", "rank")])
            self.store.write_layer(layer, units[layer], rows, name)
        files.delete_folder(self.folder)

    def _rows(self, name: str, layer: int, start: int) -> pa.Table:
        table = tables.matching(self.store.files, name, "layer", layer).drop_columns(["layer"])
        at = table.schema.get_field_index("picture")
        numbers: Any = table.column(at).to_numpy()
        return table.set_column(at, ROWS.field("picture"), pa.array(numbers + start))

    # -- files -------------------------------------------------------------------------------------------------------

    def _save(self, name: str, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
        buffer = io.BytesIO()
        # Not compressed: it is read once and deleted, and compressing took a tenth of the whole pass.
        np.savez(buffer, **dict(arrays))  # pyright: ignore[reportArgumentType]
        self.store.files.write(f"{self.folder}/{name}", buffer.getvalue())

    def _load(self, name: str, wanted: Callable[[str], bool] = bool) -> dict[str, npt.NDArray[Any]] | None:
        """The arrays with a wanted name; no other one is read."""
        data = self.store.files.read(f"{self.folder}/{name}")
        if data is None:
            return None
        try:
            with np.load(io.BytesIO(data), allow_pickle=False) as found:
                return {key: found[key] for key in found.files if wanted(key)}
        except (ValueError, OSError, KeyError) as error:
            path = self.store.files.path(self.folder)
            raise StoreError(f"{path}/{name} is damaged: {error}; remove {path} to start the pass anew") from error
