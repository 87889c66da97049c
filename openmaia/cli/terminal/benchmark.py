"""Prints the table of agents."""

from collections.abc import Sequence

from openmaia.analysis.benchmark import TABLE_MEASURES
from openmaia.cli.terminal.output import say, show_table
from openmaia.reporting.agents_table import AgentRow, show_value


def show_agents(rows: Sequence[AgentRow]) -> None:
    """Prints a column for each agent, and a row for each measure. Prints nothing without agents."""
    if not rows:
        return
    cells = [
        (measure.title, *(show_value(row.values[measure.name], measure.form) for row in rows))
        for measure in TABLE_MEASURES
    ]
    title = f"agents on {rows[0].units} units of {rows[0].known}"
    show_table(title, ("", *(row.agent for row in rows)), cells)
    say("intervals: 95 %; shares of units: Wilson; precision, recall and costs: bootstrap over units", dim=True)
    for measure in TABLE_MEASURES:
        say(f"{measure.title}: {measure.hint}", dim=True)
