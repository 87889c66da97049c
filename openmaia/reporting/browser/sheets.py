"""Contact sheets: pages with the top exemplars of the units of whole layers, without any run."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from openmaia.core.units import Unit
from openmaia.exemplars.store import ExemplarStore
from openmaia.reporting.browser.pages import render
from openmaia.reporting.browser.strips import make_strips
from openmaia.reporting.browser.thumbnails import Thumbnails
from openmaia.runs.files import safe

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
    number: int
    """From 1."""
    of: int
    """The number of sheets of the layer."""

    def rendered(self) -> bytes:
        """Renders the page as HTML that needs no other file."""
        rows = list(make_strips(self.store, self.units, Thumbnails(SHEET_BYTES)))
        return render(
            "sheet.html.j2",
            sheet=self,
            rows=rows,
            facts=self.store.manifest() or {},
            states=Counter(row.state for row in rows),
            near=(self._near(self.number - 1), self._near(self.number + 1)),
            is_masked=any(tile.picture.outline for row in rows for tile in row.tiles),
        )

    def _near(self, number: int) -> tuple[str, str] | None:
        return (f"{number}.html", f"sheet {number}") if 1 <= number <= self.of else None


def render_sheet(store: ExemplarStore, target: str, layer: str, units: Sequence[int]) -> bytes:
    """Renders a sheet of some units. Raises ValueError if there are more than _UNITS."""
    if len(units) > _UNITS:
        raise ValueError(f"{len(units)} units on one sheet; at most {_UNITS} are shown, so divide them")
    chosen = tuple(Unit(target=target, layer=layer, index=index) for index in units)
    return Sheet(store=store, target=target, layer=layer, units=chosen, number=1, of=1).rendered()


def write_sheets(store: ExemplarStore, target: str, layers: Sequence[str]) -> list[str]:
    """Writes sheets of all units of some layers to the folder of the exemplars, and returns each layer's first page."""
    first: list[str] = []
    for layer in dict.fromkeys(layers):
        units = [Unit(target=target, layer=layer, index=index) for index in sorted(store.states(layer))]
        parts = [tuple(units[at : at + _UNITS]) for at in range(0, len(units), _UNITS)]
        for number, part in enumerate(parts, start=1):
            made = Sheet(store=store, target=target, layer=layer, units=part, number=number, of=len(parts))
            page = f"sheets/{safe(layer)}/{number}.html"
            store.files.write(page, made.rendered())
            first += [store.files.path(page)] if number == 1 else []
    return first
