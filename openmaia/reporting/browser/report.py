"""The pages and data files of a report about one or several runs, each rendered when it is asked for."""

import urllib.parse
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

from openmaia.analysis.search import WordNames, run_lexicon
from openmaia.evaluation.analysis.sanity import TESTS, judged_metrics, measured_results, warning
from openmaia.evaluation.metric import all_metrics
from openmaia.reporting.browser.agents import AgentCharts, draw_agent_charts
from openmaia.reporting.browser.compare import render_comparison
from openmaia.reporting.browser.pages import APPLICATIONS, CONTROL, LiveBox, render
from openmaia.reporting.browser.publishing import PUBLISHED_SIDE, Publication
from openmaia.reporting.browser.rows import RunSummary, summarize_run
from openmaia.reporting.browser.similar import name_similar_file
from openmaia.reporting.browser.tiles import Tile, make_tiles
from openmaia.reporting.browser.unit.page import Neighbours, UnitPage
from openmaia.reporting.browser.unit.pictures import Origin
from openmaia.reporting.browser.unit.shared import RunSources
from openmaia.reporting.tables import UnitRow, make_rows, name_runs
from openmaia.runs.files import safe
from openmaia.runs.run import EVALUATION, Run
from openmaia.runs.snapshot import Snapshot
from openmaia.runs.state import Unfinished
from openmaia.runs.votes import FOLDER as VOTES_FOLDER

_BEGUN = (Unfinished.RUNNING, Unfinished.FAILED)
_SCRIPTS = ("dataTables.min.js", "units.js", "meaning.js", "wall.js", "table.js", "side.js", "index.js")


class Report:
    """The report of runs, which shows their state at the time of construction. Raises ValueError if there are no runs.

    It links to pages of `openmaia.recipes` in the directory of the first run. With `live`, a server renders it, and the
    index is updated while the runs continue, and units that are investigated have pages, too. `allows`
    says what readers may do (CONTROL, VOTES); with `box`, pages answer questions about pictures. With `publication`, it
    leaves out what must not be published, and pages of recipes.
    """

    def __init__(
        self,
        runs: Sequence[Run],
        *,
        live: bool = False,
        allows: Collection[str] = (),
        box: LiveBox | None = None,
        publication: Publication | None = None,
    ):
        if not runs:
            raise ValueError("no run was given; give at least one to report on")
        self.runs = list(_folders([Snapshot.of_run(run) for run in runs]))
        self.live, self.allows, self.box, self.publication = live, allows, box, publication
        self.sources = {name: RunSources(run) for run, name, _ in self.runs}
        self.summaries = [summarize_run(run, name, make_rows(run, name, folder)) for run, name, folder in self.runs]
        if publication:  # the progress says who gave orders
            self.summaries = [replace(one, progress="") for one in self.summaries]

    @cached_property
    def pages(self) -> dict[str, UnitPage]:
        """The page of each finished investigation by its path, relative to report/. With `live`, also of those that have
        begun."""
        made: dict[str, UnitPage] = {}
        for (run, *_), one in zip(self.runs, self.summaries, strict=True):
            count = sum(len(each.rows) for each in self.summaries)
            made |= {page.row.page: page for page in _pages(run, self.sources[one.name], one, count, self.box)}
            for row in (row for row in one.rows if self.live and row.stop in _BEGUN):
                page = UnitPage(
                    run=run, sources=self.sources[one.name], row=row, near=(None, None), near_file="", box=self.box
                )
                made[row.page] = page
        if self.publication:
            withheld, notes = frozenset(self.publication.withheld), self.publication.notes
            made = {
                path: replace(page, withheld=withheld, notes=notes, largest=PUBLISHED_SIDE)
                for path, page in made.items()
            }
        if self.live:
            made = {path: replace(page, is_served=True, allows=self.allows) for path, page in made.items()}
        return made

    @cached_property
    def tiles(self) -> dict[str, Tile]:
        """The images of each row on the wall, by the path of their file relative to report/."""
        made: dict[str, Tile] = {}
        if self.publication and Origin.DATASET in self.publication.withheld:
            return made
        for (run, *_), one in zip(self.runs, self.summaries, strict=True):
            made |= make_tiles(run, one.rows, self.sources[one.name].stored)
        return made

    @cached_property
    def lexicon(self) -> WordNames:
        """The words of the rules of all runs."""
        return {phrase: names for run, *_ in self.runs for phrase, names in run_lexicon(run.config()).items()}

    @cached_property
    def charts(self) -> dict[str, AgentCharts]:
        """The charts of how the agents worked, by the name of the run."""
        return {
            one.name: draw_agent_charts(one.agents, f"{folder.removesuffix('units/')}figures/")
            for (_, _, folder), one in zip(self.runs, self.summaries, strict=True)
        }

    @property
    def tabs(self) -> list[tuple[str, str]]:
        """Address and title of each page in the navigation, the index first."""
        files = self.runs[0][0].files
        pages = (
            [] if self.publication else [name.removeprefix("report/") for name in files.names(f"report/{APPLICATIONS}")]
        )
        applications = [(urllib.parse.quote(page), Path(page).stem.capitalize()) for page in pages if page.endswith(".html")]  # fmt: skip
        own = [("index.html", "Findings"), ("run.html", "Numbers, costs, agents")]
        several = [("compare.html", "Unit by unit")] if len(self.runs) > 1 else []
        return [*own, *several, ("papers.html", "Beside the papers"), *applications]

    def index(self) -> bytes:
        """Renders the first page."""
        layers = [sorted({row.unit.layer for row in one.rows}) for one in self.summaries]
        missing = [
            self.sources[one.name].stored.missing(each) for one, each in zip(self.summaries, layers, strict=True)
        ]
        return render(
            "index.html.j2",
            top="",
            scripts=(
                *_SCRIPTS,
                *(("live.js",) if self.box else ()),
                *(("control.js",) if CONTROL in self.allows else ()),
            ),
            styles=("wall.css", "live.css"),
            asks=CONTROL in self.allows or self.box is not None,
            box=self.box,
            control=CONTROL in self.allows,
            summaries=self.summaries,
            targets=sorted({target for one in self.summaries for target in one.targets}),
            layers=sorted({layer for each in layers for layer in each}),
            missing=[text for text in (self.publication.notes if self.publication else missing) if text],
            pages=self.tabs,
            live=self.live,
        )

    def compare_page(self) -> bytes:
        """Renders the page with the descriptions of the same units in several runs."""
        return render_comparison(self.summaries, self.tabs)

    def run_page(self) -> bytes:
        """Renders the page with means, costs, agents, reliability, and what metrics cannot see."""
        return render(
            "run.html.j2",
            top="",
            summaries=self.summaries,
            agents=self.charts,
            pages=self.tabs,
            blind={name: warning(name) for name in ("auc", "auc_minus_other", "difference")},
            tests=TESTS,
            sanity=[
                (all_metrics()[name].text, tests)
                for name in judged_metrics()
                if (tests := measured_results().get(name)) is not None
            ],
        )


def _folders(runs: Sequence[Run]) -> Iterator[tuple[Run, str, str]]:
    for number, (run, name) in enumerate(name_runs(runs)):
        yield run, name, f"runs/{safe(name)}/units/" if number else "units/"


def _pages(run: Run, sources: RunSources, one: RunSummary, count: int, box: LiveBox | None) -> Iterator[UnitPage]:
    done = sorted((row for row in one.rows if row.header), key=lambda row: row.investigation)

    def link(row: UnitRow, place: int) -> tuple[str, str] | None:
        other = done[place] if 0 <= place < len(done) else None
        if other is None or (other.unit.target, other.unit.layer) != (row.unit.target, row.unit.layer):
            return None
        return other.page.rsplit("/", 1)[-1], other.name

    for place, row in enumerate(done):
        near: Neighbours = (link(row, place - 1), link(row, place + 1))
        yield UnitPage(
            run=run, sources=sources, row=row, near=near, near_file=name_similar_file(row.page, count), box=box
        )


def read_times(page: UnitPage) -> list[Any]:
    """Returns the modification times in nanoseconds of the files that a page is made from; 0 for a missing file.

    Empty for a run on an object store, whose times are unreliable.
    """
    root, own = page.run.investigations.local, page.run.files.local
    if root is None or own is None:
        return []
    row = page.row
    stem = f"{safe(row.unit.target)}/{safe(row.unit.layer)}/{row.unit.index}-{row.investigation.replicate}.parquet"
    votes = root / VOTES_FOLDER / row.investigation.path
    paths = (root / "records" / stem, own / EVALUATION / stem, *(sorted(votes.iterdir()) if votes.is_dir() else ()))
    times = [path.stat().st_mtime_ns if path.exists() else 0 for path in paths]
    return times + page.sources.read_times(row.unit.layer)
