"""Tables of the statistics of agents."""

from openmaia.evaluation.analysis.agents import AgentStatistics
from openmaia.reporting.figures.table import DataTable


def make_usage_table(statistics: AgentStatistics) -> DataTable:
    """Returns a table of how many investigations used each tool, and how often."""
    rows = tuple((tool, share.mean, statistics.calls[tool]) for tool, share in statistics.usage.items())
    return DataTable(columns=("tool", "share_of_investigations", "calls"), rows=rows)


def make_lengths_table(statistics: AgentStatistics) -> DataTable:
    """Returns a table with a row for each number of turns."""
    rows = tuple((length.turns, *length.messages, length.investigations) for length in statistics.lengths)
    return DataTable(columns=("turns", "messages_least", "messages_most", "investigations"), rows=rows)


def make_convergence_table(statistics: AgentStatistics) -> DataTable:
    """Returns a table of how many investigations converged in each turn. The last row counts those with labels that
    never did."""
    rows = (*statistics.converged.items(), (None, statistics.unlisted))
    return DataTable(columns=("turn", "investigations"), rows=rows)
