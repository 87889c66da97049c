"""Numbers of the MAIA and OpenMAIA papers, as data. They are shown beside ours and computed with nowhere.

The files in data/ hold facts in our own form; each row names its source.
"""

import csv
import json
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

AVERAGE = "average"
"""In place of a layer: the mean over a network's units."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedLevel:
    """Mean activations to positive and neutral images. units: 0 where it is not said. method: whose labels; of an ablation,
    which tools."""

    network: str
    layer: str
    method: str
    units: int
    positive: float
    neutral: float
    source: str
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedTurns:
    """Mean turns of an investigation. bound: "about" or "more than"."""

    backbone: str
    bound: str
    turns: float
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedChoice:
    """How often people preferred one method's labels over another's."""

    preferred: str
    over: str
    share: float
    source: str


@cache
def levels() -> tuple[PublishedLevel, ...]:
    return tuple(
        PublishedLevel(
            network=row["network"],
            layer=row["layer"],
            method=row["method"],
            units=int(row["units"] or 0),
            positive=float(row["positive"]),
            neutral=float(row["neutral"]),
            source=row["source"],
            note=row["note"],
        )
        for row in _rows("predictive.csv")
    )


@cache
def ablations() -> tuple[PublishedLevel, ...]:
    return tuple(
        PublishedLevel(
            network=row["network"],
            layer=AVERAGE,
            method=row["tools"],
            units=0,
            positive=float(row["positive"]),
            neutral=float(row["neutral"]),
            source=row["source"],
        )
        for row in _rows("ablation.csv")
    )


@cache
def turns() -> tuple[PublishedTurns, ...]:
    return tuple(
        PublishedTurns(backbone=row["backbone"], bound=row["bound"], turns=float(row["turns"]), source=row["source"])
        for row in _rows("turns.csv")
    )


@cache
def choices() -> tuple[PublishedChoice, ...]:
    return tuple(
        PublishedChoice(preferred=row["preferred"], over=row["over"], share=float(row["share"]), source=row["source"])
        for row in _rows("choices.csv")
    )


@cache
def units() -> dict[str, dict[str, frozenset[int]]]:
    """network -> layer -> the units that the papers evaluated."""
    found: dict[str, dict[str, list[int]]] = json.loads(_text("units.json"))
    return {
        network: {layer: frozenset(indices) for layer, indices in layers.items()} for network, layers in found.items()
    }


def _rows(name: str) -> list[dict[str, str]]:
    return list(csv.DictReader(_text(name).splitlines()))


def _text(name: str) -> str:
    return (files("openmaia.figures.papers") / "data" / name).read_text(encoding="utf-8")
