"""Draws the figures and tables of the MAIA papers from the numbers of our runs and those that the papers print."""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import Any

from markupsafe import Markup
from matplotlib.figure import Figure

from openmaia.evaluation.analysis.sanity import warning
from openmaia.evaluation.analysis.summary import MeanActivations
from openmaia.reporting.figures import style
from openmaia.reporting.figures.papers import published
from openmaia.reporting.figures.papers.measured import TITLES, MeasuredRun
from openmaia.reporting.figures.papers.published import AVERAGE, PublishedLevel
from openmaia.reporting.figures.row_chart import ChartRow, RowMark, bar_key, point_key, row_chart
from openmaia.reporting.figures.style import NEUTRAL, POSITIVE, RUNS, svg
from openmaia.reporting.figures.table import DataTable, TableCell

_OURS, _PAPER = "ours", "paper"
_OUR_BARS = "ours, with 95 % interval"

_LEVELS = (
    "source", "network", "layer", "name", "units", "units_of_the_papers",
    "positive", "positive_low", "positive_high", "neutral", "neutral_low", "neutral_high",
    "positive_over_images", "neutral_over_images", "printed_in",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class PaperFigure:
    """A chart that reproduces a figure or table of the MAIA papers, and a table of its numbers, ours and theirs."""

    name: str
    """The name of its files without suffix."""
    title: str
    figure: Figure
    table: DataTable

    @cached_property
    def svg(self) -> Markup:
        """The figure as SVG."""
        return svg(self.figure, self.title)

    def documents(self, *, png: bool = True) -> Iterator[tuple[str, bytes]]:
        """Yields name and content of each file: SVG, CSV, LaTeX and, with `png`, PNG."""
        yield f"{self.name}.svg", self.svg.encode()
        if png:
            yield f"{self.name}.png", style.png(self.figure)
        yield f"{self.name}.csv", self.table.csv()
        yield f"{self.name}.tex", self.table.latex()


def paper_figures(runs: Sequence[MeasuredRun]) -> tuple[PaperFigure, ...]:
    """Draws figures 2a, 2b and 2c of the OpenMAIA paper and tables A3 and A5 of the MAIA paper, in this order.

    A run is left out of figures for which it has no evaluations or no records.
    """
    return (_networks(runs), _usage(runs), _lengths(runs), _layers(runs), _ablation(runs))


# -- positive and neutral activations ----------------------------------------------------------------------------------


def _networks(runs: Sequence[MeasuredRun]) -> PaperFigure:
    ours = [_our_level(run, AVERAGE, run.levels.whole, run.label) for run in runs]
    theirs = [_published_level(level) for level in published.levels() if level.layer == AVERAGE]
    title = "Figure 2a: activations to positive and neutral images, per network and backbone"
    return _activations("figure-2a", title, [*ours, *theirs], runs)


def _layers(runs: Sequence[MeasuredRun]) -> PaperFigure:
    ours = [_our_level(run, layer, means, run.label) for run in runs for layer, means in run.levels.layers.items()]
    theirs = [_published_level(level) for level in published.levels() if level.layer != AVERAGE]
    title = "Table A3: activations to positive and neutral images, per layer"
    return _activations("table-a3", title, [*ours, *theirs], runs)


def _ablation(runs: Sequence[MeasuredRun]) -> PaperFigure:
    ours = [_our_level(run, AVERAGE, run.levels.whole, f"{run.tools} ({run.name})") for run in runs]
    theirs = [_published_level(level) for level in published.ablations()]
    title = "Table A5: activations to positive and neutral images, by the agent's tools"
    note = "The paper's rows are a quarter of its units, those that experts labelled too."
    return _activations("table-a5", title, [*ours, *theirs], runs, note)


def _our_level(run: MeasuredRun, layer: str, means: MeanActivations, name: str) -> dict[str, Any]:
    positive, neutral = means["positive"], means["neutral"]
    layers = list(run.levels.units) if layer == AVERAGE else [layer]
    counts = [run.units_of_the_papers(one) for one in layers]
    cells = (
        _OURS, run.title, layer, name, sum(len(run.levels.units[one]) for one in layers),
        None if None in counts else sum(count or 0 for count in counts),
        positive.mean, positive.low, positive.high, neutral.mean, neutral.low, neutral.high,
        means["positive_images"].mean, means["neutral_images"].mean, "",
    )  # fmt: skip
    return dict(zip(_LEVELS, cells, strict=True))


def _published_level(level: PublishedLevel) -> dict[str, Any]:
    source = f"{level.source}; {level.note}" if level.note else level.source
    cells = (
        _PAPER, TITLES[level.network], level.layer, level.method, level.units or None, level.units or None,
        level.positive, None, None, level.neutral, None, None, None, None, source,
    )  # fmt: skip
    return dict(zip(_LEVELS, cells, strict=True))


def _activations(
    name: str, title: str, lines: Sequence[dict[str, Any]], runs: Sequence[MeasuredRun], note: str = ""
) -> PaperFigure:
    """Draws mean activations, with an axis for each network. The papers' networks and layers come first, in their
    order.

    `lines` have the keys _LEVELS. One whose `positive` is not finite is left out.
    """
    known = [line for line in lines if math.isfinite(line["positive"])]
    networks = list(dict.fromkeys([*TITLES.values(), *(line["network"] for line in known)]))
    layers = {layer: place for place, layer in enumerate(dict.fromkeys(level.layer for level in published.levels()))}
    known.sort(key=lambda line: (networks.index(line["network"]), layers.get(line["layer"], -1), line["layer"]))
    panels: dict[str, list[ChartRow]] = {}
    for (network, layer), members in groupby(known, lambda line: (line["network"], line["layer"])):
        heading = ChartRow(label=network if layer == AVERAGE else f"{network}, {layer}", is_heading=True)
        panels.setdefault(network, []).extend([heading, *map(_level_row, members)])
    legend = [
        point_key(POSITIVE, False, "ours: positive"),
        point_key(NEUTRAL, False, "ours: neutral (95 % intervals)"),
        point_key(POSITIVE, True, "paper: positive"),
        point_key(NEUTRAL, True, "paper: neutral (published)"),
    ]
    failed = warning("difference")
    notes = (
        "Rows of runs are ours, with 95 % bootstrap intervals over prompts and units; rows that begin with paper: are "
        "printed numbers. Units count equally, as in the papers; the columns over images count images equally, as in the "
        "published code.",
        *(f"{run.name}: {run.protocol}, images by {run.generator}." for run in runs),
        "The papers' images came from other generators and prompts: compare rows of one source.",
        f"By our sanity tests positive minus neutral is {failed}." if failed else "",
        *sorted({f"Printed: {line['printed_in']}." for line in known if line["source"] == _PAPER}),
        note,
    )
    cells = tuple(tuple(line.values()) for line in known)
    table = DataTable(caption=title, columns=_LEVELS, rows=cells, notes=tuple(filter(None, notes)))
    return PaperFigure(name=name, title=title, figure=row_chart(list(panels.values()), legend), table=table)


def _level_row(line: dict[str, Any]) -> ChartRow:
    is_published = line["source"] == _PAPER
    marks = tuple(
        _mark(line[sign], line[f"{sign}_low"], line[f"{sign}_high"], colour, is_published)
        for sign, colour in (("neutral", NEUTRAL), ("positive", POSITIVE))
    )
    text = f"{line['positive']:.2f} / {line['neutral']:.2f}".replace("-", "−")
    return ChartRow(
        label=f"paper: {line['name']}" if is_published else line["name"], text=text, marks=marks, is_joined=True
    )


def _mark(
    value: float, low: float | None, high: float | None, colour: str = NEUTRAL, is_published: bool = False
) -> RowMark:
    has_interval = low is not None and high is not None and math.isfinite(low)
    interval = (low or 0.0, high or 0.0) if has_interval else None
    return RowMark(value=value, interval=interval, colour=colour, is_published=is_published)


# -- how the agents behaved --------------------------------------------------------------------------------------------


def _usage(runs: Sequence[MeasuredRun]) -> PaperFigure:
    usages = [
        (run, RUNS[number % len(RUNS)], dict(sorted(run.agents.usage.items()))) for number, run in enumerate(runs)
    ]
    totals: Counter[str] = Counter()
    for *_, usage in usages:
        totals.update({tool: share.mean for tool, share in usage.items()})
    panel: list[ChartRow] = []
    for tool in sorted(totals, key=lambda tool: (-totals[tool], tool)):
        panel.append(ChartRow(label=tool, is_heading=True))
        panel += [
            ChartRow(
                label=run.agent_label,
                text=f"{usage[tool].mean:.0%}",
                marks=(_mark(usage[tool].mean, usage[tool].low, usage[tool].high, colour),),
            )
            for run, colour, usage in usages
            if tool in usage
        ]
    rows = tuple(
        (_OURS, run.backbone, run.name, tool, share.mean, share.low, share.high, run.agents.investigations)
        for run, _, usage in usages
        for tool, share in usage.items()
    )
    title = "Figure 2b: share of investigations that used each tool at least once"
    notes = (
        "All rows are ours, with Wilson's 95 % interval. The paper shows these shares as a plot without numbers, so that "
        "none of its own stand here.",
    )
    columns = ("source", "backbone", "run", "tool", "share", "share_low", "share_high", "investigations")
    table = DataTable(caption=title, columns=columns, rows=rows, notes=notes)
    ticks = (0, 0.2, 0.4, 0.6, 0.8, 1)
    chart = row_chart(
        [panel], [bar_key(RUNS[0], False, _OUR_BARS)], step=22, is_bars=True, ticks=ticks, tick_format="{:.0%}"
    )
    return PaperFigure(name="figure-2b", title=title, figure=chart, table=table)


def _lengths(runs: Sequence[MeasuredRun]) -> PaperFigure:
    panel = [ChartRow(label="Turns", is_heading=True)]
    rows: list[tuple[TableCell, ...]] = []
    for number, run in enumerate(runs):
        if turns := run.turns:
            count = run.agents.investigations
            mark = _mark(turns.mean, turns.low, turns.high, RUNS[number % len(RUNS)])
            panel.append(ChartRow(label=run.agent_label, text=f"{turns.mean:.1f} (n = {count})", marks=(mark,)))
            rows.append((_OURS, run.backbone, run.name, "", turns.mean, turns.low, turns.high, count, ""))
    for one in published.turns():
        mark = RowMark(value=one.turns, is_published=True)
        panel.append(ChartRow(label=f"paper: {one.backbone}", text=f"{one.bound} {one.turns:g}", marks=(mark,)))
        rows.append((_PAPER, one.backbone, "", one.bound, one.turns, None, None, None, one.source))
    title = "Figure 2c: mean number of turns of an investigation"
    notes = (
        "Rows of runs are ours, with a 95 % bootstrap interval; rows of the paper are read from its text, without interval.",
    )
    columns = ("source", "backbone", "run", "bound", "turns", "turns_low", "turns_high", "investigations", "printed_in")
    table = DataTable(caption=title, columns=columns, rows=tuple(rows), notes=notes)
    legend = [bar_key(RUNS[0], False, _OUR_BARS), bar_key(NEUTRAL, True, 'paper (published; "about" or "more than")')]
    return PaperFigure(
        name="figure-2c", title=title, figure=row_chart([panel], legend, step=22, is_bars=True), table=table
    )
