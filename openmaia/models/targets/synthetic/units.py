"""Lists of synthetic units with the concepts to which each unit responds."""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

from openmaia.core.errors import UsageError
from openmaia.core.paths import user_path

SyntheticMode = Literal["mono", "or", "and", "andnot"]
"""Mode of a unit: it responds to one concept (mono), to either of two (or), or to one if another is present (and) or
absent (andnot)."""

MODES: tuple[SyntheticMode, ...] = ("mono", "or", "and")
"""The modes of the units of the published MAIA code and of the MAIA paper."""
OWN_MODES: tuple[SyntheticMode, ...] = (*MODES, "andnot")
"""The modes of units that a config defines. The published MAIA code has `andnot` as well, but neither it nor the paper
has units of this mode."""

Concepts = tuple[str, ...]
"""The concepts of a unit: one for the mode `mono`, otherwise two. An `and` or `andnot` unit responds to the first
if the second is present (`and`) or absent (`andnot`)."""

CONCEPT = re.compile(r"[^\W_](?:[^\W_]|[ '-]){0,79}")
"""Matches valid concepts. They can be part of a file name and contain no `_`, which joins two concepts in a label."""

SyntheticUnits = Mapping[str, tuple[Concepts, ...]]
"""The concepts of all units of each layer, by index. The layers are named after the modes."""

IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg", ".webp")


def read(preset: str) -> SyntheticUnits:
    """Returns the concepts of the units of a preset, by layer. Each layer is named after the mode of its units.

    A unit of the mode `mono` responds to one concept, `or` to either of two concepts, and `and` to a concept if another
    one is present.

    Args:
        preset: `repo` (47 `mono`, 18 `or` and 20 `and` units) or `paper` (45 `mono`, 24 `or` and 19 `and` units).
    """
    lists = json.loads((Path(__file__).parent / "units.json").read_text())[preset]
    return {mode: tuple(tuple(concepts) for concepts in lists[mode]) for mode in MODES}


def configured_units(mode: str, labels: Sequence[str], folder: str) -> SyntheticUnits:
    """Returns the units that a config defines instead of a preset, in one layer that is named after their mode.

    Exactly one of `labels` and `folder` must be given.

    Args:
        mode: Mode of the units, one of `OWN_MODES`.
        labels: The concepts of a single unit. Empty if a folder is given.
        folder: A folder with one subfolder of images, LABEL or LABEL1_LABEL2, for each unit, as in MAIA's data.
            Units are sorted by the names of their folders. Empty if labels are given.

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
    """Returns the true description of a unit, such as "cheese or lemon".

    Args:
        layer: The layer of the unit. It is named after the mode, which determines how the concepts are combined.
        concepts: The concepts of the unit.
    """
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
    """Returns a text for each of the alternatives that excite a unit on their own.

    A unit of the mode `or` has two alternatives, its concepts. Any other unit has one, such as "cheese and lemon".

    Args:
        layer: The layer of the unit, which is named after its mode.
        concepts: The concepts of the unit.
    """
    match layer:
        case "or":
            return concepts
        case "and" | "andnot":
            return ({"and": " and ", "andnot": " without "}[layer].join(concepts),)
        case _:
            return concepts[:1]
