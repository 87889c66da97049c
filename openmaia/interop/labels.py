"""Stores the labels that other methods gave to units in a file `labels.jsonl` with one JSON object per line.

    {"method": "MILAN", "target": "resnet152", "layer": "layer4", "unit": 122, "labels": ["bow ties"], "description": "",
     "score": 0.31, "score_kind": "similarity", "positive": [], "negative": [], "source": "milan/resnet152.csv"}

There is one line for each combination of method, target, layer and unit. The lines are sorted by these values.
"""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any, cast

from openmaia.core.documents import parse_json
from openmaia.core.errors import StoreError
from openmaia.runs.files import Files

NAME = "labels.jsonl"

TestedPrompts = tuple[tuple[str, float], ...]
"""Prompts of generated images, each with the activation of the unit on its image."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Label:
    """The labels that one method gave to one unit."""

    method: str
    target: str
    layer: str
    unit: int
    labels: tuple[str, ...]
    """Depending on the method, the best comes first, or all have equal rank."""
    description: str = ""
    """Empty if the method gives labels only."""
    score: float | None = None
    """The method's own score. Scores of different kinds are not comparable."""
    score_kind: str = ""
    """Such as "AUC". Empty without a score."""
    positive: TestedPrompts = ()
    """Prompts of images that show the labels, with which the method tested them. Empty if there are none or unknown."""
    negative: TestedPrompts = ()
    """Prompts of neutral images from the same test."""
    source: str = ""
    """Path of the imported file relative to the imported folder."""

    @property
    def key(self) -> tuple[str, str, str, int]:
        """Identifies the label in labels.jsonl."""
        return self.method, self.target, self.layer, self.unit

    @property
    def text(self) -> str:
        """The description as a single line, or else the labels, joined by semicolons."""
        return " ".join((self.description or "; ".join(self.labels)).split())


def read(files: Files) -> list[Label]:
    """Returns all labels in labels.jsonl of this folder. Empty if the file does not exist.

    Raises:
        StoreError: The file is damaged.
    """
    try:
        return [_label(parse_json(line)) for line in (files.read(NAME) or b"").splitlines()]
    except (ValueError, TypeError, KeyError) as error:
        raise StoreError(f"{files.path(NAME)} is damaged ({error}); remove it and import again") from error


def add(files: Files, labels: Iterable[Label]) -> None:
    """Adds labels to labels.jsonl of this folder. They replace earlier labels of the same units by the same method.

    Raises:
        StoreError: The existing file is damaged, or the new one cannot be written.
    """
    merged = {label.key: label for label in (*read(files), *labels)}
    lines = (json.dumps(asdict(merged[key]), ensure_ascii=False) for key in sorted(merged))
    # A reply that was cut off inside an emoji ends with half of a surrogate pair, which UTF-8 cannot encode.
    files.write(NAME, "".join(f"{line}\n" for line in lines).encode(errors="replace"))


def _label(data: Any) -> Label:
    fields = cast(dict[str, Any], data)
    fields["labels"] = tuple(fields["labels"])
    for side in ("positive", "negative"):
        fields[side] = tuple((prompt, activation) for prompt, activation in fields[side])
    return Label(**fields)
