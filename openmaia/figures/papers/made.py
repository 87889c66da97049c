"""The papers' figures and tables from our runs and the published numbers."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from openmaia.evaluate.bootstrap import Interval
from openmaia.evaluate.levels import Level
from openmaia.evaluate.sanity import warning
from openmaia.figures.papers import bars as bar_chart
from openmaia.figures.papers import levels as level_chart
from openmaia.figures.papers import published
from openmaia.figures.papers.bars import Bar, Bars
from openmaia.figures.papers.levels import Group, Row
from openmaia.figures.papers.measured import TITLES, Measured
from openmaia.figures.papers.published import AVERAGE, PublishedLevel
from openmaia.figures.papers.table import Cell, Table
from openmaia.figures.scene import Scene

OURS, PAPER = "ours", "paper"
NAN = float("nan")

LEVELS = (
    "source", "network", "layer", "name", "units", "units_of_the_papers",
    "positive", "positive_low", "positive_high", "neutral", "neutral_low", "neutral_high", "printed_in",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class PaperFigure:
    """name: of its files."""

    name: str
    title: str
    scene: Scene
    table: Table


def figures(runs: Sequence[Measured]) -> tuple[PaperFigure, ...]:
    """Figures 2a, 2b and 2c, tables A3 and A5, in this order. Runs without evaluations or records are left out of what
    needs them."""
    return (_networks(runs), _usage(runs), _lengths(runs), _layers(runs), _ablation(runs))


# -- positive and neutral ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A row of a chart of levels and of its table, as it comes from a run or a paper."""

    network: str
    layer: str
    row: Row
    cells: tuple[Cell, ...]


def _networks(runs: Sequence[Measured]) -> PaperFigure:
    ours = [_line(run, AVERAGE, run.levels.whole, run.label) for run in runs]
    theirs = [_printed(one) for one in published.levels() if one.layer == AVERAGE]
    return _of_levels(
        "figure-2a",
        "Figure 2a: activations to positive and neutral images, per network and backbone",
        [*ours, *theirs],
        lambda line: line.network,
        _notes(runs, theirs),
    )


def _layers(runs: Sequence[Measured]) -> PaperFigure:
    ours = [_line(run, layer, level, run.label) for run in runs for layer, level in run.levels.layers.items()]
    theirs = [_printed(one) for one in published.levels() if one.layer != AVERAGE]
    return _of_levels(
        "table-a3",
        "Table A3: activations to positive and neutral images, per layer",
        [*ours, *theirs],
        lambda line: f"{line.network}, {line.layer}",
        _notes(runs, theirs),
    )


def _ablation(runs: Sequence[Measured]) -> PaperFigure:
    ours = [_line(run, AVERAGE, run.levels.whole, f"{run.tools} ({run.name})") for run in runs]
    theirs = [_printed(one) for one in published.ablations()]
    return _of_levels(
        "table-a5",
        "Table A5: activations to positive and neutral images, by the agent's tools",
        [*ours, *theirs],
        lambda line: line.network,
        (*_notes(runs, theirs), "The paper's rows are a quarter of its units, those that experts labelled too."),
    )


def _line(run: Measured, layer: str, level: Level, name: str) -> Line:
    positive, neutral = level["positive"], level["neutral"]
    layers = list(run.levels.units) if layer == AVERAGE else [layer]
    of_papers = [run.papers_units(one) for one in layers]
    count = sum(len(run.levels.units[one]) for one in layers)
    cells: tuple[Cell, ...] = (
        OURS, run.title, layer, name, count, None if None in of_papers else sum(one or 0 for one in of_papers),
        positive.mean, positive.low, positive.high, neutral.mean, neutral.low, neutral.high, "",
    )  # fmt: skip
    row = Row(name=name, positive=positive, neutral=neutral, is_published=False)
    return Line(network=run.title, layer=layer, row=row, cells=cells)


def _printed(one: PublishedLevel) -> Line:
    positive, neutral = (Interval(mean=value, low=NAN, high=NAN) for value in (one.positive, one.neutral))
    title = TITLES[one.network]
    cells: tuple[Cell, ...] = (
        PAPER, title, one.layer, one.method, one.units or None, one.units or None,
        one.positive, None, None, one.neutral, None, None, f"{one.source}; {one.note}" if one.note else one.source,
    )  # fmt: skip
    row = Row(name=f"paper: {one.method}", positive=positive, neutral=neutral, is_published=True)
    return Line(network=title, layer=one.layer, row=row, cells=cells)


def _of_levels(
    name: str, title: str, lines: Sequence[Line], heading: Callable[[Line], str], notes: tuple[str, ...]
) -> PaperFigure:
    """Networks in the papers' order, then others; layers of a network in the order of the table."""
    drawn = [line for line in lines if math.isfinite(line.row.positive.mean)]
    networks = list(dict.fromkeys([*TITLES.values(), *(line.network for line in drawn)]))
    layers = list(dict.fromkeys(one.layer for one in published.levels()))
    places = {layer: at for at, layer in enumerate(layers)}
    drawn.sort(key=lambda line: (networks.index(line.network), places.get(line.layer, -1), line.layer))
    titles = dict.fromkeys(heading(line) for line in drawn)
    groups = [
        Group(
            title=found,
            scale=next(line.network for line in drawn if heading(line) == found),
            rows=tuple(line.row for line in drawn if heading(line) == found),
        )
        for found in titles
    ]
    table = Table(caption=title, columns=LEVELS, rows=tuple(line.cells for line in drawn), notes=notes)
    return PaperFigure(name=name, title=title, scene=level_chart.chart(groups, title), table=table)


def _notes(runs: Sequence[Measured], theirs: Sequence[Line]) -> tuple[str, ...]:
    blind = warning("difference")
    return tuple(
        note
        for note in (
            "Rows of runs are ours, with 95 % bootstrap intervals over prompts and units; rows that begin with paper: are "
            "printed numbers.",
            *(f"{run.name}: {run.protocol}, images by {run.images}." for run in runs),
            "The papers' images came from other generators and prompts: compare rows of one source.",
            f"By our sanity tests positive minus neutral is {blind}." if blind else "",
            *sorted({f"Printed: {line.cells[-1]}." for line in theirs}),
        )
        if note
    )


# -- how the agents behaved --------------------------------------------------------------------------------------------


def _usage(runs: Sequence[Measured]) -> PaperFigure:
    found = [(at, run, run.usage()) for at, run in enumerate(runs)]
    tools = {tool: sum(usage[tool].mean for *_, usage in found if tool in usage) for *_, u in found for tool in u}
    groups = [
        Bars(
            title=tool,
            bars=tuple(
                Bar(name=run.who, value=usage[tool], text=f"{usage[tool].mean:.0%}", colour=at)
                for at, run, usage in found
                if tool in usage
            ),
        )
        for tool in sorted(tools, key=lambda tool: (-tools[tool], tool))
    ]
    rows = [
        (OURS, run.backbone, run.name, tool, one.mean, one.low, one.high, len(run.headers))
        for _, run, usage in found
        for tool, one in usage.items()
    ]
    title = "Figure 2b: share of investigations that used each tool at least once"
    notes = (
        "All rows are ours, with Wilson's 95 % interval. The paper shows these shares as a plot without numbers, so that "
        "none of its own stand here.",
    )
    columns = ("source", "backbone", "run", "tool", "share", "share_low", "share_high", "investigations")
    table = Table(caption=title, columns=columns, rows=tuple(rows), notes=notes)
    return PaperFigure(name="figure-2b", title=title, scene=bar_chart.chart(groups, title, 1.0), table=table)


def _lengths(runs: Sequence[Measured]) -> PaperFigure:
    ours = [(at, run, run.turns()) for at, run in enumerate(runs) if run.headers]
    bars = [
        Bar(name=run.who, value=mean, text=f"{mean.mean:.1f} (n = {len(run.headers)})", colour=at)
        for at, run, mean in ours
    ]
    bars += [
        Bar(
            name=f"paper: {one.backbone}",
            value=Interval(mean=one.turns, low=NAN, high=NAN),
            text=f"{one.bound} {one.turns:g}",
            is_published=True,
            is_vague=True,
        )
        for one in published.turns()
    ]
    rows = list(_length_rows(ours))
    title = "Figure 2c: mean number of turns of an investigation"
    notes = (
        "Rows of runs are ours, with a 95 % bootstrap interval; rows of the paper are read from its text, without interval.",
    )
    columns = ("source", "backbone", "run", "bound", "turns", "turns_low", "turns_high", "investigations", "printed_in")
    table = Table(caption=title, columns=columns, rows=tuple(rows), notes=notes)
    groups = [Bars(title="Turns", bars=tuple(bars))]
    return PaperFigure(name="figure-2c", title=title, scene=bar_chart.chart(groups, title), table=table)


def _length_rows(ours: Sequence[tuple[int, Measured, Interval]]) -> Iterator[tuple[Cell, ...]]:
    for _, run, mean in ours:
        yield OURS, run.backbone, run.name, "", mean.mean, mean.low, mean.high, len(run.headers), ""
    for one in published.turns():
        yield PAPER, one.backbone, "", one.bound, one.turns, None, None, None, one.source
