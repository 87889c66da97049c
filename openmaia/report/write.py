"""Writes the pages of one or several runs into the first one's directory; what is up to date stays as it is."""

import json
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import repeat
from pathlib import Path
from typing import Any, cast

from openmaia.errors import StoreError
from openmaia.report import agents
from openmaia.report import papers as beside
from openmaia.report.captions import Captions
from openmaia.report.conversation import conversation
from openmaia.report.observation import Viewer
from openmaia.report.pages import Neighbours, damaged_page, design, figure_svg, index_page, papers_page, unit_page
from openmaia.report.rows import Row, Summary, rows, summary
from openmaia.report.scored import Scored, read
from openmaia.report.sheets import Sheet, of_run
from openmaia.report.thumbnails import PREFIX, Thumbnails, top
from openmaia.store.files import Files, safe
from openmaia.store.records import Record, dumps
from openmaia.store.run import Run

PAGE_BYTES = 2_400_000
"""Of pictures on one page."""
AT_ONCE = 4
NOTES = "report/pages.json"
"""What each page was made from, and the pictures that the index shows of it; without it everything is made anew."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """Of one unit. made_from: equal for equal pages; "" where that cannot be told."""

    run: Run
    row: Row
    near: Neighbours
    made_from: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """damage: why the page holds no record."""

    strip: tuple[str, ...] = ()
    damage: str = ""


def write_report(runs: Sequence[Run]) -> Path:
    """report/index.html and a page per finished unit, in the directory of the first run. Returns the index's path."""
    if not runs:
        raise ValueError("no run was given; give at least one to report on")
    files = runs[0].files
    shown_as = list(_folders(runs))
    summaries = [summary(run, name, rows(run, name, folder)) for run, name, folder in shown_as]
    exemplars = {
        name: of_run(run, name, folder, found.rows)
        for (run, name, folder), found in zip(shown_as, summaries, strict=True)
    }
    pages = [page for run, found in zip(runs, summaries, strict=True) for page in _pages(run, found)]
    sheets = [sheet for found in exemplars.values() for sheet in found.sheets]
    notes = _notes(files)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        made = pool.map(_written, repeat(files), pages, repeat(notes))
        written = {page.row.page: one for page, one in zip(pages, made, strict=True)}
        list(pool.map(_write_sheet, repeat(files), sheets, repeat(notes)))
    now: dict[str, list[object]] = {
        page.row.page: [page.made_from, list(written[page.row.page].strip)]
        for page in pages
        if not written[page.row.page].damage
    }
    now |= {sheet.page: [sheet.made_from, []] for sheet in sheets}
    if now != notes:
        files.write(NOTES, dumps(now).encode())
    strips = {page: one.strip for page, one in written.items()}
    shown = [_without_damaged(found, written) for found in summaries]
    links = {name: found.links for name, found in exemplars.items()}
    figures = {
        found.name: agents.shown(found.agents, f"{folder.removesuffix('units/')}figures/")
        for (_, _, folder), found in zip(shown_as, shown, strict=True)
    }
    for one in figures.values():
        agents.write(files, one, {figure.name: figure_svg(figure) for figure in one.figures})
    papers = beside.papers([(run, name) for run, name, _ in shown_as])
    beside.write(files, papers)
    files.write(f"report/{beside.PAGE}", papers_page(papers))
    files.write("report/index.html", index_page(shown, strips, links, figures))
    return Path(files.path("report/index.html"))


def named(runs: Sequence[Run]) -> Iterator[tuple[Run, str]]:
    """Each run with a name of its own; runs of one name in different places are numbered."""
    taken: set[str] = set()
    for run in runs:
        same = sum(name == run.name or name.startswith(f"{run.name} (") for name in taken)
        name = f"{run.name} ({same + 1})" if same else run.name
        yield run, name
        taken.add(name)


def _folders(runs: Sequence[Run]) -> Iterator[tuple[Run, str, str]]:
    """The first run's pages lie in units/, those of the others in folders of their own."""
    for at, (run, name) in enumerate(named(runs)):
        yield run, name, f"runs/{safe(name)}/units/" if at else "units/"


def _pages(run: Run, found: Summary) -> Iterator[Page]:
    done = sorted((row for row in found.rows if row.header), key=lambda row: row.owed)

    def link(row: Row, at: int) -> tuple[str, str] | None:
        """The neighbour's file, where it is of the same layer."""
        other = done[at] if 0 <= at < len(done) else None
        if other is None or (other.unit.target, other.unit.layer) != (row.unit.target, row.unit.layer):
            return None
        return other.page.rsplit("/", 1)[-1], other.name

    for at, row in enumerate(done):
        near = Neighbours(before=link(row, at - 1), after=link(row, at + 1))
        yield Page(run=run, row=row, near=near, made_from=_made_from(run, row, near))


def _made_from(run: Run, row: Row, near: Neighbours) -> str:
    """ "" on an object store, whose times are no reliable order."""
    root = run.files.local
    if root is None:
        return ""
    stem = f"{safe(row.unit.target)}/{safe(row.unit.layer)}/{row.unit.index}-{row.owed.replicate}.parquet"
    paths = (root / folder / stem for folder in ("records", "evaluation"))
    times = [path.stat().st_mtime_ns if path.exists() else 0 for path in paths]
    return dumps([design(), times, near.before, near.after])


def _notes(files: Files) -> dict[str, Any]:
    try:
        return dict(json.loads(files.read(NOTES) or b"{}"))
    except (ValueError, TypeError):
        return {}


def _kept(files: Files, page: str, made_from: str, notes: dict[str, Any]) -> list[object] | None:
    """What is noted of a page that is there and up to date."""
    before: object = notes.get(page)
    if made_from and isinstance(before, list) and before[:1] == [made_from] and files.exists(f"report/{page}"):
        return cast(list[list[object]], before)[1]
    return None


def _write_sheet(files: Files, sheet: Sheet, notes: dict[str, Any]) -> None:
    if _kept(files, sheet.page, sheet.made_from, notes) is None:
        files.write(f"report/{sheet.page}", sheet.rendered())


def _written(files: Files, page: Page, notes: dict[str, Any]) -> Written:
    name = f"report/{page.row.page}"
    before = _kept(files, page.row.page, page.made_from, notes)
    if before is not None:
        return Written(strip=tuple(uri for uri in map(str, before) if uri.startswith(PREFIX)))
    try:
        record = page.run.record(page.row.owed)
        evaluation = page.run.evaluation(page.row.owed)
        thumbnails = Thumbnails(PAGE_BYTES)
        strip = top(record, thumbnails)
        scored = read(evaluation, thumbnails) if evaluation is not None else None
    except StoreError as error:
        files.write(name, damaged_page(page.row, error.message))
        return Written(damage=f"cannot be shown: {error.message}")
    files.write(name, _unit(page, record, scored, strip, thumbnails))
    return Written(strip=strip)


def _unit(page: Page, record: Record, scored: Scored | None, strip: Sequence[str], thumbnails: Thumbnails) -> bytes:
    viewer = Viewer(record.pictures, Captions.of(record), thumbnails)
    return unit_page(page.row, record, scored, list(conversation(record.turns, viewer)), strip, page.near)


def _without_damaged(found: Summary, written: dict[str, Written]) -> Summary:
    """Rows whose record cannot be shown say why."""

    def row(one: Row) -> Row:
        damage = written[one.page].damage if one.page in written else ""
        return replace(one, damage=damage) if damage else one

    return replace(found, rows=tuple(row(one) for one in found.rows))
