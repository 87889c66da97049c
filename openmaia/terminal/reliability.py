"""How reliable a run's descriptions are, as two tables: a column for each way to compare, or to be certain."""

from collections.abc import Sequence

from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table

from openmaia.evaluate.bootstrap import Interval
from openmaia.evaluate.certainty import kept
from openmaia.evaluate.selective import COVERAGES
from openmaia.store.run import Run
from openmaia.terminal.progress import console


def show_reliability(run: Run) -> None:
    found = kept(run)
    if found.agreements:
        table = _table(f"agreement between investigations of {escape(run.name)}", [one.by for one in found.agreements])
        table.add_row("runs of one unit", *(_interval(one.within) for one in found.agreements))
        table.add_row("runs of different units", *(_interval(one.between) for one in found.agreements))
        table.add_row("gap, unit by unit", *(_interval(one.gap, "+") for one in found.agreements))
        table.add_row("nearest run is its own unit's", *(_interval(one.identified) for one in found.agreements))
        table.add_row("the same by chance", *(f"{one.chance:.2f}" for one in found.agreements))
        table.add_row("units", *(str(one.units) for one in found.agreements))
        console.print(table)
    if found.selective:
        table = _table("risk (1 minus AUC) of the most certain, by", [curve.by for curve in found.selective])
        for at, share in enumerate(COVERAGES):
            table.add_row(f"{share:.0%} of units", *(_interval(curve.risks[at][1]) for curve in found.selective))
        table.add_row("mean over coverages", *(_interval(curve.area) for curve in found.selective))
        table.add_row("less than at random by", *(_interval(curve.gain, "+") for curve in found.selective))
        table.add_row("units", *(str(curve.units) for curve in found.selective))
        console.print(table)
    if not found.is_empty:
        console.print("intervals: 95 %, bootstrap over units", highlight=False, style="dim")


def _table(title: str, columns: Sequence[str]) -> Table:
    made = Table(title=title, title_justify="left", box=SIMPLE_HEAD, padding=(0, 2, 0, 0))
    made.add_column("", no_wrap=True)
    for column in columns:
        made.add_column(escape(column), justify="right", overflow="fold", min_width=16)
    return made


def _interval(found: Interval, sign: str = "") -> str:
    if found.mean != found.mean:
        return ""
    return f"{found.mean:{sign}.2f} ({found.low:{sign}.2f}…{found.high:{sign}.2f})"
