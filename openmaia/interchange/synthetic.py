"""What synthetic units were made for: one list per mode of {"label", "image_names", "activations"}, unit 0 first."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np

from openmaia.interchange import reading
from openmaia.interchange.labels import Label
from openmaia.interchange.reading import Refused

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
