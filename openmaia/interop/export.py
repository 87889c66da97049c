"""Exports exemplar stores in the folder layout of MAIA and MILAN (see exemplars.py), for tools that read it."""

import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from openmaia.core.errors import UsageError
from openmaia.core.paths import user_path
from openmaia.core.services import Exemplar, UnitExemplars
from openmaia.core.units import Unit
from openmaia.exemplars.store import ExemplarStore
from openmaia.interop import masks
from openmaia.runs.files import Files, safe, unsafe

_SIDE = 224
"""Side in pixels to which the parts of images that the network sees are scaled if their sizes in a layer differ."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedLayer:
    """What determines the shapes of the exported arrays of a layer."""

    units: tuple[Unit, ...]
    """Those with top exemplars. No others are exported."""
    k: int
    """The smallest number of top exemplars that any of these units has."""
    sizes: frozenset[tuple[int, int]]
    """All different (height, width) of the stored images."""

    @property
    def size(self) -> tuple[int, int]:
        """(height, width) to which all images of the layer are scaled."""
        return next(iter(self.sizes)) if len(self.sizes) == 1 else (_SIDE, _SIDE)

    @property
    def complete(self) -> bool:
        """Whether row i of the exported arrays belongs to unit i. Otherwise the indices have to be exported, too."""
        return [unit.index for unit in self.units] == list(range(len(self.units)))


def export(
    source: str, to: str, progress: Callable[[str, int, int], None] = lambda layer, done, total: None
) -> list[str]:
    """Exports the top exemplars of all layers of exemplar stores to `to`/TARGET/DATASET/LAYER.

    Args:
        source: An exemplar store, or a folder or URL with several stores.
        to: The destination folder.
        progress: Called with the name of the layer, the number of its units that are written, and the number of all
            its units.

    Returns:
        For each layer a message that describes what was exported.

    Raises:
        UsageError: There is no store with exemplars, or the destination of a layer exists.
    """
    lines: list[str] = []
    for place, store in _stores(source):
        for layer in store.layers():
            folder = user_path(to) / place / safe(layer)
            if folder.exists():
                raise UsageError(f"{folder} exists already; give another folder, or remove it")
            lines.append(_export_layer(store, layer, folder, progress))
    if not lines:
        raise UsageError(f"{source} holds no exemplars of OpenMAIA; give a folder as `openmaia exemplars` fills it")
    return lines


def _stores(source: str) -> Iterator[tuple[Path, ExemplarStore]]:
    """Yields all stores in `source`, each with TARGET/DATASET, the last two folders of its path."""
    root = user_path(source).absolute() if "://" not in source else source
    files = Files(str(root))
    for name in files.names(""):
        if name.endswith("manifest.json"):
            store = files.inside(name).above(1)
            yield Path(*store.path("").rsplit("/", 2)[1:]), ExemplarStore(store)


def _export_layer(store: ExemplarStore, layer: str, folder: Path, progress: Callable[[str, int, int], None]) -> str:
    target = unsafe(folder.parent.parent.name)
    extent = _extent(store, [Unit(target=target, layer=layer, index=index) for index in sorted(store.units(layer))])
    if not extent.units:
        return f"{target}/{layer}: no exemplars; skipped"
    folder.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(dir=folder.parent, prefix=".writing-"))
    try:
        _write(store, extent, temporary, progress)
        temporary.chmod(0o755)
        temporary.rename(folder)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    scaled = f"images of {len(extent.sizes)} sizes, scaled to {_SIDE}; " if len(extent.sizes) > 1 else ""
    rows = "" if extent.complete else "; units.npy holds the units of the rows"
    return f"{target}/{layer}: {scaled}{len(extent.units)} units, {extent.k} each -> {folder}{rows}"


def _extent(store: ExemplarStore, units: list[Unit]) -> ExportedLayer:
    counts: dict[Unit, int] = {}
    sizes: set[tuple[int, int]] = set()
    for unit in units:
        if top := store.read(unit).of_kind("top"):
            counts[unit] = len(top)
            boxes = ([round(edge) for edge in exemplar.box] for exemplar in top)
            sizes.update((bottom - top, right - left) for left, top, right, bottom in boxes)
    return ExportedLayer(units=tuple(counts), k=min(counts.values(), default=0), sizes=frozenset(sizes))


def _write(
    store: ExemplarStore, extent: ExportedLayer, folder: Path, progress: Callable[[str, int, int], None]
) -> None:
    count, (height, width) = len(extent.units), extent.size
    images = _mapped_array(folder / "images.npy", (count, extent.k, 3, height, width))
    mask_array = _mapped_array(folder / "masks.npy", (count, extent.k, 1, height, width))
    activations, thresholds = np.zeros((count, extent.k)), np.zeros(count)
    for row, unit in enumerate(extent.units):
        exemplars = store.read(unit)
        thresholds[row] = exemplars.threshold
        for rank, exemplar in enumerate(_strongest(exemplars, extent.k)):
            image = exemplar.image.pil().resize((width, height), Image.Resampling.BICUBIC, exemplar.box)
            images[row, rank] = np.asarray(image).transpose(2, 0, 1)
            mask_array[row, rank, 0] = masks.from_map(exemplar.map, exemplars.threshold, height, width)
            activations[row, rank] = exemplar.activation
        progress(unit.layer, row + 1, count)
    np.savetxt(folder / "activations.csv", activations, delimiter=",", fmt="%.5e")
    np.savetxt(folder / "thresholds.csv", thresholds, delimiter=",", fmt="%.5e")
    if not extent.complete:
        np.save(folder / "units.npy", np.array([unit.index for unit in extent.units], dtype=np.int64))


def _mapped_array(path: Path, shape: tuple[int, ...]) -> npt.NDArray[np.uint8]:
    lib: Any = np.lib.format
    return lib.open_memmap(path, mode="w+", dtype=np.uint8, shape=shape)


def _strongest(exemplars: UnitExemplars, k: int) -> list[Exemplar]:
    return sorted(exemplars.of_kind("top"), key=lambda exemplar: exemplar.rank)[:k]
