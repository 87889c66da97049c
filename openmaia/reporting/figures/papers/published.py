"""Reads numbers that the authors of MAIA and OpenMAIA published. None of our results is computed from them.

The files in data/ contain them in our own format. Each row names its source.
"""

import csv
import json
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import TypeVar, get_type_hints

PublishedRow = TypeVar("PublishedRow")

AVERAGE = "average"
"""Stands for the layer in rows that are means over all units of a network."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedLevel:
    """Published mean activations of units on positive and neutral images, for one method that labels units."""

    network: str
    layer: str
    """A layer, or AVERAGE."""
    method: str
    """The method that wrote the labels; in an ablation the agent's set of tools."""
    units: int
    """0 if the paper does not report it."""
    positive: float
    neutral: float
    source: str
    note: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedTurns:
    """The mean number of turns of an investigation, from the OpenMAIA paper."""

    backbone: str
    bound: str
    """"about" or "more than"."""
    turns: float
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedChoice:
    """The share of choices in which people preferred one method's labels over another's, from the MAIA paper."""

    preferred: str
    over: str
    share: float
    source: str


@cache
def levels() -> tuple[PublishedLevel, ...]:
    """Returns the MAIA paper's table A3, and further averages over networks from the published code of OpenMAIA."""
    return _read("predictive.csv", PublishedLevel)


@cache
def ablations() -> tuple[PublishedLevel, ...]:
    """Returns the MAIA paper's table A5, in which `method` is a set of tools."""
    return _read("ablation.csv", PublishedLevel)


@cache
def turns() -> tuple[PublishedTurns, ...]:
    """Returns numbers of turns by backbone, from the OpenMAIA paper."""
    return _read("turns.csv", PublishedTurns)


@cache
def choices() -> tuple[PublishedChoice, ...]:
    """Returns table 1 of the MAIA paper."""
    return _read("choices.csv", PublishedChoice)


@cache
def units() -> dict[str, dict[str, frozenset[int]]]:
    """Returns the indices of the units that the MAIA papers evaluated, by network and layer."""
    networks: dict[str, dict[str, list[int]]] = json.loads(_text("units.json"))
    return {
        network: {layer: frozenset(indices) for layer, indices in layers.items()}
        for network, layers in networks.items()
    }


def _read(name: str, kind: type[PublishedRow]) -> tuple[PublishedRow, ...]:
    """Reads a CSV file whose columns are the fields of a dataclass. An empty cell is read as 0 or an empty text."""
    casts = get_type_hints(kind)
    lines = csv.DictReader(_text(name).splitlines())
    return tuple(
        kind(**{key: casts[key](cell) if cell else casts[key]() for key, cell in line.items()}) for line in lines
    )


def _text(name: str) -> str:
    return (files("openmaia.reporting.figures.papers") / "data" / name).read_text(encoding="utf-8")
