"""Renders the page of an investigation."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, cast

from openmaia.analysis.costs.totals import costs
from openmaia.core.errors import StoreError
from openmaia.evaluation.analysis.verdict import all_controls
from openmaia.reporting.browser.pages import CONTROL, VOTES, LiveBox, render
from openmaia.reporting.browser.unit.axis import count_pairs, make_axis, name_control, read_others
from openmaia.reporting.browser.unit.captions import Captions
from openmaia.reporting.browser.unit.claims import make_claim_views, show_exemplars
from openmaia.reporting.browser.unit.conversation import make_turn_views
from openmaia.reporting.browser.unit.dataset import read_dataset, show_levels
from openmaia.reporting.browser.unit.doing import make_doing_view
from openmaia.reporting.browser.unit.evidence import make_evidence_view
from openmaia.reporting.browser.unit.observation import Viewer
from openmaia.reporting.browser.unit.pictures import SMALL, Origin, PagePictures
from openmaia.reporting.browser.unit.saying import say_verdict
from openmaia.reporting.browser.unit.scored import EvaluationView, make_evaluation_view
from openmaia.reporting.browser.unit.shared import RunSources
from openmaia.reporting.image_models import image_model
from openmaia.reporting.tables import UnitRow
from openmaia.runs.records import Record, Stop
from openmaia.runs.results import basis
from openmaia.runs.run import Run
from openmaia.runs.summary import summary
from openmaia.runs.votes import Fit, read_votes

Neighbours = tuple[tuple[str, str] | None, tuple[str, str] | None]
"""Address and title of the previous and of the next page of the layer; None if there is none."""
_LAST_WORDS = 600
"""Number of characters of the last reply that the page shows if there is no answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitPage:
    """What the page of an investigation is rendered from."""

    run: Run
    sources: RunSources
    row: UnitRow
    near: Neighbours
    near_file: str
    """The data file with similar descriptions; empty if there is none."""
    box: LiveBox | None = None
    """None on a page that can ask no network."""
    is_served: bool = False
    """Whether a server renders it, which the page asks for new turns while the unit is investigated."""
    allows: Collection[str] = ()
    """What its readers may do: CONTROL, VOTES."""
    withheld: frozenset[Origin] = frozenset()
    """Which images are not on it."""
    notes: tuple[str, ...] = ()
    """Why, a sentence for each."""
    largest: int = 0
    """The longest side of its images in pixels; 0 for any."""

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
        # Counted before they are read: the page then misses none that is added meanwhile.
        stored = 0 if page.row.header else page.run.turns_of(page.row.investigation)
        record = page.run.record(page.row.investigation) if page.row.header else _read_unfinished(page)
        return RenderedUnit(html=_html(page, record, stored, allowance))
    except (StoreError, *_UNSHOWABLE) as error:
        reason = error.message if isinstance(error, StoreError) else f"its values do not fit together ({error!r})"
        html = render("damaged.html.j2", row=page.row, damage=reason, top=page.top)
        return RenderedUnit(html=html, damage=f"cannot be shown: {reason}")


def _read_unfinished(page: UnitPage) -> Record:
    """Returns what is known of an investigation without a record, as one: its completed turns are in its journal."""
    run, investigation = page.run, page.row.investigation
    config = run.config()
    backbone = config["backbone"]
    return Record(
        unit=investigation.unit,
        replicate=investigation.replicate,
        stop=Stop.STOPPED,
        cause=page.row.cause,
        description="",
        labels=(),
        backbone=str(backbone.get("model") or backbone["kind"]),
        task=str(config["task"]["name"]),
        sandbox="",
        prompts=(),
        turns=tuple(run.journal(investigation).turns()),
        config=config,
        started=0.0,
    )


def _html(page: UnitPage, record: Record, stored: int, allowance: int) -> bytes:
    pictures = PagePictures(allowance, page.withheld, page.largest)
    viewer = Viewer(record.images, Captions.of(record), pictures)
    # The order decides which images fit, and which are large: those that the page shows first come first.
    dataset = read_dataset(page.sources, page.row.unit, lambda: show_exemplars(record, viewer), pictures)
    tested, damage = _read_evaluation(page, pictures)
    dataset = show_levels(dataset, pictures)
    verdict = page.row.verdict
    others = list(read_others(page.sources, page.row.investigation, pictures)) if verdict.controls else []
    generator: Any = record.config.get("generator")
    return render(
        "unit.html.j2",
        top=page.top,
        styles=("unit.css", "live.css"),
        scripts=(
            "unit.js",
            *(("live.js",) if page.box else ()),
            *(("control.js",) if page.is_served else ()),
            *(("votes.js",) if VOTES in page.allows else ()),
        ),
        asks=page.is_served or page.box is not None,
        box=page.box,
        is_served=page.is_served,
        stored_turns=stored,
        has_control=CONTROL in page.allows,
        can_vote=VOTES in page.allows,
        # Those who voted have not agreed to be named in public.
        votes=read_votes(page.run, page.row.investigation) if page.row.header and not page.largest else None,
        fits=list(Fit),
        seen=basis(page.row.header, page.run.identity()) if page.row.header and VOTES in page.allows else "",
        is_going=not page.row.header,
        row=page.row,
        record=record,
        costs=costs([page.row.header or summary(record)]),
        dataset=dataset,
        notes=page.notes,
        view=make_axis(dataset, tested, verdict, others),
        sentence=say_verdict(verdict),
        pairs=count_pairs,
        once=pictures.once,
        control_names={control.name: name_control(key) for key, control in all_controls().items()},
        doing=make_doing_view(page.sources, page.row.investigation, pictures, SMALL),
        evaluation=tested,
        evaluation_damage=damage,
        claims=make_claim_views(record, tested, viewer.captions),
        turns=list(make_turn_views(record, viewer)),
        evidence=make_evidence_view(record, pictures),
        last_words=_last_words(record),
        near=page.near,
        near_file=page.near_file,
        drawn_by=image_model(cast("dict[str, Any]", generator), "generator") if isinstance(generator, dict) else "",
    )


def _read_evaluation(page: UnitPage, pictures: PagePictures) -> tuple[EvaluationView | None, str]:
    """Returns the evaluation, None if there is none, and why it cannot be shown."""
    try:
        evaluation = page.run.evaluation(page.row.investigation)
        return (None if evaluation is None else make_evaluation_view(evaluation, pictures)), ""
    except StoreError as error:
        return None, error.message


def _last_words(record: Record) -> str:
    if record.stop in (Stop.ANSWER, Stop.STOPPED) or not record.turns:
        return ""
    text = record.turns[-1].reply.strip()
    if record.stop is Stop.ABSTAIN and len(text.splitlines()) == 1:  # the form of an abstention says nothing
        return ""
    return text if len(text) <= _LAST_WORDS else f"…{text[-_LAST_WORDS:]}"
