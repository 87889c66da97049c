"""Renders the page of an investigation."""

from dataclasses import dataclass
from typing import Any, cast

from openmaia.analysis.costs.totals import costs
from openmaia.core.errors import StoreError
from openmaia.reporting.browser.pages import render
from openmaia.reporting.browser.unit.captions import Captions
from openmaia.reporting.browser.unit.claims import make_claim_views, show_exemplars
from openmaia.reporting.browser.unit.conversation import make_turn_views
from openmaia.reporting.browser.unit.evidence import make_evidence_view
from openmaia.reporting.browser.unit.observation import Viewer
from openmaia.reporting.browser.unit.pictures import PagePictures
from openmaia.reporting.browser.unit.scored import make_evaluation_view
from openmaia.reporting.image_models import image_model
from openmaia.reporting.tables import UnitRow
from openmaia.runs.records import Record, Stop
from openmaia.runs.run import Run

Neighbours = tuple[tuple[str, str] | None, tuple[str, str] | None]
"""Address and title of the previous and of the next page of the layer; None if there is none."""
_LAST_WORDS = 600
"""Number of characters of the last reply that the page shows if there is no answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitPage:
    """What the page of an investigation is rendered from."""

    run: Run
    row: UnitRow
    near: Neighbours
    near_file: str
    """The data file with similar descriptions; empty if there is none."""

    @property
    def top(self) -> str:
        """The relative path from the page to the folder of the report, such as "../../"."""
        return "../" * self.row.page.count("/")


@dataclass(frozen=True, slots=True, kw_only=True)
class RenderedUnit:
    """The page of an investigation."""

    html: bytes
    damage: str = ""
    """Why the page does not show the record; empty if it does."""


_UNSHOWABLE = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
"""Exceptions for a record or an evaluation whose values have the right types, and contradict each other."""


def render_unit(page: UnitPage, allowance: int) -> RenderedUnit:
    """Renders the page of an investigation, which only says why if its record cannot be read.

    `allowance` is the maximum size of all images in bytes.
    """
    try:
        record = page.run.record(page.row.investigation)
        return RenderedUnit(html=_html(page, record, allowance))
    except (StoreError, *_UNSHOWABLE) as error:
        reason = error.message if isinstance(error, StoreError) else f"its values do not fit together ({error!r})"
        html = render("damaged.html.j2", row=page.row, damage=reason, top=page.top)
        return RenderedUnit(html=html, damage=f"cannot be shown: {reason}")


def _html(page: UnitPage, record: Record, allowance: int) -> bytes:
    pictures = PagePictures(allowance)
    viewer = Viewer(record.images, Captions.of(record), pictures)
    # The order decides which images fit: those that the answer rests on come before those of the conversation.
    top = show_exemplars(record, viewer)
    tested, damage = None, ""
    try:
        evaluation = page.run.evaluation(page.row.investigation)
        tested = make_evaluation_view(evaluation, pictures) if evaluation is not None else None
    except StoreError as error:
        damage = error.message
    generator: Any = record.config.get("generator")
    return render(
        "unit.html.j2",
        top=page.top,
        scripts=("unit.js",),
        row=page.row,
        record=record,
        costs=costs([page.row.header]),
        exemplars=top,
        evaluation=tested,
        evaluation_damage=damage,
        claims=make_claim_views(record, tested, viewer),
        evidence=make_evidence_view(record, pictures),
        turns=list(make_turn_views(record.turns, viewer)),
        last_words=_last_words(record),
        near=page.near,
        near_file=page.near_file,
        drawn_by=image_model(cast("dict[str, Any]", generator), "generator") if isinstance(generator, dict) else "",
    )


def _last_words(record: Record) -> str:
    if record.stop is Stop.ANSWER or not record.turns:
        return ""
    text = record.turns[-1].reply.strip()
    return text if len(text) <= _LAST_WORDS else f"…{text[-_LAST_WORDS:]}"
