"""Runs against each other, a table per pair."""

from collections.abc import Sequence

from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table

from openmaia.evaluate.compared import MEASURES, Compared, Difference
from openmaia.evaluate.sanity import warning
from openmaia.terminal.progress import console


def show_comparison(pairs: Sequence[Compared]) -> None:
    for pair in pairs:
        title = f"{escape(pair.one)} minus {escape(pair.other)}"
        if pair.cause:
            console.print(f"{title}: not compared, {escape(pair.cause)}", highlight=False)
            continue
        shown = Table(
            title=f"{title}: {pair.units} units in both, {pair.alone[0]} and {pair.alone[1]} in one alone",
            title_justify="left",
            box=SIMPLE_HEAD,
            padding=(0, 1, 0, 0),
        )
        for name in ("", "units", pair.one, pair.other, "difference", "95 % interval", "p", "adjusted", ""):
            shown.add_column(escape(name), justify="right" if name else "left", overflow="fold")
        for one in pair.differences:
            shown.add_row(*_cells(one))
        console.print(shown)
        if pair.differing:
            console.print(f"configs differ in {escape(', '.join(pair.differing))}", highlight=False)
    if any(pair.differences for pair in pairs):
        console.print(
            "intervals: bootstrap over prompts and units, crossed; p: Wilcoxon's signed-rank test over units, adjusted for "
            "the false discovery rate over all rows",
            highlight=False,
            style="dim",
        )


def _cells(one: Difference) -> list[str]:
    return [
        MEASURES[one.measure],
        str(one.units),
        f"{one.one.mean:.3f}",
        f"{one.other.mean:.3f}",
        f"{one.difference.mean:+.3f}",
        f"{one.difference.low:+.3f} to {one.difference.high:+.3f}",
        "" if one.p is None else f"{one.p:.3g}",
        "" if one.adjusted is None else f"{one.adjusted:.3g}",
        warning(one.measure),
    ]
