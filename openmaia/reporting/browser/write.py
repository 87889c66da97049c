"""Writes the report of one or several runs into the directory of the first run.

Pages and tiles of units are written only if they are outdated, all other files always.
"""

import gc
import hashlib
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import repeat
from pathlib import Path
from typing import Any

from openmaia.core.documents import parse_json
from openmaia.evaluation.metric import columns
from openmaia.models.text_embedding import TextEmbedding
from openmaia.reporting.browser.agents import make_chart_files
from openmaia.reporting.browser.data import make_data_files
from openmaia.reporting.browser.going import make_live_file
from openmaia.reporting.browser.pages import ASSETS, hash_templates, read_assets
from openmaia.reporting.browser.papers import make_papers_files
from openmaia.reporting.browser.publishing import Cleaner, Publication
from openmaia.reporting.browser.report import Report, read_times
from openmaia.reporting.browser.rows import RunSummary
from openmaia.reporting.browser.similar import SimilarUnits
from openmaia.reporting.browser.tiles import Tile, draw
from openmaia.reporting.browser.unit.page import UnitPage, render_unit
from openmaia.reporting.tables import UnitRow
from openmaia.runs.files import Files
from openmaia.runs.records import dumps
from openmaia.runs.run import Run

PAGE_BYTES = 1_200_000
"""Maximum size of all images on a page of a unit. `openmaia view`, which stores no page, allows more."""
PUBLISHED_BYTES = 500_000
"""That of a published page."""
_THREADS = 4
_NOTES = "report/pages.json"
"""The cache keys. Without it all pages are written again."""

Notes = dict[str, list[Any]]
"""For each page its cache key alone, and for each tile the key and whether there was an image."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenPage:
    """The page of a unit that was written or was current already."""

    note: list[Any]
    """Its entry in _NOTES; empty if it must be written again."""
    damage: str = ""
    """Why the page does not show the record; empty if it does."""


def write_report(runs: Sequence[Run], embed: TextEmbedding | None = None) -> Path:
    """Writes the report into the directory of the first run, and returns the path of the index.

    Without `embed`, similar descriptions are found by their words. Raises ValueError if there are no runs.
    """
    files = runs[0].files
    _write_files(files, Report(runs), embed, PAGE_BYTES)
    return Path(files.path("report/index.html"))


def write_publication(run: Run, publication: Publication, folder: Path, embed: TextEmbedding | None = None) -> Path:
    """Writes the report of a run for everybody into a folder, and returns the folder of its index.

    Images are smaller copies than those of a report on this machine, and what `publication` withholds and `Cleaner` finds is
    left out.
    """
    cleaner, root = Cleaner(run), folder / "report"
    _write_files(Files(str(folder)), Report([run], publication=publication), embed, PUBLISHED_BYTES)
    (folder / _NOTES).unlink()
    for path in root.rglob("*"):
        if path.is_file() and path.parent != root / ASSETS:
            data = path.read_bytes()
            if (clean := cleaner.clean(path.name, data)) != data:
                path.write_bytes(clean)
    return root


def _write_files(files: Files, report: Report, embed: TextEmbedding | None, allowance: int) -> None:
    written, tiles = _write_pages(files, report, allowance)
    summaries = [_with_damage(one, written) for one in report.summaries]
    figures = make_papers_files([(run, name) for run, name, _ in report.runs], report.tabs)
    for charts in report.charts.values():
        figures |= make_chart_files(charts)
    for name, data in (figures | {f"{ASSETS}/{name}": data for name, data in read_assets().items()}).items():
        files.write(f"report/{name}", data)

    def has_tile(row: UnitRow) -> bool:
        return tiles.get(f"{row.page.removesuffix('.html')}.webp", [None, False])[1]

    rows = [row for one in summaries for row in one.rows]
    for name, data in make_data_files(summaries, "", has_tile, report.lexicon, embed):
        files.write(f"report/data/{name}", data)
    files.write("report/data/live.js", make_live_file([] if report.publication else report.runs))
    similar = SimilarUnits(rows, embed, report.sources)
    for name in similar.names:
        files.write(f"report/data/{name}", similar.file(name) or b"")
    files.write("report/run.html", report.run_page())
    if len(report.runs) > 1:
        files.write("report/compare.html", report.compare_page())
    files.write("report/index.html", report.index())


def _write_pages(files: Files, report: Report, allowance: int) -> tuple[dict[str, WrittenPage], Notes]:
    notes = _notes(files)
    pages = report.pages
    gc.freeze()  # Otherwise each full garbage collection visits the rows of all units.
    try:
        with ThreadPoolExecutor(_THREADS) as pool:
            results = pool.map(_write_page, repeat(files), pages.values(), repeat(notes), repeat(allowance))
            written = dict(zip(pages, results, strict=True))
            tiles = list(pool.map(_write_tile, repeat(files), report.tiles.values(), repeat(notes)))
    finally:
        gc.unfreeze()
    drawn = dict(zip(report.tiles, tiles, strict=True))
    now = {path: page.note for path, page in written.items() if page.note} | drawn
    if now != notes:
        files.write(_NOTES, dumps(now).encode())
    return written, drawn


def _notes(files: Files) -> Notes:
    try:
        found = dict(parse_json(files.read(_NOTES) or b"{}"))
    except (ValueError, TypeError):
        return {}
    return {page: note for page, note in found.items() if isinstance(note, list)}


def _is_current(files: Files, page: str, made_from: str, notes: Notes) -> bool:
    before = notes.get(page, [])
    return bool(made_from) and before[:1] == [made_from] and files.exists(f"report/{page}")


def _write_tile(files: Files, tile: Tile, notes: Notes) -> list[Any]:
    """Returns the entry of the tile in _NOTES."""
    key, before = dumps(tile.made_from) if tile.made_from else "", notes.get(tile.path, [])
    if key and before == [key, False]:
        return before
    paths = tile.path, tile.marked_path
    if key and before == [key, True] and all(files.exists(f"report/{path}") for path in paths):
        return before
    shots = tile.shots() if tile.is_likely else []
    for path in paths if shots else ():
        files.write(f"report/{path}", draw(shots, is_marked=path == tile.marked_path))
    return [key, bool(shots)]


def _write_page(files: Files, page: UnitPage, notes: Notes, allowance: int) -> WrittenPage:
    key = _key(page)
    if _is_current(files, page.row.page, key, notes):
        return WrittenPage(note=notes[page.row.page])
    made = render_unit(page, allowance)
    files.write(f"report/{page.row.page}", made.html)
    return WrittenPage(note=[] if made.damage else [key], damage=made.damage)


def _key(page: UnitPage) -> str:
    """Returns the cache key of a page; empty if the page must always be written."""
    made_from = read_times(page)
    row, verdict = page.row, page.row.verdict
    shown = (row.run, verdict.reason, verdict.p, verdict.q, page.near_file, *page.near)
    return dumps([hash_templates(), _hash_columns(), made_from, *shown]) if made_from else ""


def _hash_columns() -> str:
    # Pages show all metrics, whose names would be the longest part of each key.
    return hashlib.sha256(dumps(columns()).encode()).hexdigest()[:16]


def _with_damage(summary: RunSummary, written: Mapping[str, WrittenPage]) -> RunSummary:
    def row(one: UnitRow) -> UnitRow:
        damage = written[one.page].damage if one.page in written else ""
        return replace(one, damage=damage) if damage else one

    return replace(summary, rows=tuple(row(one) for one in summary.rows))
