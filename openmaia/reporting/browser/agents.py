"""Charts of how the agents of a run worked, for run.html."""

from collections.abc import Iterator
from dataclasses import dataclass

from markupsafe import Markup

from openmaia.analysis.agents import AgentStatistics
from openmaia.reporting.figures.charts import draw_count_columns, draw_share_bars
from openmaia.reporting.figures.style import svg
from openmaia.reporting.figures.table import DataTable

_MAX_TOOLS = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentChart:
    """A chart with the table of its numbers."""

    name: str
    """The name of its files without suffix."""
    caption: str
    note: str
    """A remark below the chart."""
    svg: Markup
    table: DataTable


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentCharts:
    """The charts of one run, and the folder of their files."""

    folder: str
    """Relative to report/, with a slash at the end."""
    charts: tuple[AgentChart, ...]


def draw_agent_charts(statistics: AgentStatistics, folder: str) -> AgentCharts:
    """Draws use of tools, lengths of conversations, and convergence. A chart without data is left out.

    An investigation converges in the first turn that lists all labels of its answer as hypotheses.
    """
    charts = (_usage(statistics), _lengths(statistics), _convergence(statistics)) if statistics.investigations else ()
    return AgentCharts(folder=folder, charts=tuple(chart for chart in charts if chart is not None))


def make_chart_files(charts: AgentCharts) -> dict[str, bytes]:
    """Returns each chart as SVG and CSV, by path relative to report/."""
    made: dict[str, bytes] = {}
    for chart in charts.charts:
        made[f"{charts.folder}{chart.name}.csv"] = chart.table.csv()
        made[f"{charts.folder}{chart.name}.svg"] = chart.svg.encode()
    return made


def _usage(statistics: AgentStatistics) -> AgentChart | None:
    if not statistics.usage:
        return None
    shown = {tool: share.mean for tool, share in list(statistics.usage.items())[:_MAX_TOOLS]}
    more = len(statistics.usage) - len(shown)
    return AgentChart(
        name="tools",
        caption="Investigations that used each tool at least once",
        note=f"of {_investigations(statistics.investigations)}" + (f"; {more} more tools in the table" if more else ""),
        svg=svg(draw_share_bars(shown), "Share of investigations that used each tool at least once"),
        table=_usage_table(statistics),
    )


def _lengths(statistics: AgentStatistics) -> AgentChart | None:
    if not statistics.lengths:
        return None
    counts = {length.turns: length.investigations for length in statistics.lengths}
    turns = {turn: str(turn) for turn in range(min(1, *counts), max(counts) + 1)}
    messages = {length.turns: "–".join(map(str, dict.fromkeys(length.messages))) for length in statistics.lengths}
    chart = draw_count_columns(counts, {"turns": turns, "messages": messages})
    return AgentChart(
        name="length",
        caption="Length of a conversation",
        note=f"median {statistics.turns:g} turns, {statistics.messages:g} messages",
        svg=svg(chart, "Number of investigations by number of turns and messages"),
        table=_lengths_table(statistics),
    )


def _convergence(statistics: AgentStatistics) -> AgentChart | None:
    if not statistics.converged and not statistics.unlisted:
        return None
    turns = {turn: str(turn) for turn in range(1, max([*statistics.converged, 1]) + 1)}
    chart = draw_count_columns(statistics.converged, {"turn": turns}, ("never", statistics.unlisted))
    return AgentChart(
        name="convergence",
        caption="Turn in which the final hypothesis first appeared",
        note="; ".join(_convergence_notes(statistics)),
        svg=svg(chart, "Number of investigations by the turn whose hypotheses first held the final labels"),
        table=_convergence_table(statistics),
    )


def _convergence_notes(statistics: AgentStatistics) -> Iterator[str]:
    if statistics.convergence is not None:
        yield f"median turn {statistics.convergence:g}"
    if statistics.unlisted:
        yield f"{_investigations(statistics.unlisted)} listed it never in these words"


def _usage_table(statistics: AgentStatistics) -> DataTable:
    rows = tuple((tool, share.mean, statistics.calls[tool]) for tool, share in statistics.usage.items())
    return DataTable(columns=("tool", "share_of_investigations", "calls"), rows=rows)


def _lengths_table(statistics: AgentStatistics) -> DataTable:
    rows = tuple((length.turns, *length.messages, length.investigations) for length in statistics.lengths)
    return DataTable(columns=("turns", "messages_least", "messages_most", "investigations"), rows=rows)


def _convergence_table(statistics: AgentStatistics) -> DataTable:
    """The last row counts investigations with labels that never converged."""
    rows = (*statistics.converged.items(), (None, statistics.unlisted))
    return DataTable(columns=("turn", "investigations"), rows=rows)


def _investigations(count: int) -> str:
    return f"{count} investigation{'s' if count != 1 else ''}"
