"""How reliable a run's descriptions are, as two tables."""

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
        names = ("units", "runs of one unit", "different units", "gap, by unit", "nearest is its own", "by chance")
        table = _table(f"agreement between investigations of {escape(run.name)}", "compared by", *names)
        for one in found.agreements:
            cells = [_interval(i) for i in (one.within, one.between, one.gap, one.identified)]
            table.add_row(escape(one.by), str(one.units), *cells, f"{one.chance:.2f}")
        console.print(table)
    if found.selective:
        heads = [f"{share:.0%}" for share in COVERAGES]
        table = _table("risk (1 minus AUC) of the most certain", "certain by", "units", *heads, "over all", "gain")
        for curve in found.selective:
            cells = [_interval(risk) for _, risk in curve.risks]
            table.add_row(escape(curve.by), str(curve.units), *cells, _interval(curve.area), _interval(curve.gain, "+"))
        console.print(table)
        console.print("intervals: 95 %, bootstrap over units", highlight=False, style="dim")


def _table(title: str, *columns: str) -> Table:
    made = Table(title=title, title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for at, column in enumerate(columns):
        made.add_column(column, justify="right" if at else "left", overflow="fold")
    return made


def _interval(found: Interval, sign: str = "") -> str:
    return "" if found.mean != found.mean else f"{found.mean:{sign}.2f} ({found.low:{sign}.2f}…{found.high:{sign}.2f})"
