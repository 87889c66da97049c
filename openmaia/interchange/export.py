"""An exemplar store back in the published layout (see exemplars.py), for tools that read that one."""

import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from openmaia.errors import UsageError
from openmaia.interchange import masks
from openmaia.interchange.keep import Progress
from openmaia.services import Exemplar, UnitExemplars
from openmaia.store.exemplars import ExemplarStore
from openmaia.store.files import Files, safe, unsafe
from openmaia.units import Unit

SIDE = 224
"""Pixels per side of every picture, where a layer's pictures are not all of one size."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """units: those with exemplars. k: of each, the fewest that any has. sizes: (height, width) of all pictures."""

    units: tuple[Unit, ...]
    k: int
    sizes: frozenset[tuple[int, int]]

    @property
    def size(self) -> tuple[int, int]:
        return next(iter(self.sizes)) if len(self.sizes) == 1 else (SIDE, SIDE)


def export(source: str, to: str, progress: Progress = lambda stage, done, total: None) -> list[str]:
    """source: a folder of exemplar stores, or one of them. to: gets TARGET/DATASET/LAYER folders.

    Gives a line per layer. Raises UsageError where there is no store, or a layer's folder is there already.
    """
    said: list[str] = []
    for place, store in _stores(source):
        for layer in store.layers():
            folder = Path(to).expanduser() / place / safe(layer)
            if folder.exists():
                raise UsageError(f"{folder} is there already; give another folder, or remove it")
            said.append(_layer(store, layer, folder, progress))
    if not said:
        raise UsageError(f"{source} holds no exemplars of OpenMAIA; give a folder as `openmaia exemplars` fills it")
    return said


def _stores(source: str) -> Iterator[tuple[Path, ExemplarStore]]:
    """With the two folders that each is in, as it was named."""
    root = Path(source).expanduser().absolute() if "://" not in source else source
    for name in Files(str(root)).names(""):
        if name.endswith("manifest.json"):
            folder = f"{root}/{name.removesuffix('manifest.json')}".rstrip("/")
            yield Path(*folder.rsplit("/", 2)[1:]), ExemplarStore(Files(folder))


def _layer(store: ExemplarStore, layer: str, folder: Path, progress: Progress) -> str:
    target = unsafe(folder.parent.parent.name)
    units = [Unit(target=target, layer=layer, index=index) for index in sorted(store.units(layer))]
    shape = _shape(store, units)
    if not shape.units:
        return f"{target}/{layer}: no exemplars, left out"
    folder.parent.mkdir(parents=True, exist_ok=True)
    making = Path(tempfile.mkdtemp(dir=folder.parent, prefix=".writing-"))
    try:
        _write(store, shape, making, progress)
        making.chmod(0o755)
        making.rename(folder)
    except BaseException:
        shutil.rmtree(making, ignore_errors=True)
        raise
    note = f"pictures of {len(shape.sizes)} sizes, scaled to {SIDE}; " if len(shape.sizes) > 1 else ""
    missing = "" if _whole(shape) else "; units.npy says which units the rows are of"
    return f"{target}/{layer}: {note}{len(shape.units)} units, {shape.k} each -> {folder}{missing}"


def _shape(store: ExemplarStore, units: list[Unit]) -> Shape:
    counts: dict[Unit, int] = {}
    sizes: set[tuple[int, int]] = set()
    for unit in units:
        top = store.read(unit).of_kind("top")
        if top:
            counts[unit] = len(top)
            sizes.update((height, width) for width, height in (exemplar.picture.size for exemplar in top))
    return Shape(units=tuple(counts), k=min(counts.values(), default=0), sizes=frozenset(sizes))


def _whole(shape: Shape) -> bool:
    return [unit.index for unit in shape.units] == list(range(len(shape.units)))


def _write(store: ExemplarStore, shape: Shape, folder: Path, progress: Progress) -> None:
    count, (height, width) = len(shape.units), shape.size
    images = _array(folder / "images.npy", (count, shape.k, 3, height, width))
    masked = _array(folder / "masks.npy", (count, shape.k, 1, height, width))
    activations, thresholds = np.zeros((count, shape.k)), np.zeros(count)
    for at, unit in enumerate(shape.units):
        found = store.read(unit)
        thresholds[at] = found.threshold
        for rank, exemplar in enumerate(_strongest(found, shape.k)):
            picture = exemplar.picture.pil().resize((width, height), Image.Resampling.BICUBIC)
            images[at, rank] = np.asarray(picture).transpose(2, 0, 1)
            masked[at, rank, 0] = masks.from_map(exemplar.map, found.threshold, height, width)
            activations[at, rank] = exemplar.activation
        progress(unit.layer, at + 1, count)
    np.savetxt(folder / "activations.csv", activations, delimiter=",", fmt="%.5e")
    np.savetxt(folder / "thresholds.csv", thresholds, delimiter=",", fmt="%.5e")
    if not _whole(shape):
        np.save(folder / "units.npy", np.array([unit.index for unit in shape.units], dtype=np.int64))


def _array(path: Path, shape: tuple[int, ...]) -> npt.NDArray[np.uint8]:
    """On the disk; what is written to it goes there."""
    lib: Any = np.lib.format
    return lib.open_memmap(path, mode="w+", dtype=np.uint8, shape=shape)


def _strongest(found: UnitExemplars, k: int) -> list[Exemplar]:
    return sorted(found.of_kind("top"), key=lambda exemplar: exemplar.rank)[:k]
