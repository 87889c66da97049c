"""Chooses the descriptions that the index shows first, and prepares the images of their cards."""

from dataclasses import dataclass
from typing import Any

from openmaia.core.errors import StoreError
from openmaia.core.images import EncodedImage
from openmaia.reporting.browser.rows import RunSummary, UnitRow
from openmaia.reporting.browser.thumbnails import Thumbnails, top
from openmaia.runs import tables
from openmaia.runs.run import EVALUATION, Run

CARDS, CARDS_BESIDE = 6, 3
"""Number of cards of the only run of a report, and of each of several runs."""
IMAGES, SIDE = 3, 112


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitCard:
    """A description with images: what the unit responds to in the dataset, and what was drawn from its labels."""

    row: UnitRow
    exemplars: tuple[str, ...]
    """Data URIs of the unit's top exemplars, outlined where the unit responds."""
    drawn: tuple[str, ...]
    """Data URIs of test images that were drawn from the labels."""


def cards(run: Run, summary: RunSummary, count: int, thumbnails: Thumbnails) -> tuple[UnitCard, ...]:
    """Returns cards of the descriptions whose weakest control is the highest, and then of those without a test.

    Records that cannot be read are left out.
    """
    described = [row for row in summary.rows if row.href and row.header.get("labels") and not row.damage]
    described.sort(key=lambda row: -row.weakest[1] if row.weakest else 1.0)
    made: list[UnitCard] = []
    for row in described:
        if len(made) == count:
            break
        try:
            record, data = run.record(row.investigation), run.artifact(EVALUATION, row.investigation)
            drawn = _drawn(tables.load(data)[0], thumbnails) if data is not None else ()
        except StoreError:
            continue
        made.append(UnitCard(row=row, exemplars=top(record, thumbnails, IMAGES, SIDE), drawn=drawn))
    return tuple(made)


def _drawn(stimuli: list[dict[str, Any]], thumbnails: Thumbnails) -> tuple[str, ...]:
    shown = [one for one in stimuli if one["role"] == "positive" and one["shows"] is not False][:IMAGES]
    uris = (thumbnails.uri(EncodedImage(data=one["data"] or b""), SIDE) for one in shown)
    return tuple(uri for uri in uris if uri)
