"""What an evaluation found, read back from its file."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from openmaia.evaluate.predictive import ROLES
from openmaia.figures.charts import Strips, strips
from openmaia.images import Picture
from openmaia.report.thumbnails import Thumbnails
from openmaia.store import tables

SIDE = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class Tested:
    """An image of a test. height: its activation between the lowest (0) and the highest (1) of the page."""

    uri: str
    label: str
    prompt: str
    undrawn: tuple[str, ...]
    activation: float
    height: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Scored:
    """pairs: a positive image and the neutral one that was drawn from the same seed."""

    scores: dict[str, Any]
    pairs: tuple[tuple[Tested | None, Tested | None], ...]
    strips: Strips


def read(data: bytes, thumbnails: Thumbnails) -> Scored:
    """Raises StoreError for what is no evaluation."""
    rows, header = tables.load(data)
    scores: dict[str, Any] = header["scores"]
    values = [row["activation"] for row in rows]
    low, span = (min(values), (max(values) - min(values)) or 1.0) if values else (0.0, 1.0)

    def tested(row: dict[str, Any]) -> Tested:
        return Tested(
            uri=thumbnails.uri(Picture(data=row["data"] or b""), SIDE),
            label=row["label"] or "",
            prompt=row["prompt"] or "",
            undrawn=tuple(row["undrawn"] or ()),
            activation=row["activation"],
            height=(row["activation"] - low) / span,
        )

    positive, neutral = ([tested(row) for row in rows if row["role"] == role] for role in ROLES)
    return Scored(scores=scores, pairs=_paired(positive, neutral), strips=strips(_groups(rows)))


def _paired(positive: Sequence[Tested], neutral: Sequence[Tested]) -> tuple[tuple[Tested | None, Tested | None], ...]:
    def at(images: Sequence[Tested], n: int) -> Tested | None:
        return images[n] if n < len(images) else None

    return tuple((at(positive, n), at(neutral, n)) for n in range(max(len(positive), len(neutral))))


def _groups(rows: Sequence[dict[str, Any]]) -> dict[str, list[float]]:
    names = {role: role for role in ROLES} | {f"other {role}": f"another unit's {role}" for role in ROLES}
    found = {name: [row["activation"] for row in rows if row["role"] == role] for role, name in names.items()}
    return {name: values for name, values in found.items() if values}
