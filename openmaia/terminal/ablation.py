"""The table of an ablation, and the paper's beside it."""

from collections.abc import Sequence

from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table

from openmaia.evaluate.ablation import Row
from openmaia.evaluate.bootstrap import Interval
from openmaia.figures.papers import published
from openmaia.terminal.progress import console


def show_ablation(name: str, found: Sequence[Row], generator: str) -> None:
    units = found[0].units if found else 0
    shown = _table(
        f"ablation of {escape(name)}, ours: {units} units, each under every tool set",
        ["tool set", "tested", "positive", "neutral", "AUC", "AUC minus full, paired"],
    )
    for row in found:
        cells = [row.name, str(row.tested), *map(_interval, (row.positive, row.neutral, row.auc))]
        shown.add_row(*cells, _interval(row.against, "+") if row.against else "")
    console.print(shown)
    console.print(
        f"tested with images of {escape(generator)}, whatever the agent had; abstentions count as chance in AUCs and not in means; "
        "95 % bootstrap intervals over prompts and units, crossed",
        highlight=False,
        style="dim",
    )
    theirs = _table(
        "published (MAIA, table A5): other units, images and agent; no intervals were printed",
        ["network", "tool set", "positive", "neutral"],
    )
    for cell in published.ablations():
        theirs.add_row(cell.network, cell.method, f"{cell.positive:.2f}", f"{cell.neutral:.2f}")
    console.print(theirs)


def _table(title: str, columns: Sequence[str]) -> Table:
    made = Table(title=title, title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for at, column in enumerate(columns):
        made.add_column(column, justify="left" if at == 0 or column == "tool set" else "right", overflow="fold")
    return made


def _interval(found: Interval, sign: str = "") -> str:
    if found.mean != found.mean:
        return "none"
    return f"{found.mean:{sign}.3g} ({found.low:{sign}.3g} to {found.high:{sign}.3g})"
