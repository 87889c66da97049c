"""Labels that other methods gave to units, in one file: `labels.jsonl`, one JSON object per line.

    {"method": "MILAN", "target": "resnet152", "layer": "layer4", "unit": 122, "labels": ["bow ties"],
     "score": 0.31, "score_kind": "similarity", "source": "milan/resnet152.csv"}

labels: the best first, or all equal, as the method has it. score: the method's own, null where it gives none; scores of
different kinds are not comparable. target: empty where the file does not say it. One line per method, target, layer and
unit; sorted by those.
"""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any, cast

from openmaia.errors import StoreError
from openmaia.store.files import Files

NAME = "labels.jsonl"


@dataclass(frozen=True, slots=True, kw_only=True)
class Label:
    method: str
    target: str
    layer: str
    unit: int
    labels: tuple[str, ...]
    score: float | None = None
    score_kind: str = ""
    source: str = ""

    @property
    def key(self) -> tuple[str, str, str, int]:
        return self.method, self.target, self.layer, self.unit


def read(files: Files) -> list[Label]:
    """Raises StoreError where the file is damaged; none where there is no file."""
    try:
        return [_label(json.loads(line)) for line in (files.read(NAME) or b"").splitlines()]
    except (ValueError, TypeError, KeyError) as error:
        raise StoreError(f"{files.path(NAME)} is damaged ({error}); remove it and import again") from error


def add(files: Files, labels: Iterable[Label]) -> None:
    """Takes the place of earlier labels of the same units by the same method."""
    kept = {label.key: label for label in (*read(files), *labels)}
    lines = (json.dumps(asdict(kept[key]), ensure_ascii=False) for key in sorted(kept))
    # Half of a surrogate pair, as a reply cut off within an emoji has it, becomes a question mark.
    files.write(NAME, "".join(f"{line}\n" for line in lines).encode(errors="replace"))


def _label(data: Any) -> Label:
    fields = cast(dict[str, Any], data)
    fields["labels"] = tuple(fields["labels"])
    return Label(**fields)
