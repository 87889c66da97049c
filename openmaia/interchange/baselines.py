"""Tables in which other methods publish their labels, told apart by their headers.

    MILAN                 layer,unit,description
    MILANNOTATIONS        layer,unit,summary                     one row per annotator
    CLIP-Dissect          layer,unit,description[,similarity]    without a similarity: by the name of its folder or file
    PRISM                 layer,unit,description,mean_activation,highlights     one row per cluster
    Linear-Explanations   layer,unit,...,weight0,concept0,...,sim correlation   unused places hold weight 0
    INVERT                neuron,concept,concept_id,metric
    Describe-and-Dissect  Neuron ID,Label 1,Label 2,Label 3
    FALCON                group,...,concept_set_words            Python literals; a group of units shares its words
    NetDissect            unit,category,label,score,...          units count from 1

The last four do not say the layer: it is taken from the file's name.
"""

import ast
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

from openmaia.interchange import reading
from openmaia.interchange.labels import Label
from openmaia.interchange.reading import Refused

Row = Mapping[str, str]
Found = tuple[str, list[int], list[str], float | None]
"""layer ("" where the row does not say it), units, labels, score"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """columns: those by which a header is known."""

    method: str
    columns: tuple[str, ...]
    row: Callable[[Row], Found]
    score_kind: str = ""


def read(path: Path, target: str, source: str) -> list[Label]:
    """Rows about one unit become one label. Raises Refused."""
    columns = {name.strip().lower() for name in reading.header(path)}
    dialect = next((d for d in DIALECTS if columns.issuperset(d.columns)), None)
    if dialect is None:
        raise Refused("is in no format known here, by its header")
    method = dialect.method
    if method == "MILAN" and re.search(r"clip.?dissect", str(path), re.IGNORECASE):
        method = "CLIP-Dissect"
    merged: dict[tuple[str, int], Label] = {}
    for layer, unit, labels, score in _rows(path, dialect):
        label = Label(
            method=method,
            target=target,
            layer=layer or layer_of(path),
            unit=unit,
            labels=tuple(labels),
            score=score,
            score_kind="" if score is None else dialect.score_kind,
            source=source,
        )
        before = merged.get((label.layer, unit))
        merged[label.layer, unit] = label if before is None else replace(before, labels=before.labels + label.labels)
    if not merged:
        raise Refused(f"has the header of {method} and no label below it")
    return list(merged.values())


def layer_of(path: Path) -> str:
    """resnet18-layer4_original.csv -> layer4; vit_b_16-features.csv -> features"""
    if named := re.search(r"layer[-_.]?(\d+)", path.stem, re.IGNORECASE):
        return f"layer{named[1]}"
    return re.split(r"[-_]", path.stem.removesuffix("_original"))[-1]


def _rows(path: Path, dialect: Dialect) -> Iterator[tuple[str, int, list[str], float | None]]:
    rows = [{key.strip().lower(): value.strip() for key, value in row.items() if key} for row in reading.records(path)]
    for line, row in enumerate(rows, start=2):
        try:
            layer, units, labels, score = dialect.row(row)
        except (ValueError, KeyError, SyntaxError, TypeError, MemoryError, RecursionError) as error:
            raise Refused(f"cannot be read as {dialect.method} in row {line} ({error})") from error
        first = 1 if dialect.method == "NetDissect" and all(row["unit"] != "0" for row in rows) else 0
        for unit in units:
            if labels and 0 <= unit - first < 2**31:
                yield layer, unit - first, labels, score


def _number(said: str) -> float | None:
    value = float(said) if said else math.nan
    return value if math.isfinite(value) else None


def _described(column: str, score: str = "") -> Callable[[Row], Found]:
    def row(cells: Row) -> Found:
        said = cells[column]
        return cells["layer"], [_whole(cells["unit"])], [said] if said else [], _number(cells.get(score, ""))

    return row


def _whole(said: str) -> int:
    number = float(said)
    if not number.is_integer():
        raise ValueError(f"unit {said[:20]!r} is no whole number")
    return int(number)


def _invert(cells: Row) -> Found:
    return "", [_whole(cells["neuron"])], _said([cells["concept"]]), _number(cells["metric"])


def _dissected(cells: Row) -> Found:
    """Labels end in -c (colour) and -s (scene), words are joined by _."""
    label = re.sub(r"-[cs]$", "", cells["label"]).replace("_", " ")
    return "", [_whole(cells["unit"])], _said([label]), _number(cells["score"])


def _described_and_dissected(cells: Row) -> Found:
    labels = [value for name, value in cells.items() if re.fullmatch(r"label( \d+)?", name)]
    return "", [_whole(cells["neuron id"])], _said(labels), None


def _falcon(cells: Row) -> Found:
    units = [int(unit) for unit in cells["group"].split(",")]
    pairs = cast(list[Any], ast.literal_eval(cells["concept_set_words"]))
    words = [(str(word), float(score)) for word, score in pairs]
    return "", units, [word for word, _ in words], words[0][1] if words else None


def _linear(cells: Row) -> Found:
    numbers = sorted(int(name[7:]) for name in cells if re.fullmatch(r"concept\d{1,4}", name))
    terms = [cells[f"concept{n}"] for n in numbers if _number(cells.get(f"weight{n}", ""))]
    return cells["layer"], [_whole(cells["unit"])], _said(terms), _number(cells.get("sim correlation", ""))


def _said(labels: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(label for label in labels if label))


DIALECTS = (
    Dialect(method="Linear-Explanations", columns=("layer", "unit", "weight0", "concept0"), row=_linear, score_kind="simulation correlation"),
    Dialect(method="PRISM", columns=("layer", "unit", "description", "mean_activation"), row=_described("description", "mean_activation"), score_kind="mean activation"),
    Dialect(method="CLIP-Dissect", columns=("layer", "unit", "description", "similarity"), row=_described("description", "similarity"), score_kind="similarity"),
    Dialect(method="MILANNOTATIONS", columns=("layer", "unit", "summary"), row=_described("summary")),
    Dialect(method="MILAN", columns=("layer", "unit", "description"), row=_described("description")),
    Dialect(method="INVERT", columns=("neuron", "concept", "metric"), row=_invert, score_kind="AUC"),
    Dialect(method="FALCON", columns=("group", "concept_set_words"), row=_falcon, score_kind="word score"),
    Dialect(method="Describe-and-Dissect", columns=("neuron id",), row=_described_and_dissected),
    Dialect(method="NetDissect", columns=("unit", "category", "label", "score"), row=_dissected, score_kind="IoU"),
)  # fmt: skip
"""The more particular first."""
