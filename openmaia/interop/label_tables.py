"""Reads the tables in which other methods, such as MILAN, publish their labels of units."""

import math
import re
from dataclasses import dataclass, replace
from pathlib import Path

from openmaia.core import tables
from openmaia.interop import reading
from openmaia.interop.labels import Label
from openmaia.interop.reading import Refused


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelFormat:
    """A table format, recognised by the names of its columns. All names are in lower case."""

    method: str
    unit: str
    """The column with the index of the unit."""
    labels: tuple[str, ...]
    """The columns with labels, the best label first."""
    layer: str = ""
    """The column with the layer. Empty if the file's name contains the layer."""
    score: str = ""
    """The column with the method's own score of the label. Empty if there is none."""
    score_kind: str = ""
    """Such as "AUC"."""

    @property
    def columns(self) -> set[str]:
        """All columns that a table of this format must have."""
        return {self.unit, *self.labels, *filter(None, (self.layer, self.score))}


_FORMATS = (
    LabelFormat(method="CLIP-Dissect", layer="layer", unit="unit", labels=("description",), score="similarity", score_kind="similarity"),
    LabelFormat(method="MILAN", layer="layer", unit="unit", labels=("description",)),
    LabelFormat(method="MILANNOTATIONS", layer="layer", unit="unit", labels=("summary",)),
    LabelFormat(method="Describe-and-Dissect", unit="neuron id", labels=("label 1", "label 2", "label 3")),
    LabelFormat(method="Describe-and-Dissect", unit="neuron id", labels=("label",)),
    LabelFormat(method="INVERT", unit="neuron", labels=("concept",), score="metric", score_kind="AUC"),
    LabelFormat(method="CoSy", unit="neuron", labels=("concept",), score="auc", score_kind="AUC (CoSy)"),
)  # fmt: skip
"""A table has the first format all of whose columns it contains. CoSy publishes the labels of several methods in the formats
of MILAN, CLIP-Dissect and INVERT, and its own scores in the last format."""


def read(path: Path, target: str, source: str, method: str = "") -> list[Label]:
    """Reads a table with labels of units. All rows about one unit by one method become one `Label`.

    Args:
        path: The file.
        target: Name of the target. Tables do not contain it.
        source: Name of the file, which is stored with each label.
        method: Name of the method. If it is empty, the column `method` of each row gives the name, or else the format.
            The latter may be wrong, because several methods use the format of MILAN.

    Raises:
        Refused: The format is unknown, there are no labels, or a cell cannot be read.
    """
    table = reading.read_table(path)
    known = next((each for each in _FORMATS if each.columns <= set(table.columns)), None)
    if known is None:
        raise Refused("has no known format (by its header)")
    labels: dict[tuple[str, int, str], Label] = {}
    for line, row in table.rows:
        try:
            unit, score = tables.parse_index(row[known.unit]), _score(row.get(known.score, ""))
        except ValueError as error:
            raise Refused(f"cannot be read as {known.method} in row {line} ({error})") from error
        names = tuple(dict.fromkeys(filter(None, (row[column] for column in known.labels))))
        if not names:
            continue
        layer = row[known.layer] if known.layer else find_layer(path)
        named = method or row.get("method", "") or known.method
        before = labels.get((layer, unit, named))
        labels[layer, unit, named] = (
            replace(before, labels=tuple(dict.fromkeys(before.labels + names)))
            if before
            else Label(
                method=named,
                target=target,
                layer=layer,
                unit=unit,
                labels=names,
                score=score,
                score_kind="" if score is None else known.score_kind,
                source=source,
            )
        )
    if not labels:
        raise Refused(f"has the header of {known.method} and no label below it")
    return list(labels.values())


def find_layer(path: Path) -> str:
    """Returns the layer that a file name contains, such as layer4 for resnet18-layer4.csv.

    Without `layer` and a number, it is the last part of the name, such as features for vit_b_16-features.csv.
    """
    if named := re.search(r"layer[-_.]?(\d+)", path.stem, re.IGNORECASE):
        return f"layer{named[1]}"
    return re.split(r"[-_]", path.stem)[-1]


def _score(cell: str) -> float | None:
    number = float(cell.replace(",", ".")) if cell else math.nan
    return number if math.isfinite(number) else None
