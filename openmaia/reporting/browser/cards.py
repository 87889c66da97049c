"""Chooses the descriptions that the first page shows as cards with images."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from openmaia.core.errors import StoreError
from openmaia.reporting.browser.rows import RunSummary
from openmaia.reporting.browser.unit.captions import Captions
from openmaia.reporting.browser.unit.claims import show_exemplars
from openmaia.reporting.browser.unit.observation import ImageView, Viewer
from openmaia.reporting.browser.unit.pictures import PagePictures, Picture
from openmaia.reporting.tables import UnitRow
from openmaia.runs import tables
from openmaia.runs.records import Record
from openmaia.runs.run import Run

CARDS, CARDS_BESIDE = 6, 3
"""Number of cards per run: in a report of one run, and of several."""
_IMAGES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitCard:
    """A description with exemplars, and images of its labels."""

    row: UnitRow
    exemplars: tuple[ImageView, ...]
    generated: tuple[tuple[Picture, str], ...]
    """Test images of the labels, the most activating first, each with its prompt."""


def choose_cards(run: Run, summary: RunSummary, count: int, pictures: PagePictures) -> tuple[UnitCard, ...]:
    """Returns at most `count` cards of a run, those with the best verdicts.

    Investigations with an unreadable record or evaluation are left out.
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
    return show_exemplars(record, Viewer(record.images, Captions.of(record), pictures), _IMAGES)


def _generated(stimuli: Sequence[dict[str, Any]], pictures: PagePictures) -> tuple[tuple[Picture, str], ...]:
    shown = [one for one in stimuli if one["role"] == "positive" and one["shows"] is not False]
    shown.sort(key=lambda one: -one["activation"])
    return tuple((pictures.picture(one["digest"], one["data"] or b""), one["prompt"] or "") for one in shown[:_IMAGES])
