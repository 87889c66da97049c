"""Table 2 in the terminal, ours and the published figures in columns of their own."""

from rich.box import SIMPLE_HEAD
from rich.table import Table as Shown

from openmaia.apps.spurious.table import Estimate, Table
from openmaia.terminal.progress import console


def show(found: Table) -> None:
    console.print(
        f"accuracy with the places of the training: {_text(found.seen)}; exchanged: {_text(found.shifted)}",
        highlight=False,
    )
    shown = Shown(box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for name in ("subset", "selection", "balanced"):
        shown.add_column(name)
    for name in ("units", "accuracy, 95 % interval", "published units", "published accuracy"):
        shown.add_column(name, justify="right")
    for row in found.rows:
        units = "" if row.units is None else f"{row.units:g}"
        ours = "no unit was found selective" if row.accuracy is None else _text(row.accuracy)
        theirs = (str(row.published.units), f"{row.published.accuracy:.3f}") if row.published else ("", "")
        shown.add_row(row.subset, row.selection, "yes" if row.is_balanced else "no", units, ours, *theirs)
    console.print(shown)
    console.print(
        "published: MAIA paper, Spawrious O2O-Easy with ResNet-18; another data set and network where none was given",
        style="dim",
        highlight=False,
    )


def _text(one: Estimate) -> str:
    return f"{one.mean:.3f}" if one.low is None else f"{one.mean:.3f} ({one.low:.3f} to {one.high:.3f})"
