"""What an evaluation found, read back from its file."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from openmaia.evaluate.sanity import notes
from openmaia.evaluate.writers import ROLES
from openmaia.figures.charts import Strips, strips
from openmaia.images import Picture
from openmaia.report.thumbnails import Thumbnails
from openmaia.store import tables

SIDE = 128

SHOWN = (
    "auc", "auc_worst", "auc_unrelated", "auc_random", "top1",
    "detection_auprc", "detection_f1", "detection_correlation", "detection_iou",
)  # fmt: skip
"""Metrics on a unit's page."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tested:
    """An image of a test. height: its activation between the lowest (0) and the highest (1) of the page. verdict: whether
    it shows what was asked, and who says so."""

    uri: str
    label: str
    prompt: str
    undrawn: tuple[str, ...]
    verdict: str
    activation: float
    height: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Scored:
    """pairs: a positive image and the neutral one that was drawn from the same seed."""

    scores: dict[str, Any]
    pairs: tuple[tuple[Tested | None, Tested | None], ...]
    strips: Strips
    blind: tuple[str, ...]
    """Metrics on the page that fail a sanity test, and which."""


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
            verdict=_verdict(row),
            activation=row["activation"],
            height=(row["activation"] - low) / span,
        )

    positive, neutral = ([tested(row) for row in rows if row["role"] == role] for role in ROLES)
    return Scored(
        scores=scores, pairs=_paired(positive, neutral), strips=strips(_groups(rows)), blind=tuple(notes(SHOWN))
    )


def _verdict(row: dict[str, Any]) -> str:
    said = {True: "shows what was asked", False: "does not show what was asked", None: "not verified"}[row["shows"]]
    return f"{said} ({row['verified_by']})" if row["verified_by"] else said


def _paired(positive: Sequence[Tested], neutral: Sequence[Tested]) -> tuple[tuple[Tested | None, Tested | None], ...]:
    def at(images: Sequence[Tested], n: int) -> Tested | None:
        return images[n] if n < len(images) else None

    return tuple((at(positive, n), at(neutral, n)) for n in range(max(len(positive), len(neutral))))


def _groups(rows: Sequence[dict[str, Any]]) -> dict[str, list[float]]:
    names: dict[str, str] = {role: role for role in ROLES}
    names |= {"unrelated": "unrelated prompts", "random": "photographs"}
    found = {name: [row["activation"] for row in rows if row["role"] == role] for role, name in names.items()}
    return {name: values for name, values in found.items() if values}
