"""The synthetic units: which concepts each of them stands for."""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

from openmaia.errors import UsageError
from openmaia.interchange.reading import Refused
from openmaia.interchange.synthetic import label_folders

Layer = Literal["mono", "or", "and"]
LAYERS: tuple[Layer, ...] = ("mono", "or", "and")

Concepts = tuple[str, ...]
"""One concept (`mono`) or two (`or`, `and`), in the order in which the unit names them."""

NAME = re.compile(r"[^\W_](?:[^\W_]|[ '-]){0,79}")
"""Of a concept: what may be part of a file's name, too."""

Units = Mapping[str, tuple[Concepts, ...]]
"""Layer -> the concepts of each unit, by index."""


def read(preset: str) -> Units:
    """The list of a preset: `repo` (47, 18 and 20 units) or `paper` (45, 24 and 19)."""
    lists = json.loads((Path(__file__).parent / "units.json").read_text())[preset]
    return {layer: tuple(tuple(concepts) for concepts in lists[layer]) for layer in LAYERS}


def own(mode: str, labels: Sequence[str], folder: str) -> Units:
    """Units of one's own, in one layer named after their mode: one of these labels, or one for each folder of the published
    layout below `folder`. Raises UsageError."""
    if mode not in LAYERS:
        raise UsageError(f"target.synthetic.mode={mode!r} is not known; expected {', '.join(LAYERS)}")
    if bool(labels) == bool(folder):
        raise UsageError("target.synthetic: give either labels, such as [cheese, lemon], or a folder of label folders")
    if labels:
        return {mode: (_checked(tuple(labels), mode, "target.synthetic.labels"),)}
    try:
        named = label_folders(Path(folder).expanduser())
    except Refused as error:
        raise UsageError(f"target.synthetic.folder={folder} {error.message}") from error
    return {mode: tuple(_checked(concepts, mode, f"target.synthetic.folder={folder}") for concepts in named)}


def _checked(concepts: Concepts, mode: str, key: str) -> Concepts:
    wanted = 1 if mode == "mono" else 2
    if len(concepts) != wanted or len(set(concepts)) != wanted:
        raise UsageError(
            f"{key}: {' and '.join(concepts)!r} has {len(set(concepts))} concepts; a unit of {mode!r} has {wanted}"
        )
    for concept in concepts:
        if not NAME.fullmatch(concept):
            raise UsageError(
                f"{key}: {concept!r} is no concept; expected letters, digits, blanks and hyphens ('_' joins two concepts)"
            )
    return concepts


def truth(layer: str, concepts: Concepts) -> str:
    """What the unit responds to, in words."""
    match layer:
        case "or":
            return " or ".join(concepts)
        case "and":
            return f"{concepts[0]}, when {concepts[1]} is present too"
        case _:
            return concepts[0]
