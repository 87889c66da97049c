"""How the agents of a run behaved, from the summaries of its records: which tools, how long, when they had the answer.

The figures of the MAIA paper's second figure, and one of our own. A summary that lacks a field, being of an earlier
version, is left out of what needs it.
"""

import csv
import io
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

Header = Mapping[str, Any]
"""What `store.parquet.summary` says of a record."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Length:
    """investigations: how many had so many turns. messages: the fewest and the most that these took."""

    turns: int
    messages: tuple[int, int]
    investigations: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Agents:
    """Of all finished investigations. usage: tool -> share that called it at least once. converged: turn -> number whose
    final labels first stood in that turn's list of hypotheses; unlisted: of those with labels, in no list."""

    investigations: int
    usage: Mapping[str, float]
    calls: Mapping[str, int]
    lengths: tuple[Length, ...]
    converged: Mapping[int, int]
    unlisted: int
    turns: float | None
    """Medians; None where there is nothing."""
    messages: float | None
    convergence: float | None


def agents(headers: Sequence[Header]) -> Agents:
    known = [header for header in headers if header.get("messages") is not None]
    found = [h["converged"] for h in known if h["converged"] is not None]
    return Agents(
        investigations=len(headers),
        usage=usage(headers),
        calls=dict(sorted(sum((Counter[str](h["tools"]) for h in headers), Counter[str]()).items())),
        lengths=_lengths(known),
        converged=dict(sorted(Counter(found).items())),
        unlisted=sum(h["converged"] is None and bool(h["labels"]) for h in known),
        turns=_median([h["turns"] for h in headers]),
        messages=_median([h["messages"] for h in known]),
        convergence=_median(found),
    )


def usage(headers: Sequence[Header]) -> dict[str, float]:
    """Tool -> share of investigations that called it at least once, the largest first."""
    counts = Counter(tool for header in headers for tool in header["tools"])
    ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return {tool: count / len(headers) for tool, count in ranked}


def _lengths(headers: Sequence[Header]) -> tuple[Length, ...]:
    by_turns: dict[int, list[int]] = {}
    for header in headers:
        by_turns.setdefault(header["turns"], []).append(header["messages"])
    return tuple(
        Length(turns=turns, messages=(min(messages), max(messages)), investigations=len(messages))
        for turns, messages in sorted(by_turns.items())
    )


def _median(values: Sequence[float]) -> float | None:
    return median(values) if values else None


# -- the same as tables ----------------------------------------------------------------------------------------------


def usage_csv(found: Agents) -> bytes:
    rows = [[tool, f"{share:.6g}", found.calls[tool]] for tool, share in found.usage.items()]
    return _csv(["tool", "share_of_investigations", "calls"], rows)


def lengths_csv(found: Agents) -> bytes:
    rows = [[one.turns, *one.messages, one.investigations] for one in found.lengths]
    return _csv(["turns", "messages_least", "messages_most", "investigations"], rows)


def convergence_csv(found: Agents) -> bytes:
    """The turn is empty for investigations whose labels stand in no list."""
    return _csv(["turn", "investigations"], [*map(list, found.converged.items()), ["", found.unlisted]])


def _csv(names: Sequence[str], rows: Sequence[Sequence[object]]) -> bytes:
    """A text that a spreadsheet would take for a formula gets an apostrophe in front."""

    def plain(value: object) -> object:
        return f"'{value}" if isinstance(value, str) and value[:1] in tuple("=+-@\t\r") else value

    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(names)
    writer.writerows([[plain(value) for value in row] for row in rows])
    return buffer.getvalue().encode("utf-8", errors="replace")
