"""Reads exemplars in the folder layout in which the MAIA and MILAN projects publish them.

    <model>/<dataset>/<layer>/images.npy        (units, k, 3, height, width) uint8
                              masks.npy         (units, k, 1, height, width), 0 and 1
                              activations.csv   (units, k), the strongest first
                              thresholds.csv    one threshold per unit; optional
                              units.npy         the index of each row's unit, if units are missing; optional
    synthetic_neurons/<mode>/                   images (units, k, height, width, 3), masks up to 255, no thresholds

The arrays of a layer take up to 6 GB. They are memory-mapped and read unit by unit.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from openmaia.core.images import MAX_WEBP_SIDE, EncodedImage, whole
from openmaia.core.services import Exemplar, UnitExemplars
from openmaia.core.units import Unit
from openmaia.interop import masks, reading
from openmaia.interop.reading import Refused
from openmaia.runs.files import safe

EXEMPLAR_FILES = ("images.npy", "masks.npy", "activations.csv", "thresholds.csv", "ids.csv", "units.npy")
SYNTHETIC = "synthetic_neurons"

_NAME_BYTES = 200
"""Maximum length of the name of a model, dataset or layer, encoded as a file name."""

Loaded = TypeVar("Loaded")


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedLayer:
    """The validated content of a layer's folder. Arrays are memory-mapped."""

    folder: Path
    model: str
    dataset: str
    name: str
    units: tuple[int, ...]
    """The index of the unit in each row of the arrays."""
    activations: npt.NDArray[np.float64]
    """In descending order, shape (units, k)."""
    thresholds: npt.NDArray[np.float64] | None
    """Mask thresholds, shape (units,), 0 for synthetic units. None if there is no thresholds.csv."""
    images: npt.NDArray[np.uint8]
    """Shape (units, k, height, width, 3)."""
    masks: npt.NDArray[Any] | None
    """In the shape that they have in masks.npy. None if there is no such file."""

    @property
    def estimated(self) -> tuple[str, ...]:
        """Names of the values that have to be estimated on import, for the store's manifest: `threshold/LAYER`, or none."""
        return () if self.thresholds is not None else (f"threshold/{self.name}",)


def read(folder: Path) -> PublishedLayer:
    """Reads and validates the folder of a layer, MODEL/DATASET/LAYER.

    Raises:
        Refused: A file is missing or damaged, or the files do not match each other.
    """
    images = _images(folder)
    units, k = images.shape[:2]
    synthetic = folder.parent.name == SYNTHETIC
    activations = _activations(folder, units, k)
    if synthetic and activations.max() > 1:
        raise Refused(
            f"activations.csv has values up to {activations.max():.4g}: they were summed over concepts, but a live "
            "synthetic unit answers at most 1, so they are not comparable; compute exemplars with `openmaia exemplars`"
        )
    layer = PublishedLayer(
        folder=folder,
        model=model(folder),
        dataset="synthetic" if synthetic else folder.parent.name,
        name=folder.name,
        units=_units(folder, units),
        activations=activations,
        thresholds=np.zeros((units,)) if synthetic else _thresholds(folder, units),
        images=images,
        masks=_masks(folder, images),
    )
    if not layer.model or not f"{layer.model}{layer.dataset}{layer.name}".isprintable():
        raise Refused("is in folders without names, or with unprintable ones; expected MODEL/DATASET/LAYER/images.npy")
    if longest := next((n for n in (layer.model, layer.dataset, layer.name) if len(safe(n)) > _NAME_BYTES), ""):
        raise Refused(f"is in a folder with a name that is too long for a file ({longest[:40]}…); rename it")
    if layer.masks is None and layer.thresholds is None:
        raise Refused("has neither masks.npy nor thresholds.csv, which say where the units are active")
    return layer


def model(folder: Path) -> str:
    """Returns MODEL of the folder MODEL/DATASET/LAYER, or SYNTHETIC for a layer of synthetic units."""
    return SYNTHETIC if folder.parent.name == SYNTHETIC else folder.parent.parent.name


def units(layer: PublishedLayer, target: str) -> Iterator[UnitExemplars]:
    """Yields the units by ascending index. Only one unit's images are in memory at a time."""
    for row in sorted(range(len(layer.units)), key=layer.units.__getitem__):
        yield _unit(layer, row, Unit(target=target, layer=layer.name, index=layer.units[row]))


def _unit(layer: PublishedLayer, row: int, unit: Unit) -> UnitExemplars:
    activations, images = layer.activations[row], layer.images[row]
    covered = None if layer.masks is None else masks.normalize(_flat_masks(layer.masks[row], images.shape[1:3]))
    if layer.thresholds is not None:
        threshold = float(layer.thresholds[row])
    else:
        assert covered is not None, "read() refuses a layer without both"
        threshold = masks.estimate_threshold(activations, covered.reshape(len(covered), -1).max(axis=1) > 0.5)
    return UnitExemplars(
        unit=unit,
        threshold=threshold,
        exemplars=tuple(
            Exemplar(
                kind="top",
                rank=rank,
                activation=float(value),
                image=EncodedImage.of(np.ascontiguousarray(images[rank])),
                box=whole(images[rank]),
                map=None if covered is None else masks.to_map(covered[rank], float(value), threshold),
            )
            for rank, value in enumerate(activations)
        ),
        state="dead" if not activations.any() else "ok",
    )


def _images(folder: Path) -> npt.NDArray[np.uint8]:
    if not (folder / "images.npy").exists():
        raise Refused("has masks.npy but no images.npy: the images of its dataset are not published with it")
    images = _named("images.npy", folder, reading.read_array)
    if images.dtype != np.uint8 or images.ndim != 5 or 3 not in (images.shape[2], images.shape[4]) or not images.size:
        raise Refused(
            f"images.npy is {images.dtype} {images.shape}; expected uint8 (units, k, 3, height, width) or "
            "(units, k, height, width, 3)"
        )
    if max(images.shape[2:]) > MAX_WEBP_SIDE:
        raise Refused(f"images.npy is {images.shape}; images have at most {MAX_WEBP_SIDE:,} pixels per side")
    return np.moveaxis(images, 2, 4) if images.shape[2] == 3 else images


def _masks(folder: Path, images: npt.NDArray[np.uint8]) -> npt.NDArray[Any] | None:
    if not (folder / "masks.npy").exists():
        return None
    array = _named("masks.npy", folder, reading.read_array)
    size = images.shape[2:4]
    shapes = [(*images.shape[:2], *inner) for inner in (size, (1, *size), (3, *size), (*size, 1), (*size, 3))]
    if array.dtype not in (np.dtype(np.bool_), np.dtype(np.uint8)) or array.shape not in shapes:
        raise Refused(
            f"masks.npy is {array.dtype} {array.shape}; expected bool or uint8 {shapes[1]}, as for the images"
        )
    return array


def _flat_masks(mask: npt.NDArray[Any], size: tuple[int, ...]) -> npt.NDArray[Any]:
    """Returns the masks of one unit without the channel axis, shape (k, height, width)."""
    return mask if mask.ndim == 3 else mask.max(axis=1 if mask.shape[2:] == size else 3)


def _activations(folder: Path, units: int, k: int) -> npt.NDArray[np.float64]:
    values = _named("activations.csv", folder, reading.read_numbers)
    if units == 1 and values.size == k:
        values = values.reshape(1, k)
    if values.shape != (units, k):
        raise Refused(f"activations.csv is {values.shape}; expected {(units, k)}, as for the images")
    problems = {"has a value that is not finite": ~np.isfinite(values), "does not descend": np.diff(values, axis=1) > 0}
    for problem, wrong in problems.items():
        if wrong.any():
            raise Refused(f"activations.csv {problem} in line {np.flatnonzero(wrong.any(axis=1))[0] + 1}")
    return values


def _thresholds(folder: Path, units: int) -> npt.NDArray[np.float64] | None:
    if not (folder / "thresholds.csv").exists():
        return None
    values = _named("thresholds.csv", folder, reading.read_numbers).reshape(-1)
    if len(values) != units or not np.isfinite(values).all():
        raise Refused(
            f"thresholds.csv has {np.isfinite(values).sum()} finite numbers; expected one for each of {units} units"
        )
    return values


def _units(folder: Path, units: int) -> tuple[int, ...]:
    if not (folder / "units.npy").exists():
        return tuple(range(units))
    array = _named("units.npy", folder, reading.read_array)
    valid = array.dtype.kind in "iu" and array.shape == (units,)
    if not valid or array.min() < 0 or array.max() >= 2**31 or len(set(array.tolist())) != units:
        raise Refused(f"units.npy is {array.dtype} {array.shape}; expected the numbers of {units} different units")
    return tuple(array.tolist())


def _named(name: str, folder: Path, read_file: Callable[[Path], Loaded]) -> Loaded:
    """Reads a file of the layer's folder by `read_file`. The message of a Refused error begins with the file's name."""
    try:
        return read_file(folder / name)
    except Refused as error:
        raise Refused(f"{name} {error.message}") from error
