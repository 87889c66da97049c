"""Lists of synthetic units with the concepts to which each responds."""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

from openmaia.core.errors import UsageError
from openmaia.core.paths import user_path

SyntheticMode = Literal["mono", "or", "and", "andnot"]
"""One concept (mono), either of two (or), the first if the second is present (and) or absent (andnot)."""

MODES: tuple[SyntheticMode, ...] = ("mono", "or", "and")  # of published units
# The published MAIA code has `andnot` as well, but neither it nor the paper has units of this mode.
OWN_MODES: tuple[SyntheticMode, ...] = (*MODES, "andnot")

Concepts = tuple[str, ...]
"""One for `mono`, otherwise two."""

# They can be part of a file name, and contain no `_`, which joins two concepts in a label.
CONCEPT = re.compile(r"[^\W_](?:[^\W_]|[ '-]){0,79}")

SyntheticUnits = Mapping[str, tuple[Concepts, ...]]
"""The concepts of all units of each layer, by index. Layers are named after modes."""

IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg", ".webp")


def read(preset: str) -> SyntheticUnits:
    """Returns the units of `repo` (47 `mono`, 18 `or`, 20 `and`) or `paper` (45, 24, 19)."""
    lists = json.loads((Path(__file__).parent / "units.json").read_text())[preset]
    return {mode: tuple(tuple(concepts) for concepts in lists[mode]) for mode in MODES}


def read_units(mode: str, labels: Sequence[str], folder: str) -> SyntheticUnits:
    """Returns the units that a config defines instead of a preset, in one layer. Exactly one of labels and folder must
    be given.

    Args:
        labels: The concepts of a single unit.
        folder: It has one subfolder of images, LABEL or LABEL1_LABEL2, for each unit, as MAIA's data. Units are sorted
            by the names of their folders.

    Raises:
        UsageError: The mode, the labels or the folder cannot be used.
    """
    if mode not in OWN_MODES:
        raise UsageError(f"target.mode={mode!r} is not known; expected {', '.join(OWN_MODES)}")
    if bool(labels) == bool(folder):
        raise UsageError(
            "target.labels, target.folder: give either labels, such as [cheese, lemon], or a folder of label folders"
        )
    if labels:
        return {mode: (_checked(tuple(labels), mode, "target.labels"),)}
    key = f"target.folder={folder}"
    root = user_path(folder)
    if not root.is_dir():
        raise UsageError(f"{key} is no folder")
    names = sorted(path.name for path in root.iterdir() if path.is_dir() and _holds_images(path))
    if not names:
        raise UsageError(f"{key} holds no folders with images; expected LABEL/image.png or LABEL1_LABEL2/image.png")
    return {mode: tuple(_checked(tuple(name.split("_")), mode, key) for name in names)}


def _holds_images(folder: Path) -> bool:
    return any(path.suffix.lower() in IMAGE_SUFFIXES for path in folder.iterdir())


def _checked(concepts: Concepts, mode: str, key: str) -> Concepts:
    expected = 1 if mode == "mono" else 2
    if len(concepts) != expected or len(set(concepts)) != expected:
        raise UsageError(
            f"{key}: {' and '.join(concepts)!r} has {len(set(concepts))} concepts; a unit of {mode!r} has {expected}"
        )
    for concept in concepts:
        if not CONCEPT.fullmatch(concept):
            raise UsageError(
                f"{key}: {concept!r} is no concept; expected letters, digits, blanks and hyphens ('_' joins two concepts)"
            )
    return concepts


def truth(layer: str, concepts: Concepts) -> str:
    """Returns the true description of a unit, such as "cheese or lemon"."""
    match layer:
        case "or":
            return " or ".join(concepts)
        case "and":
            return f"{concepts[0]}, when {concepts[1]} is present too"
        case "andnot":
            return f"{concepts[0]}, when {concepts[1]} is absent"
        case _:
            return concepts[0]


def slots(layer: str, concepts: Concepts) -> tuple[str, ...]:
    """Returns a text for each alternative that excites a unit alone: two for `or`, else one ("cheese and lemon")."""
    match layer:
        case "or":
            return concepts
        case "and" | "andnot":
            return ({"and": " and ", "andnot": " without "}[layer].join(concepts),)
        case _:
            return concepts[:1]
