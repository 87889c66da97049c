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
        for name in (
            "class",
            "context",
            "effect on the score",
            "on the logit",
            "p, adjusted",
            "verdict",
            "class confirmed by",
        ):
            shown.add_column(name, overflow="fold")
        for one in found:
            adjusted = "" if one.adjusted is None else f"{one.adjusted:.3g}"
            verdict = "supported" if one.supported else "not supported" if one.effect.score else one.effect.outcome
            by = ", ".join(one.effect.confirmed_by)
            shown.add_row(
                escape(one.name),
                escape(one.effect.context.label),
                _said(one.effect.score),
                _said(one.effect.raw),
                adjusted,
                verdict,
                escape(by),
            )
        console.print(shown)
    console.print(f"{silent} classes without a claim" if silent != 1 else "1 class without a claim", highlight=False)


def _said(one: Interval | None) -> str:
    return "" if one is None else f"{one.mean:+.3f} ({one.low:+.3f} to {one.high:+.3f})"
