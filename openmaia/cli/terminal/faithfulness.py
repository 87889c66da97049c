"""Prints how ablating units changes the class probabilities of a classifier."""

from openmaia.cli.terminal.output import format_interval, say, show_table
from openmaia.core.text import percent
from openmaia.evaluation.faithfulness import read_faithfulness
from openmaia.runs.run import Run


def show_faithfulness(run: Run) -> None:
    """Prints how ablating each unit of a run changes class probabilities. Prints nothing if this was not measured."""
    found = read_faithfulness(run)
    if found is None:
        return
    cells = [
        (
            f"{each.unit.layer}/{each.unit.index}",
            ", ".join(f"{one.name} {percent(one.fall, 1)}" for one in each.classes),
            f"{each.effect:.2g}, {each.neutral:.2g}",
            format_interval(each.auc),
            format_interval(each.difference, "+.2f"),
        )
        for each in found.units
    ]
    pooled = (format_interval(found.auc), format_interval(found.difference, "+.2f"))
    columns = ("unit", "supports", "effect", "AUC", "minus other")
    rows = [*cells, ("all", "", "", *pooled)]
    show_table(f"ablation of the units of {run.name}", columns, rows, left=2)
    say(
        "supports: classes that lose most probability on images of the description when the unit is ablated; effect: "
        "Kullback-Leibler divergence of the class probabilities, in nats, on these images and on neutral ones; AUC: how often "
        "it is larger on the former; other: the same with images of other units' descriptions",
        dim=True,
    )
