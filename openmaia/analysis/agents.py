"""Statistics of the agents of a run: use of tools and lengths, as in figure 2 of the OpenMAIA paper, and convergence."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import mean, median
from typing import Any

from openmaia.evaluation.analysis.bootstrap import Interval, mean_interval, share_interval
from openmaia.evaluation.scores import RESAMPLES
from openmaia.runs.run import InvestigationId

RecordSummary = Mapping[str, Any]
"""What `openmaia.runs.summary.summary` returns."""

CONDUCT = ("experiments", "tracebacks", "sent_back")
"""Counts of a summary that tell how well the agent works."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationLength:
    """The investigations with a certain number of turns."""

    turns: int
    messages: tuple[int, int]
    """Their least and largest number of messages."""
    investigations: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentStatistics:
    """Statistics of the agents of all finished investigations."""

    investigations: int
    usage: Mapping[str, Interval]
    """For each tool the share of investigations that called it, in descending order, with Wilson's interval."""
    calls: Mapping[str, int]
    lengths: tuple[ConversationLength, ...]
    """An entry for each number of turns that occurs, in ascending order."""
    converged: Mapping[int, int]
    """The number of investigations by the turn, from 1, in which they converged (see `Record.converged`)."""
    unlisted: int
    """The number of investigations with labels that never converged."""
    turns: float | None
    """Median; None without investigations."""
    mean_turns: float | None
    """As in figure 2 of the OpenMAIA paper; None without investigations."""
    messages: float | None
    """Median; None without investigations."""
    convergence: float | None
    """Median turn of those in `converged`."""
    conduct: Mapping[str, float]
    """Means of CONDUCT; empty without investigations."""


def compute_statistics(summaries: Sequence[RecordSummary]) -> AgentStatistics:
    """Computes the statistics from the summaries of records."""
    turns = [summary["converged"] for summary in summaries if summary["converged"] is not None]
    calls = sum((Counter[str](summary["tools"]) for summary in summaries), Counter[str]())
    return AgentStatistics(
        investigations=len(summaries),
        usage=_usage(summaries),
        calls=dict(sorted(calls.items())),
        lengths=_lengths(summaries),
        converged=dict(sorted(Counter(turns).items())),
        unlisted=sum(summary["converged"] is None and bool(summary["labels"]) for summary in summaries),
        turns=_median([summary["turns"] for summary in summaries]),
        mean_turns=mean(summary["turns"] for summary in summaries) if summaries else None,
        messages=_median([summary["messages"] for summary in summaries]),
        convergence=_median(turns),
        conduct={name: mean(summary[name] for summary in summaries) for name in CONDUCT} if summaries else {},
    )


def mean_turns(summaries: Sequence[RecordSummary], resamples: int) -> Interval | None:
    """Averages the number of turns of investigations; None without any."""
    turns = [float(summary["turns"]) for summary in summaries]
    return mean_interval(turns, resamples) if turns else None


def mean_confirmation(summaries: Sequence[RecordSummary]) -> Interval | None:
    """Averages the AUC of the contrasts that confirmed answers; None without any."""
    values = [summary["confirm_auc"] for summary in summaries if summary["confirm_auc"] is not None]
    return mean_interval(values, RESAMPLES) if values else None


def count_turns(
    ended: Mapping[InvestigationId, RecordSummary], begun: Mapping[InvestigationId, int]
) -> Mapping[str, int]:
    """Counts completed turns: in total, in running investigations, and in the longest of these.

    `begun` has the turns in the journals. An investigation in `ended` is not running, even if its journal still exists.
    """
    running = [turns for investigation, turns in begun.items() if investigation not in ended]
    total = sum(int(summary["turns"]) for summary in ended.values())
    return {
        "completed": total + sum(running),
        "of_running": sum(running),
        "longest_running": max(running, default=0),
    }


def _usage(summaries: Sequence[RecordSummary]) -> dict[str, Interval]:
    counts = Counter(tool for summary in summaries for tool in summary["tools"])
    ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return {tool: share_interval(count / len(summaries), len(summaries)) for tool, count in ranked}


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
