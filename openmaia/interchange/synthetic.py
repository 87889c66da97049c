"""What synthetic units were made for, as published: one list per mode of {"label", "image_names", "activations"}, unit 0
first, and a folder of pictures for each label."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np

from openmaia.interchange import reading
from openmaia.interchange.labels import Label
from openmaia.interchange.reading import Refused
from openmaia.services import UnitExemplars

SUFFIXES = (".png", ".jpg", ".jpeg", ".webp")

LARGEST = 1.0
"""What a live synthetic unit answers at most: the score of a detection."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SyntheticUnit:
    """concepts: the parts of the label, which `_` joins (a blank belongs to a concept's name)."""

    mode: str
    index: int
    label: str
    concepts: tuple[str, ...]
    image_names: tuple[str, ...]
    activations: tuple[float, ...]

    @property
    def comparable(self) -> bool:
        """Whether the stored activations could be a live unit's. The published ones of `or` were summed over the
        concepts, and a sum above 1 must not be held against what a live unit answers."""
        return max(self.activations, default=0.0) <= LARGEST


def read(path: Path) -> tuple[SyntheticUnit, ...]:
    """Raises Refused."""
    data = reading.json_data(path)
    if not isinstance(data, list) or not data:
        raise Refused(
            'is no list of synthetic units; expected [{"label": ..., "image_names": [...], "activations": [...]}]'
        )
    return tuple(_unit(path.stem, index, entry) for index, entry in enumerate(cast(list[Any], data)))


def label_folders(root: Path) -> tuple[tuple[str, ...], ...]:
    """The concepts of each unit of a tree in the published layout, ROOT/LABEL/… or ROOT/LABEL1_LABEL2/… with pictures in
    it, in the order of the folders' names. Raises Refused."""
    if not root.is_dir():
        raise Refused("is no folder")
    named = sorted(each.name for each in root.iterdir() if each.is_dir() and _holds_pictures(each))
    if not named:
        raise Refused("holds no folders with pictures; expected LABEL/picture.png or LABEL1_LABEL2/picture.png")
    return tuple(tuple(name.split("_")) for name in named)


def _holds_pictures(folder: Path) -> bool:
    return any(path.suffix.lower() in SUFFIXES for path in folder.iterdir())


def write(root: Path, mode: str, concepts: Sequence[tuple[str, ...]], found: Sequence[UnitExemplars]) -> list[str]:
    """Units in the published layout: a folder of each unit's top exemplars, as PNG, and labels/MODE.json that lists them
    with their activations. What is there of an earlier time is replaced. concepts, found: of unit 0 and so on; a
    concept's name may hold no `_`, nor anything that leads out of the folder. Gives the labels written."""
    entries: list[dict[str, Any]] = []
    for named, unit in zip(concepts, found, strict=True):
        label = "_".join(named)
        if Path(label).name != label or any("_" in name for name in named):
            raise ValueError(f"{label!r} is no folder's name")
        folder = root / label
        folder.mkdir(parents=True, exist_ok=True)
        top = sorted(unit.of_kind("top"), key=lambda exemplar: exemplar.rank)
        names = [f"{exemplar.rank:02d}.png" for exemplar in top]
        for stale in set(folder.glob("[0-9][0-9].png")) - {folder / name for name in names}:
            stale.unlink()
        for name, exemplar in zip(names, top, strict=True):
            exemplar.picture.pil().save(folder / name)
        entries.append({"label": label, "image_names": names, "activations": [e.activation for e in top]})
    (root / "labels").mkdir(exist_ok=True)
    (root / "labels" / f"{mode}.json").write_text(json.dumps(entries, indent=1), encoding="utf-8")
    return [entry["label"] for entry in entries]


def as_label(unit: SyntheticUnit, target: str, source: str) -> Label:
    return Label(
        method="ground truth",
        target=target,
        layer=unit.mode,
        unit=unit.index,
        labels=(unit.label.replace("_", f" {unit.mode} ") if len(unit.concepts) > 1 else unit.label,),
        source=source,
    )


def _unit(mode: str, index: int, entry: Any) -> SyntheticUnit:
    fields = cast(dict[str, Any], entry) if isinstance(entry, dict) else {}
    label, names, values = fields.get("label"), fields.get("image_names", []), fields.get("activations", [])
    if not isinstance(label, str) or not label or not isinstance(names, list) or not isinstance(values, list):
        raise Refused(f"is no list of synthetic units: entry {index} has no label, image_names and activations")
    numbers = cast(list[Any], values)
    if not all(type(value) in (int, float) and np.isfinite(value) for value in numbers):
        raise Refused(f"has activations that are no finite numbers, of {label[:80]!r}")
    return SyntheticUnit(
        mode=mode,
        index=index,
        label=label,
        concepts=tuple(label.split("_")),
        image_names=tuple(str(name) for name in cast(list[Any], names)),
        activations=tuple(float(value) for value in numbers),
    )
