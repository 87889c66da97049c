"""Contact sheets: pages with the top exemplars of the units of a run or of whole layers."""

import urllib.parse
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from openmaia.core.units import Unit
from openmaia.exemplars.store import ExemplarStore
from openmaia.reporting.browser.pages import hash_templates, render
from openmaia.reporting.browser.stores import find_store
from openmaia.reporting.browser.strips import STRIP_COLUMNS, STRIP_SIDE, make_strips
from openmaia.reporting.browser.thumbnails import Thumbnails
from openmaia.reporting.tables import UnitRow
from openmaia.runs.files import safe
from openmaia.runs.records import dumps
from openmaia.runs.run import Run

_UNITS = 64
"""Units of one sheet, so that the page has a few megabytes."""
SHEET_BYTES = 6_000_000
"""Maximum size of all images on a sheet. Photographs need less than half of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sheet:
    """A page with the top exemplars of some units of a layer."""

    store: ExemplarStore
    target: str
    layer: str
    units: tuple[Unit, ...]
    page: str
    """Relative to the folder into which pages are written: report/, or that of the exemplars."""
    number: int
    """From 1."""
    of: int
    """The number of sheets of the layer."""
    links: Mapping[Unit, str] = field(default_factory=dict[Unit, str])
    """The addresses of the units' own pages, relative to the same folder as `page`."""
    run: str = ""
    """The name of the run to whose index the page links; empty if it belongs to no run."""

    @property
    def made_from(self) -> str:
        """The cache key of the page. An empty one, on an object store, whose file times are not reliable, is never
        current."""
        root = self.store.files.local
        if root is None:
            return ""
        paths = (root / f"{safe(self.layer)}.{name}.parquet" for name in ("units", "rows"))
        times = [path.stat().st_mtime_ns if path.exists() else 0 for path in paths]
        links = [[unit.index, self.links.get(unit)] for unit in self.units]
        return dumps([hash_templates(), STRIP_COLUMNS, STRIP_SIDE, times, links, self.number, self.of, self.run])

    def rendered(self) -> bytes:
        """Renders the page as HTML."""
        rows = list(make_strips(self.store, self.units, Thumbnails(SHEET_BYTES), self.links))
        return render(
            "sheet.html.j2",
            sheet=self,
            rows=rows,
            facts=self.store.manifest() or {},
            states=Counter(row.state for row in rows),
            near=(self._near(self.number - 1), self._near(self.number + 1)),
            home="../" * self.page.count("/"),
            is_masked=any(tile.picture.outline for row in rows for tile in row.tiles),
        )

    def _near(self, number: int) -> tuple[str, str] | None:
        return (f"{number}.html", f"sheet {number}") if 1 <= number <= self.of else None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSheets:
    """The contact sheets of a run."""

    sheets: tuple[Sheet, ...] = ()
    missing: str = ""
    """Why some sheets are missing; empty if none are."""

    @property
    def layers(self) -> Mapping[str, Sequence[tuple[str, str]]]:
        """Address, relative to the index, and text of a link to each sheet, by layer."""
        layers: dict[str, list[tuple[str, str]]] = {}
        for sheet in self.sheets:
            first, last = sheet.units[0].index, sheet.units[-1].index
            what = f"{len(sheet.units)} units" if sheet.of == 1 else f"{first} to {last}"
            # File names contain percent signs, so that addresses must be percent-encoded.
            layers.setdefault(sheet.layer, []).append((urllib.parse.quote(sheet.page), what))
        return layers


def render_sheet(store: ExemplarStore, target: str, layer: str, units: Sequence[int]) -> bytes:
    """Renders a sheet as an HTML page that needs no other file. Raises ValueError if there are more than _UNITS units."""
    if len(units) > _UNITS:
        raise ValueError(f"{len(units)} units on one sheet; at most {_UNITS} are shown, so divide them")
    chosen = tuple(Unit(target=target, layer=layer, index=index) for index in units)
    return Sheet(store=store, target=target, layer=layer, units=chosen, page="sheet.html", number=1, of=1).rendered()


def write_sheets(store: ExemplarStore, target: str, layers: Sequence[str]) -> list[str]:
    """Writes sheets of all units of some layers to the folder of the exemplars, and returns each layer's first page."""
    first: list[str] = []
    for layer in dict.fromkeys(layers):
        units = [Unit(target=target, layer=layer, index=index) for index in sorted(store.states(layer))]
        for made in _divided(store, target, layer, units, "sheets/"):
            store.files.write(made.page, made.rendered())
            first += [store.files.path(made.page)] if made.number == 1 else []
    return first


def find_sheets(run: Run, name: str, folder: str, rows: Sequence[UnitRow]) -> RunSheets:
    """Returns the sheets of all units of a run, without layers whose exemplars no longer exist.

    `folder` is that of the run's unit pages, relative to report/.
    """
    links: dict[Unit, str] = {}
    for row in rows:
        links[row.unit] = links.get(row.unit) or row.href
    place, store, there = find_store(run)
    made: list[Sheet] = []
    lacking: list[str] = []
    for target, layer in dict.fromkeys((unit.target, unit.layer) for unit in links):
        if store is None or layer not in there:
            lacking.append(layer)
            continue
        units = sorted(unit for unit in links if (unit.target, unit.layer) == (target, layer))
        below = f"{folder.removesuffix('units/')}exemplars/{safe(target)}/"
        made += _divided(store, target, layer, units, below, links, name)
    missing = f"No exemplars of {', '.join(lacking)} are in {place} (any more), so there is no sheet of them."
    return RunSheets(sheets=tuple(made), missing=missing if lacking else "")


def _divided(
    store: ExemplarStore,
    target: str,
    layer: str,
    units: Sequence[Unit],
    folder: str,
    links: Mapping[Unit, str] | None = None,
    run: str = "",
) -> Iterator[Sheet]:
    parts = [tuple(units[at : at + _UNITS]) for at in range(0, len(units), _UNITS)]
    for number, part in enumerate(parts, start=1):
        page = f"{folder}{safe(layer)}/{number}.html"
        own = {unit: links[unit] for unit in part if links and links[unit]}
        yield Sheet(
            store=store, target=target, layer=layer, units=part, page=page, number=number, of=len(parts), links=own, run=run,
        )  # fmt: skip
