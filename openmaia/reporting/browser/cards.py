"""Chooses the descriptions that the first page of a report shows as cards with images, and prepares these images."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from openmaia.core.errors import StoreError
from openmaia.reporting.browser.rows import RunSummary, UnitRow
from openmaia.reporting.browser.unit.captions import Captions
from openmaia.reporting.browser.unit.claims import exemplars
from openmaia.reporting.browser.unit.observation import ImageView, Viewer
from openmaia.reporting.browser.unit.pictures import PagePictures, Picture
from openmaia.runs import tables
from openmaia.runs.records import Record
from openmaia.runs.run import Run

CARDS, CARDS_BESIDE = 6, 3
"""Number of cards (descriptions with images) per run: if the report shows a single run, and if it shows several."""
IMAGES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitCard:
    """The description of a unit with images: exemplars from the dataset, and images generated from its labels."""

    row: UnitRow
    exemplars: tuple[ImageView, ...]
    generated: tuple[tuple[Picture, str], ...]
    """Images that were generated to test the labels, the most activating first, each with its prompt."""


def cards(run: Run, summary: RunSummary, count: int, pictures: PagePictures) -> tuple[UnitCard, ...]:
    """Returns the cards of a run for the first page of a report. Each card shows one description with images.

    The descriptions with the best verdicts are chosen. Investigations with an unreadable record or evaluation are left
    out.

    Args:
        run: The run.
        summary: The rows and numbers of the run.
        count: Largest number of cards.
        pictures: Embeds images in the page.
    """
    described = [row for row in summary.rows if row.href and row.header.get("labels") and not row.damage]
    described.sort(key=lambda row: row.verdict.rank)
    made: list[UnitCard] = []
    for row in described:
        if len(made) == count:
            break
        try:
            record, data = run.record(row.investigation), run.evaluation(row.investigation)
            generated = _generated(tables.load(data)[0], pictures) if data is not None else ()
        except StoreError:
            continue
        made.append(UnitCard(row=row, exemplars=_exemplars(record, pictures), generated=generated))
    return tuple(made)


def _exemplars(record: Record, pictures: PagePictures) -> tuple[ImageView, ...]:
    return exemplars(record, Viewer(record.images, Captions.of(record), pictures), IMAGES)


def _generated(stimuli: Sequence[dict[str, Any]], pictures: PagePictures) -> tuple[tuple[Picture, str], ...]:
    shown = [one for one in stimuli if one["role"] == "positive" and one["shows"] is not False]
    shown.sort(key=lambda one: -one["activation"])
    return tuple((pictures.picture(one["digest"], one["data"] or b""), one["prompt"] or "") for one in shown[:IMAGES])
