"""The figures about the agents, in the index and as files beside it."""

from collections.abc import Mapping
from dataclasses import dataclass

from openmaia.figures.agents import Agents, convergence_csv, lengths_csv, usage_csv
from openmaia.figures.charts import Bars, Columns, columns, shares
from openmaia.store.files import Files

TOOLS = 24
"""Bars at most; the table beside the figure has all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """name: of its files. what: a column's unit, "" for bars. label: for who cannot see it."""

    name: str
    caption: str
    note: str
    label: str
    what: str
    chart: Bars | Columns
    table: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """folder: of the files, below report/."""

    folder: str
    figures: tuple[Figure, ...]


def shown(found: Agents, folder: str) -> Shown:
    """Empty where nothing is finished."""
    drawn = (_usage(found), _lengths(found), _convergence(found)) if found.investigations else ()
    return Shown(folder=folder, figures=tuple(figure for figure in drawn if figure is not None))


def write(files: Files, one: Shown, svg: Mapping[str, bytes]) -> None:
    """Each figure as it was rendered, and its numbers as a table. svg: by the figure's name."""
    for figure in one.figures:
        files.write(f"report/{one.folder}{figure.name}.csv", figure.table)
        files.write(f"report/{one.folder}{figure.name}.svg", svg[figure.name])


def _usage(found: Agents) -> Figure | None:
    if not found.usage:
        return None
    most = dict(list(found.usage.items())[:TOOLS])
    more = len(found.usage) - len(most)
    return Figure(
        name="tools",
        caption="Investigations that used each tool at least once",
        note=f"of {_investigations(found.investigations)}" + (f"; {more} more tools in the table" if more else ""),
        label="Share of investigations that used each tool at least once",
        what="",
        chart=shares(most),
        table=usage_csv(found),
    )


def _lengths(found: Agents) -> Figure | None:
    if not found.lengths:
        return None
    counts = {one.turns: one.investigations for one in found.lengths}
    turns = {turn: str(turn) for turn in range(min(1, *counts), max(counts) + 1)}
    messages = {one.turns: "–".join(map(str, dict.fromkeys(one.messages))) for one in found.lengths}
    return Figure(
        name="length",
        caption="Length of a conversation",
        note=f"median {found.turns:g} turns, {found.messages:g} messages",
        label="Number of investigations by number of turns and messages",
        what="turns",
        chart=columns(counts, {"turns": turns, "messages": messages}),
        table=lengths_csv(found),
    )


def _convergence(found: Agents) -> Figure | None:
    if not found.converged and not found.unlisted:
        return None
    turns = {turn: str(turn) for turn in range(1, max([*found.converged, 1]) + 1)}
    median = "" if found.convergence is None else f"median turn {found.convergence:g}"
    unlisted = f"{_investigations(found.unlisted)} listed it never in these words" if found.unlisted else ""
    return Figure(
        name="convergence",
        caption="Turn in which the final hypothesis first appeared",
        note="; ".join(part for part in (median, unlisted) if part),
        label="Number of investigations by the turn whose list of hypotheses first held the final labels",
        what="turn",
        chart=columns(found.converged, {"turn": turns}, ("never", found.unlisted)),
        table=convergence_csv(found),
    )


def _investigations(count: int) -> str:
    return f"{count} investigation{'s' if count != 1 else ''}"
