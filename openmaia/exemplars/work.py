"""Intermediate results of the two passes that compute exemplars (see compute.py), in a folder of the exemplar store.

An interrupted computation continues from them.

work-<hash of layers>/scales.npz           scales of the histograms
                      first-<worker>.npz   the statistics of one worker, and the shards of images that they cover
                      second-<shard>.*     rows (.parquet) and images (.arrow) of one shard of the second pass
"""

import hashlib
import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from openmaia.core.errors import StoreError
from openmaia.core.services import UnitExemplars
from openmaia.exemplars import image_table
from openmaia.exemplars.passes import Kept, Scales
from openmaia.exemplars.store import ROWS, ExemplarStore, packed_maps
from openmaia.exemplars.summary import Summary
from openmaia.runs import tables

_LAYERED = pa.schema([pa.field("layer", pa.int32()), *ROWS])


@dataclass(frozen=True, slots=True)
class Work:
    """Reads and writes the intermediate results of the computation of exemplars of some layers.

    Exemplars are dataset images that show to what a unit responds. The workers that share the computation exchange
    their results through one folder (see the top of this module).
    """

    store: ExemplarStore
    layers: tuple[str, ...]
    """The layers whose exemplars are computed. The folder's name is a hash of these names in this order."""
    k: int
    """Number of exemplars per unit and kind."""

    @property
    def folder(self) -> str:
        """Name of the folder with the intermediate results. It lies in the folder of the exemplar store."""
        return "work-" + hashlib.sha256("\x00".join(self.layers).encode()).hexdigest()[:12]

    # -- first pass --------------------------------------------------------------------------------------------------

    def scales(self) -> Scales | None:
        """Returns the histogram scales of the units by layer, or None if no worker has saved them.

        The scale of a unit is the number by which its activations are divided for its histogram (see histogram.py).
        """
        packed = self._load("scales.npz")
        return None if packed is None else {layer: packed[str(i)] for i, layer in enumerate(self.layers)}

    def save_scales(self, scales: Scales) -> None:
        """Saves the histogram scales of the units by layer (see `scales`). Scales saved earlier are replaced."""
        self._save("scales.npz", {str(i): scales[layer] for i, layer in enumerate(self.layers)})

    def save_first(self, worker: str, shards: Iterable[int], summaries: Mapping[str, Summary]) -> None:
        """Saves the statistics that one worker has collected in the first pass over the images.

        They replace the statistics that the same worker saved earlier.

        Args:
            worker: Name of the worker.
            shards: Indices of all shards (groups of images) that the statistics cover.
            summaries: The statistics of the units' activations, by layer.
        """
        packed = {"shards": np.array(sorted(shards), dtype=np.int64)}
        for i, layer in enumerate(self.layers):
            packed |= {f"{i} {name}": array for name, array in summaries[layer].arrays().items()}
        self._save(f"first-{worker}.npz", packed)

    def done_first(self) -> set[int]:
        """Returns the indices of the shards of images that the saved statistics of the first pass cover."""
        return {int(shard) for packed in self._firsts(lambda name: name == "shards") for shard in packed["shards"]}

    def merged(self, scales: Scales) -> dict[str, Summary]:
        """Merges the statistics that the workers have saved in the first pass over the images.

        Args:
            scales: Histogram scales of the units by layer, see `scales`.

        Returns:
            The statistics of the units' activations on all these images, by layer.
        """
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
        """Returns the indices of the shards whose images and activation maps the second pass has saved.

        The table of a shard's exemplars is written after its images, so that a shard is complete if its table exists.
        """
        stem = f"{self.folder}/second-"
        names = [name for name in self.store.files.names(self.folder) if name.startswith(stem)]
        return {int(name.removeprefix(stem).split(".")[0]) for name in names if name.endswith(".parquet")}

    def save_second(self, shard: int, kept: Iterable[Kept]) -> None:
        """Saves the results of the second pass for one shard (a group of images).

        They are the images that were selected as exemplars, and the units' activation maps on them.

        Args:
            shard: Index of the shard.
            kept: The results that `passes.second_pass` yields, in any order. One image may be an exemplar of several
                units.
        """
        images = sorted(kept, key=lambda each: each.number)
        image_table.write(self.store.files, f"{self.folder}/second-{shard:06d}.arrow", (each.image for each in images))
        with self.store.files.writing(f"{self.folder}/second-{shard:06d}.parquet") as stream:
            tables.write(stream, _table(images).sort_by("layer"), {}, 4096)

    def finish(self, units: Mapping[str, Sequence[UnitExemplars]]) -> None:
        """Writes the final files of the exemplar store, and deletes the intermediate results.

        The images and exemplars come from the shards (groups of images) that the second pass has saved.

        Args:
            units: The statistics of all units, by layer. The field `exemplars` of the units is not used.
        """
        shards = sorted(self.done_second())
        files, name = self.store.files, f"pictures-{self.folder.removeprefix('work-')}.arrow"
        starts = image_table.join(files, name, [f"{self.folder}/second-{shard:06d}.arrow" for shard in shards])
        for i, layer in enumerate(self.layers):
            parts = [
                self._rows(f"{self.folder}/second-{shard:06d}.parquet", i, start)
                for shard, start in zip(shards, starts, strict=True)
            ]
            rows = _sorted(pa.concat_tables(parts))
            self.store.write_rows(layer, len(units[layer]), rows, name)
        # Last, because a layer with this table counts as computed: interrupted before, the work continues here.
        for layer in self.layers:
            self.store.write_units(layer, units[layer], name)
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
        """Returns the arrays of a file whose names satisfy `wanted`, or None if the file does not exist."""
        data = self.store.files.read(f"{self.folder}/{name}")
        if data is None:
            return None
        try:
            with np.load(io.BytesIO(data), allow_pickle=False) as found:
                return {key: found[key] for key in found.files if wanted(key)}
        except (ValueError, OSError, KeyError) as error:
            path = self.store.files.path(self.folder)
            raise StoreError(f"{path}/{name} is damaged: {error}; remove {path} to start the pass anew") from error


def _table(images: Sequence[Kept]) -> pa.Table:
    """Returns the rows of the exemplars that some images are, with the schema _LAYERED."""
    places = np.concatenate([each.places for each in images])
    counts = [len(each.places) for each in images]
    maps = [small for each in images for small in each.maps]
    boxes = np.repeat(np.array([each.box for each in images], dtype=np.float64), counts, axis=0)
    columns = {
        **{name: places[name] for name in ("layer", "unit", "kind", "rank", "activation")},
        "picture": np.repeat(np.arange(len(images)), counts),
        "box": pa.FixedSizeListArray.from_arrays(pa.array(boxes.ravel()), 4),
        "map": packed_maps(maps),
        "map_shape": [None if small is None else small.shape for small in maps],
    }
    return pa.table([pa.array(columns[field.name], field.type) for field in _LAYERED], schema=_LAYERED)


def _sorted(rows: pa.Table) -> pa.Table:
    """Sorts the exemplars of a layer by unit, kind and rank.

    For that, Arrow joins all maps into one array, in which the type `binary` can hold 2 GiB only.
    """
    at = rows.schema.get_field_index("map")
    large: Any = rows.column(at).cast(pa.large_binary())
    rows = rows.set_column(at, pa.field("map", pa.large_binary()), large)
    return rows.sort_by([(key, "ascending") for key in ("unit", "kind", "rank")])
