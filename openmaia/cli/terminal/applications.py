"""Prints results of the applications: biases of a classifier, and Table 2 of the MAIA paper."""

from collections.abc import Sequence

from openmaia.cli.terminal.output import format_interval, say, show_table
from openmaia.recipes.bias.effects import BiasVerdict
from openmaia.recipes.bias.study import classes_without_claim
from openmaia.recipes.spurious.page import SeedEstimate, SpuriousTable
from openmaia.runs.run import Run


def show_biases(verdicts: Sequence[BiasVerdict], run: Run) -> None:
    """Prints the biases of a classifier that the agents of a run claimed, with the results of their tests."""
    if verdicts:
        columns = ("class", "context", "score", "logit (95 %)", "p adj.", "verdict")
        whole = ("class", "score", "logit (95 %)")
        show_table(f"biases of {run.name}", columns, map(_bias, verdicts), left=len(columns), whole=whole)
        by = ", ".join(sorted({name for verdict in verdicts for name in verdict.effect.confirmed_by}))
        say(f"score, logit: with the context minus without it, on matched images; class confirmed by: {by}", dim=True)
    silent = len(classes_without_claim(run))
    say(f"{silent} classes without a claim" if silent != 1 else "1 class without a claim")


def _bias(verdict: BiasVerdict) -> list[str]:
    effect = verdict.effect
    return [
        verdict.name,
        effect.context.label,
        f"{effect.score.mean:+.3f}" if effect.score else "",
        format_interval(effect.raw, "+.2f"),
        "" if verdict.adjusted is None else f"{verdict.adjusted:.2g}",
        verdict.outcome,
    ]


def show_spurious(table: SpuriousTable) -> None:
    """Prints our results for Table 2 of the MAIA paper, and those of the paper in a separate column."""
    say(f"accuracy with the places of the training: {_accuracy(table.seen)}; exchanged: {_accuracy(table.shifted)}")
    cells = [
        (
            f"{row.subset}{', balanced' if row.is_balanced else ''}",
            row.selection,
            "" if row.units is None else f"{row.units:g}",
            "none selective" if row.accuracy is None else _accuracy(row.accuracy),
            f"{row.published.accuracy:.3f} ({row.published.units})" if row.published else "",
        )
        for row in table.rows
    ]
    numbers = ("units", "accuracy (95 %)", "published")
    show_table("", ("units of", "selected by", *numbers), cells, left=2, whole=numbers)
    say(
        "balanced: fitted on balanced validation images. published: accuracy (units) in the MAIA paper, Spawrious "
        "O2O-Easy with ResNet-18; another data set and network if none was given",
        dim=True,
    )


def _accuracy(estimate: SeedEstimate) -> str:
    interval = "" if estimate.low is None else f" ({estimate.low:.3f} to {estimate.high:.3f})"
    return f"{estimate.mean:.3f}{interval}"
