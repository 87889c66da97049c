"""Identifies investigations and names their files in the run directory."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from openmaia.core.units import Unit
from openmaia.runs.files import safe, unsafe


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class InvestigationId:
    """A unit, and the number of the replicate from 0."""

    unit: Unit
    replicate: int

    def __str__(self) -> str:
        return f"{self.unit}{self._suffix}"

    @property
    def name(self) -> str:
        """Layer and index, and the number of the replicate unless it is 0."""
        return f"{self.unit.layer}/{self.unit.index}{self._suffix}"

    @property
    def _suffix(self) -> str:
        return f" #{self.replicate}" if self.replicate else ""

    @property
    def path(self) -> str:
        """`target/layer/index-replicate`, the path of the investigation's files without folder and suffix."""
        return f"{safe(self.unit.target)}/{safe(self.unit.layer)}/{self.unit.index}-{self.replicate}"

    @classmethod
    def of_row(cls, row: Mapping[str, Any]) -> "InvestigationId":
        """Returns the investigation of a table row with target, layer, index and replicate."""
        unit = Unit(target=row["target"], layer=row["layer"], index=row["index"])
        return cls(unit=unit, replicate=row["replicate"])

    @classmethod
    def of_paths(cls, names: Iterable[str]) -> Iterator["InvestigationId"]:
        """Yields the investigations of files, without files that belong to none."""
        return (found for name in names if (found := cls.of_path(name)))

    @classmethod
    def of_path(cls, name: str) -> "InvestigationId | None":
        """Returns the investigation of a file `folder/target/layer/index-replicate.suffix`.

        None if the path does not have this form, as that of `.DS_Store`, which file managers create.
        """
        match = re.fullmatch(r"[^/]+/([^/]+)/([^/]+)/(-?\d+)-(\d+)(?:\.\w+)?", name, re.ASCII)
        if not match:
            return None
        target, layer, index, replicate = match.groups()
        unit = Unit(target=unsafe(target), layer=unsafe(layer), index=int(index))
        return cls(unit=unit, replicate=int(replicate))
