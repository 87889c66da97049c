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
    shown.add_column("units of")
    shown.add_column("selected by")
    for name in ("units", "accuracy (95 %)", "published"):
        shown.add_column(name, justify="right", no_wrap=True)
    for row in found.rows:
        units = "" if row.units is None else f"{row.units:g}"
        ours = "none selective" if row.accuracy is None else _text(row.accuracy)
        theirs = f"{row.published.accuracy:.3f} ({row.published.units})" if row.published else ""
        shown.add_row(f"{row.subset}{', balanced' if row.is_balanced else ''}", row.selection, units, ours, theirs)
    console.print(shown)
    console.print(
        "balanced: fitted on balanced validation pictures. published: accuracy (units) in the MAIA paper, Spawrious "
        "O2O-Easy with ResNet-18; another data set and network where none was given",
        style="dim",
        highlight=False,
    )


def _text(one: Estimate) -> str:
    return f"{one.mean:.3f}" if one.low is None else f"{one.mean:.3f} ({one.low:.3f}–{one.high:.3f})"
