"""Contact sheets: pages with the highest exemplars of many units, of a run's or of whole layers."""

import urllib.parse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from openmaia.errors import StoreError, UsageError
from openmaia.figures.sheets import COLUMNS, SIDE, UNITS, strips
from openmaia.report.pages import Neighbours, SheetLinks, design, sheet_page
from openmaia.report.rows import Row
from openmaia.report.strips import shown
from openmaia.report.thumbnails import Thumbnails
from openmaia.store.exemplars import VERSION, ExemplarStore
from openmaia.store.files import safe
from openmaia.store.records import dumps
from openmaia.store.run import Run
from openmaia.units import Unit

SHEET_BYTES = 6_000_000
"""Of pictures on one sheet; photographs take less than half of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sheet:
    """One page. page: where it lies, below the folder of all pages. links: unit -> its own page, from that folder.
    number, of: among the sheets of the layer, from 1. run: whose index the page leads back to, "" for none."""

    store: ExemplarStore
    target: str
    layer: str
    units: tuple[Unit, ...]
    page: str
    number: int
    of: int
    links: Mapping[Unit, str] = field(default_factory=dict[Unit, str])
    run: str = ""

    @property
    def made_from(self) -> str:
        """Equal for equal pages; "" on an object store, whose times are no reliable order."""
        root = self.store.files.local
        if root is None:
            return ""
        paths = (root / f"{safe(self.layer)}.{name}.parquet" for name in ("units", "rows"))
        times = [path.stat().st_mtime_ns if path.exists() else 0 for path in paths]
        links = [[unit.index, self.links.get(unit)] for unit in self.units]
        return dumps([design(), COLUMNS, SIDE, times, links, self.number, self.of, self.run])

    def rendered(self) -> bytes:
        return sheet_page(
            target=self.target,
            layer=self.layer,
            rows=shown(strips(self.store, self.units), Thumbnails(SHEET_BYTES), self.links),
            facts=self.store.manifest() or {},
            near=Neighbours(before=self._near(self.number - 1), after=self._near(self.number + 1)),
            part=(self.number, self.of),
            run=self.run,
            top="../" * self.page.count("/"),
        )

    def _near(self, number: int) -> tuple[str, str] | None:
        return (f"{number}.html", f"sheet {number}") if 1 <= number <= self.of else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Exemplars:
    """Of one run. missing: why sheets are not there, "" where all are."""

    sheets: tuple[Sheet, ...] = ()
    missing: str = ""

    @property
    def links(self) -> SheetLinks:
        layers: dict[str, list[tuple[str, str]]] = {}
        for sheet in self.sheets:
            first, last = sheet.units[0].index, sheet.units[-1].index
            what = f"{len(sheet.units)} units" if sheet.of == 1 else f"{first} to {last}"
            # File names are percent-encoded themselves, so that they are encoded once more.
            layers.setdefault(sheet.layer, []).append((urllib.parse.quote(sheet.page), what))
        return SheetLinks(layers=layers, missing=self.missing)


def sheet(store: ExemplarStore, target: str, layer: str, units: Sequence[int]) -> bytes:
    """One HTML page that needs no other file. units: at most 64 indices."""
    if len(units) > UNITS:
        raise ValueError(f"{len(units)} units on one sheet; at most {UNITS} are shown, so divide them")
    chosen = tuple(Unit(target=target, layer=layer, index=index) for index in units)
    return Sheet(store=store, target=target, layer=layer, units=chosen, page="sheet.html", number=1, of=1).rendered()


def write_sheets(store: ExemplarStore, target: str, layers: Sequence[str]) -> list[str]:
    """Of all units of the layers, into the folder `sheets` beside the exemplars. Returns each layer's first page."""
    first: list[str] = []
    for layer in dict.fromkeys(layers):
        units = [Unit(target=target, layer=layer, index=index) for index in sorted(store.states(layer))]
        for made in _divided(store, target, layer, units, "sheets/"):
            store.files.write(made.page, made.rendered())
            first += [store.files.path(made.page)] if made.number == 1 else []
    return first


def of_run(run: Run, name: str, folder: str, rows: Sequence[Row]) -> Exemplars:
    """The sheets of all units of a run. folder: of the run's unit pages. The exemplars may be gone by now: a run keeps
    where they were."""
    links: dict[Unit, str] = {}
    for row in rows:
        links[row.unit] = links.get(row.unit) or row.href
    place, store, there = _store(run)
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
    return Exemplars(sheets=tuple(made), missing=missing if lacking else "")


def _store(run: Run) -> tuple[str, ExemplarStore | None, Sequence[str]]:
    """(where the exemplars were, they themselves if they are still there and of this version, their layers)."""
    config, place = run.config(), "the place that the run’s config names"
    try:
        target, dataset = config["target"]["name"], config["exemplars"]["dataset"] or config["pictures"]["kind"]
        place = f"{config['paths']['exemplars']}/{safe(target)}/{safe(dataset)}"
        store = ExemplarStore.at(config["paths"]["exemplars"], target, dataset)
        is_whole = (store.manifest() or {}).get("version") == VERSION
        return place, store if is_whole else None, store.layers() if is_whole else ()
    except (KeyError, TypeError, StoreError, UsageError, OSError):
        return place, None, ()


def _divided(
    store: ExemplarStore,
    target: str,
    layer: str,
    units: Sequence[Unit],
    folder: str,
    links: Mapping[Unit, str] | None = None,
    run: str = "",
) -> Iterator[Sheet]:
    parts = [tuple(units[at : at + UNITS]) for at in range(0, len(units), UNITS)]
    for number, part in enumerate(parts, start=1):
        page = f"{folder}{safe(layer)}/{number}.html"
        own = {unit: links[unit] for unit in part if links and links[unit]}
        yield Sheet(
            store=store, target=target, layer=layer, units=part, page=page, number=number, of=len(parts), links=own, run=run,
        )  # fmt: skip
