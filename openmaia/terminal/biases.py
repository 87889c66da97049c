"""What became of claimed biases, as a table."""

from collections.abc import Sequence

from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table

from openmaia.apps.bias.effects import Verdict
from openmaia.evaluate.bootstrap import Interval
from openmaia.store.run import Run
from openmaia.terminal.progress import console


def show_biases(found: Sequence[Verdict], run: Run) -> None:
    silent = len(run.done()) - len({verdict.owed for verdict in found})
    if found:
        shown = Table(
            title=f"biases of {escape(run.name)}", title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0)
        )
        for name, is_whole in (("class", True), ("context", False), ("score", True), ("logit (95 %)", True)):
            shown.add_column(name, overflow="fold", no_wrap=is_whole)
        for name in ("p adj.", "verdict"):
            shown.add_column(name)
        for one in found:
            adjusted = "" if one.adjusted is None else f"{one.adjusted:.2g}"
            verdict = "supported" if one.supported else "not supported" if one.effect.score else one.effect.outcome
            shown.add_row(
                escape(one.name),
                escape(one.effect.context.label),
                f"{one.effect.score.mean:+.3f}" if one.effect.score else "",
                _said(one.effect.raw),
                adjusted,
                verdict,
            )
        console.print(shown)
        by = ", ".join(sorted({name for one in found for name in one.effect.confirmed_by}))
        console.print(
            f"score, logit: with the context minus without it, on matched pictures; class confirmed by: {escape(by)}",
            style="dim",
            highlight=False,
        )
    console.print(f"{silent} classes without a claim" if silent != 1 else "1 class without a claim", highlight=False)


def _said(one: Interval | None) -> str:
    return "" if one is None else f"{one.mean:+.2f} ({one.low:+.2f} to {one.high:+.2f})"
