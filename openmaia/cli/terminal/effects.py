"""Prints the tests of what answers say of the effects of units."""

from openmaia.cli.terminal.output import format_interval, say, show_table
from openmaia.core.text import percent
from openmaia.evaluation.effects import read_effects
from openmaia.runs.run import Run


def show_effects(run: Run) -> None:
    """Prints the test of each answer of a run that names classes. Prints nothing if none was tested."""
    found = read_effects(run)
    if found is None:
        return
    cells = [
        (
            f"{each.unit.layer}/{each.unit.index}",
            ", ".join(each.named),
            format_interval(each.auc),
            format_interval(each.difference, "+.2f"),
            f"{each.q:.2g}",
            "supported" if each.supported else "not supported",
        )
        for each in found.units
    ]
    pooled = (format_interval(found.auc), format_interval(found.difference, "+.2f"))
    columns = ("unit", "raises", "AUC", "minus random", "q", "verdict")
    show_table(f"effects of the units of {run.name}", columns, [*cells, ("all", "", *pooled, "", "")], left=2)
    shares = {"supported": found.supported, "answers of other units": found.shuffled}
    said = [
        f"{name}: {percent(share[0])} ({percent(share[1])} to {percent(share[2])})"
        for name, share in shares.items()
        if share
    ]
    say("; ".join(said))
    say(
        "raises: the classes that the answer names; AUC: how often one of them falls more than the other classes that "
        "answers of the layer name if the unit is ablated, on images of its description; random: the same with a random "
        "direction of the same norm in place of the unit; q: by assigning the answers to other units",
        dim=True,
    )
