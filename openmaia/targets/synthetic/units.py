"""The synthetic units: which concepts each of them stands for."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

Layer = Literal["mono", "or", "and"]
LAYERS: tuple[Layer, ...] = ("mono", "or", "and")

Concepts = tuple[str, ...]
"""One concept (`mono`) or two (`or`, `and`), in the order in which the unit names them."""

Units = Mapping[str, tuple[Concepts, ...]]
"""Layer -> the concepts of each unit, by index."""


def read(preset: str) -> Units:
    """The list of a preset: `repo` (47, 18 and 20 units) or `paper` (45, 24 and 19)."""
    lists = json.loads((Path(__file__).parent / "units.json").read_text())[preset]
    return {layer: tuple(tuple(concepts) for concepts in lists[layer]) for layer in LAYERS}


def truth(layer: str, concepts: Concepts) -> str:
    """What the unit responds to, in words."""
    match layer:
        case "or":
            return " or ".join(concepts)
        case "and":
            return f"{concepts[0]}, when {concepts[1]} is present too"
        case _:
            return concepts[0]
