"""Exemplars as MAIA and MILAN publish them.

    <model>/<dataset>/<layer>/images.npy        (units, k, 3, height, width) uint8
                              masks.npy         (units, k, 1, height, width), 0 and 1
                              activations.csv   (units, k), the strongest first
                              thresholds.csv    one per unit; not everywhere
                              ids.csv           (units, k), numbers of the pictures in their dataset; not everywhere
                              units.npy         the units that the rows are of; where not all units were dissected
    synthetic_neurons/<mode>/                   images (units, k, height, width, 3), masks up to 255, no thresholds

Arrays are mapped into memory and read unit by unit: a layer has up to 6 GB of them.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from openmaia.images import Picture
from openmaia.interchange import masks, reading
from openmaia.interchange.reading import Refused
from openmaia.services import Exemplar, UnitExemplars
from openmaia.units import Unit

FILES = ("images.npy", "masks.npy", "activations.csv", "thresholds.csv", "ids.csv", "units.npy")
SYNTHETIC = "synthetic_neurons"

DERIVED = ("maxima", "mean", "std")
"""Never published: those of a unit's exemplars stand in for those of the whole dataset."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """One folder, validated. units, activations (units, k), thresholds (units,) or None, ids (units, k) or None, images
    and masks as they lie on the disk."""

    folder: Path
    model: str
    dataset: str
    name: str
    units: tuple[int, ...]
    activations: npt.NDArray[np.float64]
    thresholds: npt.NDArray[np.float64] | None
    ids: npt.NDArray[np.int64] | None
    images: npt.NDArray[np.uint8]
    masks: npt.NDArray[Any] | None

    @property
    def estimated(self) -> tuple[str, ...]:
        """What had to be derived, as the manifest names it."""
        return DERIVED if self.thresholds is not None else (*DERIVED, f"threshold/{self.name}")


def read(folder: Path) -> Layer:
    """Raises Refused. The folder's own place tells the names."""
    images = _images(folder)
    units, k = images.shape[:2]
    synthetic = folder.parent.name == SYNTHETIC
    activations = _activations(folder, units, k)
    if synthetic and activations.max() > 1:
        raise Refused(
            f"activations.csv has values up to {activations.max():.4g}: they were summed over concepts, while a live "
            "synthetic unit answers at most 1, so the two are not comparable; compute these with `openmaia exemplars`"
        )
    found = Layer(
        folder=folder,
        model=model(folder),
        dataset="synthetic" if synthetic else folder.parent.name,
        name=folder.name,
        units=_units(folder, units),
        activations=activations,
        thresholds=np.zeros((units,)) if synthetic else _thresholds(folder, units),
        ids=_ids(folder, units, k),
        images=images,
        masks=_masks(folder, images),
    )
    if not found.model or not f"{found.model}{found.dataset}{found.name}".isprintable():
        raise Refused("lies in folders without names, or of unprintable ones: expected MODEL/DATASET/LAYER/images.npy")
    if found.masks is None and found.thresholds is None:
        raise Refused("has neither masks.npy nor thresholds.csv; nothing tells where these units fire")
    return found


def model(folder: Path) -> str:
    return SYNTHETIC if folder.parent.name == SYNTHETIC else folder.parent.parent.name


def units(layer: Layer, target: str) -> Iterator[UnitExemplars]:
    """One unit after the other, by its number; only that unit's pictures are read."""
    for at in sorted(range(len(layer.units)), key=layer.units.__getitem__):
        yield _unit(layer, at, Unit(target=target, layer=layer.name, index=layer.units[at]))


def _unit(layer: Layer, at: int, unit: Unit) -> UnitExemplars:
    activations = layer.activations[at]
    covered = None if layer.masks is None else _covered(layer.masks[at], _frame(layer.images))
    if layer.thresholds is not None:
        threshold = float(layer.thresholds[at])
    else:
        assert covered is not None, "read() refuses a layer without both"
        threshold = masks.estimate(activations, covered.reshape(len(covered), -1).max(axis=1) > 0.5)
    pictures = _pictures(layer.images[at])
    return UnitExemplars(
        unit=unit,
        threshold=threshold,
        maxima=percentiles(activations),
        mean=float(activations.mean()),
        std=float(activations.std()),
        exemplars=tuple(
            Exemplar(
                kind="top",
                rank=rank,
                activation=float(value),
                picture=Picture.of(pixels, () if layer.ids is None else (f"{layer.dataset}#{layer.ids[at, rank]}",)),
                map=None if covered is None else masks.to_map(covered[rank], float(value), threshold),
            )
            for rank, (value, pixels) in enumerate(zip(activations, pictures, strict=True))
        ),
        state="dead" if not activations.any() else "ok",
    )


def percentiles(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """0 to 100, 101 of them."""
    return np.interp(np.linspace(0, len(values) - 1, 101), np.arange(len(values)), np.sort(values))


def _images(folder: Path) -> npt.NDArray[np.uint8]:
    if not (folder / "images.npy").exists():
        raise Refused(
            "has masks.npy and no images.npy: its pictures are those of the dataset, which are not published with it"
        )
    found = _array(folder, "images.npy")
    if found.dtype != np.uint8 or found.ndim != 5 or 3 not in (found.shape[2], found.shape[4]) or not found.size:
        raise Refused(
            f"images.npy is {found.dtype} {found.shape}; expected uint8 (units, k, 3, height, width) or (units, k, height, width, 3)"
        )
    return found


def _first(images: npt.NDArray[np.uint8]) -> bool:
    """Whether the channels come before height and width."""
    return images.shape[2] == 3


def _frame(images: npt.NDArray[np.uint8]) -> tuple[int, int]:
    height, width = images.shape[3:] if _first(images) else images.shape[2:4]
    return height, width


def _pictures(images: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """One unit's, (k, height, width, 3)."""
    return np.ascontiguousarray(images.transpose(0, 2, 3, 1) if images.shape[1] == 3 else images)


def _masks(folder: Path, images: npt.NDArray[np.uint8]) -> npt.NDArray[Any] | None:
    if not (folder / "masks.npy").exists():
        return None
    found = _array(folder, "masks.npy")
    frame = _frame(images)
    shapes = [(*images.shape[:2], *inner) for inner in (frame, (1, *frame), (3, *frame), (*frame, 1), (*frame, 3))]
    if found.dtype not in (np.dtype(np.bool_), np.dtype(np.uint8)) or found.shape not in shapes:
        raise Refused(
            f"masks.npy is {found.dtype} {found.shape}; expected bool or uint8 {shapes[1]}, to go with the pictures"
        )
    return found


def _covered(mask: npt.NDArray[Any], frame: tuple[int, int]) -> npt.NDArray[np.float32]:
    """One unit's, (k, height, width), 0 to 1."""
    if mask.ndim == 4:
        mask = mask.max(axis=1 if mask.shape[2:] == frame else 3)
    return masks.coverage(mask)


def _activations(folder: Path, units: int, k: int) -> npt.NDArray[np.float64]:
    found = _numbers(folder, "activations.csv")
    if units == 1 and found.size == k:
        found = found.reshape(1, k)
    if found.shape != (units, k):
        raise Refused(f"activations.csv is {found.shape}, and there are pictures of {units} units, {k} each")
    if not np.isfinite(found).all():
        row = int(np.flatnonzero(~np.isfinite(found).all(axis=1))[0])
        raise Refused(f"activations.csv has a value that is not finite, in line {row + 1}")
    if (np.diff(found, axis=1) > 0).any():
        row = int(np.flatnonzero((np.diff(found, axis=1) > 0).any(axis=1))[0])
        raise Refused(f"activations.csv does not descend in line {row + 1}; the strongest has to come first")
    return found


def _thresholds(folder: Path, units: int) -> npt.NDArray[np.float64] | None:
    if not (folder / "thresholds.csv").exists():
        return None
    found = _numbers(folder, "thresholds.csv").reshape(-1)
    if len(found) != units or not np.isfinite(found).all():
        raise Refused(
            f"thresholds.csv has {np.isfinite(found).sum()} finite numbers; expected one for each of {units} units"
        )
    return found


def _ids(folder: Path, units: int, k: int) -> npt.NDArray[np.int64] | None:
    if not (folder / "ids.csv").exists():
        return None
    found = _numbers(folder, "ids.csv")
    if found.size != units * k or (found < 0).any() or (found != np.round(found)).any() or (found > 2**53).any():
        raise Refused(f"ids.csv is {found.shape}; expected a picture's number for each of {units} units times {k}")
    return found.reshape(units, k).astype(np.int64)


def _units(folder: Path, units: int) -> tuple[int, ...]:
    if not (folder / "units.npy").exists():
        return tuple(range(units))
    found = _array(folder, "units.npy")
    whole = found.dtype.kind in "iu" and found.shape == (units,)
    if not whole or found.min() < 0 or found.max() >= 2**31 or len(set(found.tolist())) != units:
        raise Refused(f"units.npy is {found.dtype} {found.shape}; expected the numbers of {units} different units")
    return tuple(found.tolist())


def _array(folder: Path, name: str) -> npt.NDArray[Any]:
    try:
        return reading.array(folder / name)
    except Refused as error:
        raise Refused(f"{name} {error.message}") from error


def _numbers(folder: Path, name: str) -> npt.NDArray[np.float64]:
    try:
        return reading.numbers(folder / name)
    except Refused as error:
        raise Refused(f"{name} {error.message}") from error
