"""Writes the report of one or several runs into the directory of the first run. Only outdated pages are written."""

import json
import urllib.parse
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import repeat
from pathlib import Path
from typing import Any, cast

from openmaia.core.errors import StoreError
from openmaia.evaluation.analysis.sanity import NAMES, measured_results, warning
from openmaia.reporting.browser.agents import AgentCharts, agent_charts, chart_files
from openmaia.reporting.browser.captions import Captions
from openmaia.reporting.browser.cards import CARDS, CARDS_BESIDE, UnitCard, cards
from openmaia.reporting.browser.conversation import conversation
from openmaia.reporting.browser.evidence import evidence_view
from openmaia.reporting.browser.observation import Viewer
from openmaia.reporting.browser.pages import APPLICATIONS, design, render
from openmaia.reporting.browser.papers import write_papers
from openmaia.reporting.browser.rows import STOPS, RunSummary, UnitRow, rows, summary
from openmaia.reporting.browser.scored import EvaluationView, evaluation_view
from openmaia.reporting.browser.sheets import RunSheets, Sheet, of_run
from openmaia.reporting.browser.thumbnails import PREFIX, Thumbnails, top
from openmaia.reporting.totals import costs
from openmaia.runs.files import Files, safe
from openmaia.runs.records import Record, dumps
from openmaia.runs.run import EVALUATION, Run

PAGE_BYTES = 2_400_000
"""Maximum size of all images on a page, in bytes."""
THREADS = 4
NOTES = "report/pages.json"
"""The file with the cache key of each page and its images on the index. Without it all pages are written again."""


Neighbours = tuple[tuple[str, str] | None, tuple[str, str] | None]
"""File name and title of the previous and of the next page of the layer; None if there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitPage:
    """The page of one investigation."""

    run: Run
    row: UnitRow
    near: Neighbours
    made_from: str
    """The cache key of the page; empty if the page must always be written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenPage:
    """The result of writing a unit's page, for its row on the index."""

    strip: tuple[str, ...] = ()
    """Data URIs of the unit's top exemplars."""
    damage: str = ""
    """The reason why the page does not show the record; empty if it does."""


def write_report(runs: Sequence[Run]) -> Path:
    """Writes report/index.html and a page for each finished unit into the directory of the first run.

    Returns:
        The path of the index.

    Raises:
        ValueError: There are no runs.
    """
    if not runs:
        raise ValueError("no run was given; give at least one to report on")
    files = runs[0].files
    folders = list(_folders(runs))
    summaries = [summary(run, name, rows(run, name, folder)) for run, name, folder in folders]
    exemplars = {
        name: of_run(run, name, folder, one.rows) for (run, name, folder), one in zip(folders, summaries, strict=True)
    }
    pages = [page for run, one in zip(runs, summaries, strict=True) for page in _pages(run, one)]
    written = _write_pages(files, pages, [sheet for one in exemplars.values() for sheet in one.sheets])
    summaries = [_with_damage(one, written) for one in summaries]
    charts = {
        one.name: agent_charts(one.agents, f"{folder.removesuffix('units/')}figures/")
        for (_, _, folder), one in zip(folders, summaries, strict=True)
    }
    for one in charts.values():
        chart_files(one, files)
    write_papers([(run, name) for run, name, _ in folders], files)
    strips = {page: one.strip for page, one in written.items()}
    shown = {
        one.name: cards(run, one, CARDS_BESIDE if len(runs) > 1 else CARDS, Thumbnails(PAGE_BYTES // len(runs)))
        for run, one in zip(runs, summaries, strict=True)
    }
    files.write("report/index.html", _index(summaries, shown, strips, exemplars, charts, _applications(files)))
    return Path(files.path("report/index.html"))


def _index(
    summaries: Sequence[RunSummary],
    shown: Mapping[str, Sequence[UnitCard]],
    strips: Mapping[str, Sequence[str]],
    exemplars: Mapping[str, RunSheets],
    charts: Mapping[str, AgentCharts],
    applications: Sequence[tuple[str, str]],
) -> bytes:
    all_rows = [row for summary in summaries for row in summary.rows]
    present = {row.stop for row in all_rows}
    return render(
        "index.html.j2",
        has_script=True,
        summaries=summaries,
        rows=all_rows,
        cards=shown,
        strips=strips,
        exemplars=exemplars,
        agents=charts,
        applications=applications,
        layers=sorted({row.unit.layer for row in all_rows}),
        stops=[stop for stop in STOPS if stop in present],
        blind={name: warning(name) for name in ("auc", "auc_minus_other", "difference")},
        sanity=[(NAMES[name], tests) for name, tests in measured_results().items()],
    )


def _write_pages(files: Files, pages: Sequence[UnitPage], sheets: Sequence[Sheet]) -> dict[str, WrittenPage]:
    """Writes the outdated pages. Returns the results of all pages by path."""
    notes = _notes(files)
    with ThreadPoolExecutor(THREADS) as pool:
        results = pool.map(_write_page, repeat(files), pages, repeat(notes))
        written = {page.row.page: result for page, result in zip(pages, results, strict=True)}
        list(pool.map(_write_sheet, repeat(files), sheets, repeat(notes)))
    now: dict[str, list[object]] = {
        page.row.page: [page.made_from, list(written[page.row.page].strip)]
        for page in pages
        if not written[page.row.page].damage
    }
    now |= {sheet.page: [sheet.made_from, []] for sheet in sheets}
    if now != notes:
        files.write(NOTES, dumps(now).encode())
    return written


def _applications(files: Files) -> list[tuple[str, str]]:
    """Returns the address and the title of each page that an application has written into the report."""
    pages = [name.removeprefix("report/") for name in files.names(f"report/{APPLICATIONS}") if name.endswith(".html")]
    return [(urllib.parse.quote(page), Path(page).stem.capitalize()) for page in pages]


def named(runs: Sequence[Run]) -> Iterator[tuple[Run, str]]:
    """Yields each run with a unique name. Runs of the same name are numbered."""
    taken: set[str] = set()
    for run in runs:
        same = sum(name == run.name or name.startswith(f"{run.name} (") for name in taken)
        name = f"{run.name} ({same + 1})" if same else run.name
        yield run, name
        taken.add(name)


def _folders(runs: Sequence[Run]) -> Iterator[tuple[Run, str, str]]:
    """Yields each run with its unique name and the folder of its unit pages, relative to report/."""
    for number, (run, name) in enumerate(named(runs)):
        yield run, name, f"runs/{safe(name)}/units/" if number else "units/"


def _pages(run: Run, summary: RunSummary) -> Iterator[UnitPage]:
    done = sorted((row for row in summary.rows if row.header), key=lambda row: row.investigation)

    def link(row: UnitRow, place: int) -> tuple[str, str] | None:
        """Returns file name and title of the page at that position; None if it is of another layer."""
        other = done[place] if 0 <= place < len(done) else None
        if other is None or (other.unit.target, other.unit.layer) != (row.unit.target, row.unit.layer):
            return None
        return other.page.rsplit("/", 1)[-1], other.name

    for place, row in enumerate(done):
        near = (link(row, place - 1), link(row, place + 1))
        yield UnitPage(run=run, row=row, near=near, made_from=_made_from(run, row, near))


def _made_from(run: Run, row: UnitRow, near: Neighbours) -> str:
    """Returns the cache key of a page; empty on an object store, where file times are not reliable."""
    root, own = run.investigations.local, run.files.local
    if root is None or own is None:
        return ""
    stem = f"{safe(row.unit.target)}/{safe(row.unit.layer)}/{row.unit.index}-{row.investigation.replicate}.parquet"
    paths = (root / "records" / stem, own / EVALUATION / stem)
    times = [path.stat().st_mtime_ns if path.exists() else 0 for path in paths]
    return dumps([design(), times, *near])


def _notes(files: Files) -> dict[str, Any]:
    try:
        return dict(json.loads(files.read(NOTES) or b"{}"))
    except (ValueError, TypeError):
        return {}


def _kept(files: Files, page: str, made_from: str, notes: dict[str, Any]) -> list[object] | None:
    """Returns the stored images of a page if it exists and its cache key is the same; otherwise None."""
    before: object = notes.get(page)
    if made_from and isinstance(before, list) and before[:1] == [made_from] and files.exists(f"report/{page}"):
        return cast(list[list[object]], before)[1]
    return None


def _write_sheet(files: Files, sheet: Sheet, notes: dict[str, Any]) -> None:
    if _kept(files, sheet.page, sheet.made_from, notes) is None:
        files.write(f"report/{sheet.page}", sheet.rendered())


def _write_page(files: Files, page: UnitPage, notes: dict[str, Any]) -> WrittenPage:
    name = f"report/{page.row.page}"
    kept = _kept(files, page.row.page, page.made_from, notes)
    if kept is not None:
        return WrittenPage(strip=tuple(uri for uri in map(str, kept) if uri.startswith(PREFIX)))
    try:
        record = page.run.record(page.row.investigation)
        evaluation = page.run.artifact(EVALUATION, page.row.investigation)
        thumbnails = Thumbnails(PAGE_BYTES)
        strip = top(record, thumbnails)
        view = evaluation_view(evaluation, thumbnails) if evaluation is not None else None
    except StoreError as error:
        files.write(name, render("damaged.html.j2", row=page.row, damage=error.message, top=_top(page)))
        return WrittenPage(damage=f"cannot be shown: {error.message}")
    files.write(name, _unit_page(page, record, view, strip, thumbnails))
    return WrittenPage(strip=strip)


def _unit_page(
    page: UnitPage, record: Record, evaluation: EvaluationView | None, strip: Sequence[str], thumbnails: Thumbnails
) -> bytes:
    return render(
        "unit.html.j2",
        row=page.row,
        record=record,
        costs=costs([page.row.header]),
        evidence=evidence_view(record, thumbnails),
        evaluation=evaluation,
        turns=list(conversation(record.turns, Viewer(record.images, Captions.of(record), thumbnails))),
        strip=strip,
        near=page.near,
        is_collage=bool(record.config.get("generator")) and record.config["generator"]["kind"] == "collage",
        top=_top(page),
    )


def _top(page: UnitPage) -> str:
    return "../" * page.row.page.count("/")


def _with_damage(summary: RunSummary, written: dict[str, WrittenPage]) -> RunSummary:
    """Returns the summary with the reasons why records could not be shown in its rows."""

    def row(one: UnitRow) -> UnitRow:
        damage = written[one.page].damage if one.page in written else ""
        return replace(one, damage=damage) if damage else one

    return replace(summary, rows=tuple(row(one) for one in summary.rows))
