"""Computes statistics of the agents of a run from the summaries of its records: use of tools, lengths, convergence.

Figure 2 of the OpenMAIA paper shows the use of tools and lengths. The turn of convergence is our own measure.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from openmaia.reporting.figures.table import DataTable

RecordSummary = Mapping[str, Any]
"""The summary of a record, as `openmaia.runs.summary.summary` returns it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationLength:
    """The number of investigations with a certain number of turns."""

    turns: int
    messages: tuple[int, int]
    """The minimum and maximum number of messages of these investigations."""
    investigations: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentStatistics:
    """Statistics of the agents of all finished investigations."""

    investigations: int
    usage: Mapping[str, float]
    """For each tool the share of investigations that called it at least once, in descending order."""
    calls: Mapping[str, int]
    """The number of calls of each tool."""
    lengths: tuple[ConversationLength, ...]
    """An entry for each number of turns that occurs, in ascending order."""
    converged: Mapping[int, int]
    """For each turn (from 1) the number of investigations that first listed all labels of their answer as hypotheses in
    it."""
    unlisted: int
    """The number of investigations whose answer has labels that no single list of hypotheses contained."""
    turns: float | None
    """Median number of turns; None without investigations."""
    messages: float | None
    """Median number of messages of a conversation; None if no record has this number."""
    convergence: float | None
    """Median of the turns that first listed all labels of the answer; None if no turn did."""


def agents(summaries: Sequence[RecordSummary]) -> AgentStatistics:
    """Computes statistics of the agents of a run from the summaries of its records.

    Summaries that an earlier version wrote may lack a field. They are left out of the statistics of this field.
    """
    known = [summary for summary in summaries if summary.get("messages") is not None]
    turns = [summary["converged"] for summary in known if summary["converged"] is not None]
    calls = sum((Counter[str](summary["tools"]) for summary in summaries), Counter[str]())
    return AgentStatistics(
        investigations=len(summaries),
        usage=_usage(summaries),
        calls=dict(sorted(calls.items())),
        lengths=_lengths(known),
        converged=dict(sorted(Counter(turns).items())),
        unlisted=sum(summary["converged"] is None and bool(summary["labels"]) for summary in known),
        turns=_median([summary["turns"] for summary in summaries]),
        messages=_median([summary["messages"] for summary in known]),
        convergence=_median(turns),
    )


def usage_table(statistics: AgentStatistics) -> DataTable:
    """Returns a table of how many investigations used each tool, and how often."""
    rows = tuple((tool, share, statistics.calls[tool]) for tool, share in statistics.usage.items())
    return DataTable(columns=("tool", "share_of_investigations", "calls"), rows=rows)


def lengths_table(statistics: AgentStatistics) -> DataTable:
    """Returns a table of the lengths of conversations, with a row for each number of turns."""
    rows = tuple((length.turns, *length.messages, length.investigations) for length in statistics.lengths)
    return DataTable(columns=("turns", "messages_least", "messages_most", "investigations"), rows=rows)


def convergence_table(statistics: AgentStatistics) -> DataTable:
    """Returns a table of how many investigations converged in each turn.

    An investigation converges in the first turn that lists all labels of its answer as hypotheses. The last row counts
    those in which no turn did. Investigations whose answer has no labels are left out.
    """
    rows = (*statistics.converged.items(), (None, statistics.unlisted))
    return DataTable(columns=("turn", "investigations"), rows=rows)


def _usage(summaries: Sequence[RecordSummary]) -> dict[str, float]:
    counts = Counter(tool for summary in summaries for tool in summary["tools"])
    ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return {tool: count / len(summaries) for tool, count in ranked}


def _lengths(summaries: Sequence[RecordSummary]) -> tuple[ConversationLength, ...]:
    by_turns: dict[int, list[int]] = {}
    for summary in summaries:
        by_turns.setdefault(summary["turns"], []).append(summary["messages"])
    return tuple(
        ConversationLength(turns=turns, messages=(min(messages), max(messages)), investigations=len(messages))
        for turns, messages in sorted(by_turns.items())
    )


def _median(values: Sequence[float]) -> float | None:
    return median(values) if values else None
