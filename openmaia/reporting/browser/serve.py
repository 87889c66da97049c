"""Serves the report of runs to browsers on the same machine. Pages are rendered on demand, and nothing is written."""

import mimetypes
import threading
from collections.abc import Callable, Collection, Sequence
from functools import partial

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from openmaia.core.errors import OpenMaiaError
from openmaia.models.text_embedding import TextEmbedding
from openmaia.reporting.browser.access import TokenAccess
from openmaia.reporting.browser.agents import make_chart_files
from openmaia.reporting.browser.ballots import make_vote_route
from openmaia.reporting.browser.data import make_data_files
from openmaia.reporting.browser.going import hash_state, make_live_file, make_turn_file
from openmaia.reporting.browser.orders import make_control_route
from openmaia.reporting.browser.pages import ASSETS, CONTROL, VOTES, LiveBox, read_assets
from openmaia.reporting.browser.papers import make_papers_files
from openmaia.reporting.browser.report import Report
from openmaia.reporting.browser.similar import SimilarUnits
from openmaia.reporting.browser.tiles import draw
from openmaia.reporting.browser.unit.page import render_unit
from openmaia.reporting.tables import name_runs
from openmaia.runs.run import Run
from openmaia.runs.state import counts

_HOSTS = ("127.0.0.1", "localhost")
"""The host names under which the server answers. Others are refused, as a protection against DNS rebinding."""
_TURNS = "data/turns/"
"""Folder of what `make_turn_file` says of each investigation."""
_VIEW_BYTES = 12_000_000
_EMPTY = bytes.fromhex("52494646240000005745425056503820180000003001009d012a0100010002003425a400037000fefb940000")
"""A WebP image of one pixel, served in place of a missing tile."""
HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Resource-Policy": "same-origin",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-store",
}
"""Of all answers."""


class LiveSite:
    """Makes the files of a report when they are requested, from the state of the runs at that time."""

    def __init__(
        self,
        runs: Sequence[Run],
        embed: TextEmbedding | None = None,
        *,
        allows: Collection[str] = (),
        box: LiveBox | None = None,
    ):
        self._runs, self._embed, self._allows, self._box = runs, embed, allows, box
        self._lock = threading.Lock()
        self._version: str = ""
        self._files: dict[str, Callable[[], bytes]] = {}
        self._figures: dict[str, bytes] = {}
        self._near: SimilarUnits | None = None
        self._refresh()

    def file(self, path: str) -> bytes | None:
        """Returns a file by its percent-decoded address, relative to the index; None if there is no such file."""
        if path == "data/live.js":
            named = zip(self._runs, self._report.runs, strict=True)  # The runs of the report do not change any more.
            return make_live_file([(run, name, folder) for run, (_, name, folder) in named])
        if path in ("", "index.html", "data/table.js") or path.startswith(_TURNS) or self._may_change(path):
            self._refresh()
        report = self._report
        if path.startswith(_TURNS):
            return self._turns(f"{path.removeprefix(_TURNS).removesuffix('.json')}.html")
        if path in report.pages:
            return render_unit(report.pages[path], _VIEW_BYTES).html
        if tile := report.tiles.get(f"{path.removesuffix('.webp').removesuffix('.part')}.webp"):
            return draw(tile.shots(), is_marked=path == tile.marked_path) or _EMPTY
        if path in {address for address, _ in report.tabs if address.startswith("applications/")}:
            return self._runs[0].files.read(f"report/{path}")
        if path.startswith("data/similar-"):
            return self._similar().file(path.removeprefix("data/"))
        made = self._files.get(path or "index.html")
        if made:
            return made()
        return self._figure(path) if path.startswith("papers") or "figures/" in path else None

    def _may_change(self, path: str) -> bool:
        """Returns whether a path may be that of a unit that has begun, or ended, since the last refresh."""
        page = self._report.pages.get(path)
        is_page = path.startswith(("units/", "runs/")) and path.endswith(".html")
        return is_page and (page is None or not page.row.header)

    def _turns(self, path: str) -> bytes | None:
        page, named = self._report.pages.get(path), zip(self._runs, self._report.runs, strict=True)
        run = next((run for run, (_, name, _) in named if page and name == page.row.run), None)
        return make_turn_file(run, page.row.investigation) if page and run else None

    def _refresh(self) -> None:
        with self._lock:
            version = hash_state(list(map(counts, self._runs)))
            if version == self._version:
                return
            report = Report(self._runs, live=True, allows=self._allows, box=self._box)
            tiles = {tile.row.page: tile.is_likely for tile in report.tiles.values()}
            tables = dict(
                make_data_files(report.summaries, version, lambda row: tiles[row.page], report.lexicon, self._embed)
            )
            fixed = {f"data/{name}": data for name, data in tables.items()}
            fixed |= {f"{ASSETS}/{name}": data for name, data in read_assets().items()}
            files: dict[str, Callable[[], bytes]] = {name: partial(bytes, data) for name, data in fixed.items()}
            files |= {"index.html": report.index, "run.html": report.run_page}
            if len(self._runs) > 1:
                files["compare.html"] = report.compare_page
            self._version, self._report, self._files = version, report, files
            self._figures, self._near = {}, None

    def _similar(self) -> SimilarUnits:
        with self._lock:
            if self._near is None:
                rows = [row for one in self._report.summaries for row in one.rows]
                self._near = SimilarUnits(rows, self._embed, self._report.sources)
            return self._near

    def _figure(self, path: str) -> bytes | None:
        """Returns papers.html or a file of a figure, all of which the first request makes; None if there is no such
        file."""
        report = self._report
        with self._lock:
            if not self._figures:
                self._figures = make_papers_files([(run, name) for run, name, _ in report.runs], report.tabs)
                for charts in report.charts.values():
                    self._figures |= make_chart_files(charts)
            return self._figures.get(path)


def application(
    runs: Sequence[Run],
    embed: TextEmbedding | None = None,
    token: str = "",
    *,
    allows: Collection[str] = (),
    live: LiveBox | None = None,
    routes: Sequence[Route] = (),
) -> Starlette:
    """Returns the ASGI application that serves the report of runs. It only reads, unless `allows` says what
    readers may do (CONTROL, VOTES). Raises ValueError if there are no runs, or if something is allowed without `token`.

    Without `token` everybody who reaches the server may read, see `TokenAccess`. With `live`, pages have a box for pictures
    and prompts, and `routes` answer its requests.
    """
    if allows and not token:
        raise ValueError("pages that give orders need a token")
    site = LiveSite(runs, embed, allows=allows, box=live)

    def answer(request: Request) -> Response:
        path: str = request.path_params["path"]
        try:
            data = site.file(path)
        except OpenMaiaError as error:
            return Response(error.message, 500, HEADERS, "text/plain")
        if data is None:
            return Response("There is no such page.", 404, HEADERS, "text/plain")
        kind = mimetypes.guess_type(path or "index.html")[0] or "application/octet-stream"
        return Response(data, 200, HEADERS, kind)

    takers = {CONTROL: make_control_route, VOTES: make_vote_route}
    orders = [takers[action](list(name_runs(runs)), HEADERS) for action in allows]
    pages = Route("/{path:path}", answer, methods=["GET"])
    middleware = [Middleware(TrustedHostMiddleware, allowed_hosts=list(_HOSTS))]
    middleware += [Middleware(TokenAccess, token=token, headers=HEADERS)] if token else []
    return Starlette(routes=[*orders, *routes, pages], middleware=middleware)
