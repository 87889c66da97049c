"""Figures 2a to 2c of the OpenMAIA paper, and tables A3 and A5 of the MAIA paper (arXiv 2404.14394), with our numbers.

The files in published/ hold the numbers of the papers in our own format. Each row names its source. None of our results
is computed from them.
"""

import csv
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from importlib.resources import files
from itertools import groupby
from typing import Any, cast

from markupsafe import Markup
from matplotlib.figure import Figure

from openmaia.analysis.agents import AgentStatistics, compute_statistics, mean_turns
from openmaia.core.components import TargetComponent, stored
from openmaia.core.text import percent
from openmaia.evaluation.analysis.ablation import ToolSetResult
from openmaia.evaluation.analysis.bootstrap import Interval
from openmaia.evaluation.analysis.sanity import warning
from openmaia.evaluation.analysis.summary import LayerActivations, MeanActivations, run_scores
from openmaia.reporting.figures.row_chart import (
    ChartRow,
    RowChart,
    RowMark,
    bar_key,
    draw_beside,
    point_key,
    svg_beside,
)
from openmaia.reporting.figures.style import NEUTRAL, POSITIVE, RUNS, png
from openmaia.reporting.figures.table import DataTable, TableCell
from openmaia.reporting.image_models import image_model, name_editor, name_image_model
from openmaia.runs.run import Run

AVERAGE = "average"
"""Stands for the layer in means over all units of a network."""

_SYNTHETIC = "synthetic"
_TITLES = {"resnet152": "ResNet-152", "dino_vits8": "DINO ViT-S/8", "clip_rn50": "CLIP RN50", _SYNTHETIC: "Synthetic units"}  # fmt: skip
"""The papers' names of networks by ours, in their order."""

_OURS, _PAPER = "ours", "paper"
_OUR_BARS = "ours, with 95 % interval"
_COLUMNS = (
    "source", "network", "layer", "name", "units", "units_of_the_papers",
    "positive", "positive_low", "positive_high", "neutral", "neutral_low", "neutral_high",
    "positive_over_images", "neutral_over_images", "printed_in",
)  # fmt: skip
_EFFECTS = ("positive", "neutral", "auc", "auc_all", "positive_against", "against", "against_all")


@cache
def published(table: str) -> tuple[Mapping[str, str], ...]:
    """Returns the rows of a table of the papers: predictive (A3, and averages over networks from the published code of
    OpenMAIA), ablation (A5), turns (of investigations, by backbone) or choices (table 1 of the MAIA paper).
    """
    return tuple(csv.DictReader(_text(f"{table}.csv").splitlines()))


@cache
def published_units() -> dict[str, dict[str, list[int]]]:
    """Returns the indices of the units that the papers evaluated, by network and layer."""
    return json.loads(_text("units.json"))


def _text(name: str) -> str:
    return (files("openmaia.reporting.figures") / "published" / name).read_text(encoding="utf-8")


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredRun:
    """The results and settings of a run that appear in the figures."""

    name: str
    network: str
    """A network of the papers, if the target is one with its default weights; empty otherwise."""
    title: str
    """The papers' name of the network, or its name in the config, followed by "(not in the papers)"."""
    backbone: str
    generator: str
    tools: str
    """See `name_tool_set`."""
    preset: str
    levels: LayerActivations
    agents: AgentStatistics
    turns: Interval | None

    @property
    def agent_label(self) -> str:
        """The run's label in charts about agents."""
        return f"{self.backbone} ({self.name})"


def measured(run: Run, name: str) -> MeasuredRun:
    """Reads what figures show of a run."""
    config, summaries = run.config(), run.headers()
    configured, resamples = config.get("target"), config["evaluate"]["bootstrap"]
    target = cast(Mapping[str, Any], configured if isinstance(configured, dict) else {})
    network = recognize_network(target)
    backbones = sorted({str(summary["backbone"]).split(" (", 1)[0] for summary in summaries})
    return MeasuredRun(
        name=name,
        network=network,
        title=_TITLES.get(network) or f"{target.get('name', '')} (not in the papers)",
        backbone=" and ".join(backbones) or str(config["backbone"].get("model") or config["backbone"]["kind"]),
        generator=image_model(config["generator"], "generator"),
        tools=name_tool_set(config),
        preset=config["evaluate"]["preset"],
        levels=run_scores(run, resamples).activations,
        agents=compute_statistics(summaries),
        turns=mean_turns(summaries, resamples),
    )


def recognize_network(target: Mapping[str, Any]) -> str:
    """Returns the network of the papers in a config's section `target`; empty if they did not study it with these weights."""
    found = stored(target, "target")
    name = cast(type[TargetComponent], found[0]).published_name(found[1]) if found else ""
    return name if name == _SYNTHETIC or name in published_units() else ""


def name_tool_set(config: Mapping[str, Any]) -> str:
    """Returns a name for the set of tools in a config, which for those of table A5 begins as in `published/ablation.csv`."""
    left_out = set(map(str, config.get("without") or ()))
    generator = name_image_model(config["generator"])
    if {"text2image", "edit_images"} <= left_out:
        return "exemplars only"
    if left_out == {"dataset_exemplars", "edit_images"}:
        return f"generation only ({generator})"
    if left_out == {"edit_images"}:
        return f"no editing ({generator})"
    if left_out:
        return f"without {', '.join(sorted(left_out))} ({generator})"
    return f"all tools ({generator}; edits by {name_editor(config)})"


@dataclass(frozen=True, kw_only=True)
class PaperFigure:
    """A chart that reproduces a figure or table of the papers, and a table of its numbers, ours and theirs."""

    name: str
    """The name of its files without suffix."""
    title: str
    chart: RowChart
    table: DataTable

    @cached_property
    def figure(self) -> Figure:
        """The figure, drawn."""
        return draw_beside([self.chart])

    @cached_property
    def svg(self) -> Markup:
        """The figure as SVG."""
        return svg_beside([self.chart], self.title)

    def documents(self, *, is_png: bool = True) -> Iterator[tuple[str, bytes]]:
        """Yields name and content of each file: SVG, CSV, LaTeX and, with `is_png`, PNG."""
        yield f"{self.name}.svg", self.svg.encode()
        if is_png:
            yield f"{self.name}.png", png(self.figure)
        yield f"{self.name}.csv", self.table.csv()
        yield f"{self.name}.tex", self.table.latex()


def paper_figures(runs: Sequence[MeasuredRun]) -> tuple[PaperFigure, ...]:
    """Draws figures 2a, 2b and 2c, and tables A3 and A5. A run without evaluations or records is left out of a figure."""
    labels = {run.name: f"{run.backbone}, {run.generator} ({run.name})" for run in runs}
    whole = [_our_line(run, AVERAGE, run.levels.whole, labels[run.name]) for run in runs]
    layers = [
        _our_line(run, layer, means, labels[run.name]) for run in runs for layer, means in run.levels.layers.items()
    ]
    tools = [_our_line(run, AVERAGE, run.levels.whole, f"{run.tools} ({run.name})") for run in runs]
    averages = [row for row in published("predictive") if row["layer"] == AVERAGE]
    by_layer = [row for row in published("predictive") if row["layer"] != AVERAGE]
    what = "activations to positive and neutral images"
    experts = "The paper's rows are a quarter of its units, those that experts labelled too."
    return (
        _activations("figure-2a", f"Figure 2a: {what}, per network and backbone", runs, whole, averages),
        _usage(runs),
        _lengths(runs),
        _activations("table-a3", f"Table A3: {what}, per layer", runs, layers, by_layer),
        _activations("table-a5", f"Table A5: {what}, by the agent's tools", runs, tools, published("ablation"), experts),
    )  # fmt: skip


def figure_2(figures: Sequence[PaperFigure]) -> list[RowChart]:
    """Returns the charts of figures 2a to 2c, the first three of `paper_figures`, which stand beside each other in the paper."""
    return [replace(each.chart, letter=letter) for each, letter in zip(figures[:3], "abc", strict=True)]


def _our_line(run: MeasuredRun, layer: str, means: MeanActivations, name: str) -> dict[str, Any]:
    tested = {each: set(units) for each, units in run.levels.units.items() if layer in (AVERAGE, each)}
    known = published_units().get(run.network)
    shared = known and sum(len(units.intersection(known.get(each, ()))) for each, units in tested.items())
    cells = (
        _OURS, run.title, layer, name, sum(map(len, tested.values())), shared,
        *means["positive"].as_list(), *means["neutral"].as_list(),
        means["positive_images"].mean, means["neutral_images"].mean, "",
    )  # fmt: skip
    return dict(zip(_COLUMNS, cells, strict=True))


def _their_line(row: Mapping[str, str]) -> dict[str, Any]:
    units = int(row["units"] or 0) or None
    cells = (
        _PAPER, _TITLES[row["network"]], row["layer"], row["method"], units, units, float(row["positive"]), None, None,
        float(row["neutral"]), None, None, None, None, "; ".join(filter(None, (row["source"], row["note"]))),
    )  # fmt: skip
    return dict(zip(_COLUMNS, cells, strict=True))


def _activations(
    name: str,
    title: str,
    runs: Sequence[MeasuredRun],
    ours: Sequence[dict[str, Any]],
    theirs: Sequence[Mapping[str, str]],
    note: str = "",
) -> PaperFigure:
    """Draws mean activations, with an axis for each network. The papers' networks and layers come first, in their order."""
    lines = [line for line in (*ours, *map(_their_line, theirs)) if line["positive"] is not None]
    networks = list(dict.fromkeys([*_TITLES.values(), *(line["network"] for line in lines)]))
    layers = {
        layer: place for place, layer in enumerate(dict.fromkeys(row["layer"] for row in published("predictive")))
    }
    lines.sort(key=lambda line: (networks.index(line["network"]), layers.get(line["layer"], -1), line["layer"]))
    panels: dict[str, list[ChartRow]] = {}
    for (network, layer), members in groupby(lines, lambda line: (line["network"], line["layer"])):
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
        *(f"{run.name}: protocol {run.preset}, images by {run.generator}." for run in runs),
        "The papers' images came from other generators and prompts: compare rows of one source.",
        f"By our sanity tests positive minus neutral is {failed}." if failed else "",
        *sorted({f"Printed: {line['printed_in']}." for line in lines if line["source"] == _PAPER}),
        note,
    )
    rows = tuple(tuple(line.values()) for line in lines)
    table = DataTable(caption=title, columns=_COLUMNS, rows=rows, notes=tuple(filter(None, notes)))
    return PaperFigure(name=name, title=title, chart=RowChart(panels=list(panels.values()), legend=legend), table=table)


def _level_row(line: dict[str, Any]) -> ChartRow:
    is_published = line["source"] == _PAPER
    marks = tuple(
        _mark(line[sign], line[f"{sign}_low"], line[f"{sign}_high"], colour, is_published)
        for sign, colour in (("neutral", NEUTRAL), ("positive", POSITIVE))
    )
    text = f"{line['positive']:.2f} / {line['neutral']:.2f}".replace("-", "−")
    label = f"paper: {line['name']}" if is_published else line["name"]
    return ChartRow(label=label, text=text, marks=marks, is_joined=True)


def _mark(value: float, low: float | None, high: float | None, colour: str, is_published: bool = False) -> RowMark:
    interval = None if low is None or high is None else (low, high)
    return RowMark(value=value, interval=interval, colour=colour, is_published=is_published)


def _usage(runs: Sequence[MeasuredRun]) -> PaperFigure:
    usages = [(run, RUNS[number % len(RUNS)], run.agents.usage) for number, run in enumerate(runs)]
    totals: Counter[str] = Counter()
    for *_, usage in usages:
        totals.update({tool: share.mean for tool, share in usage.items()})
    panel: list[ChartRow] = []
    for tool in sorted(totals, key=lambda tool: (-totals[tool], tool)):
        panel.append(ChartRow(label=tool, is_heading=True))
        for run, colour, usage in usages:
            if share := usage.get(tool):
                mark = _mark(share.mean, share.low, share.high, colour)
                panel.append(ChartRow(label=run.agent_label, text=percent(share.mean), marks=(mark,)))
    rows = tuple(
        (_OURS, run.backbone, run.name, tool, share.mean, share.low, share.high, run.agents.investigations)
        for run, _, usage in usages
        for tool, share in sorted(usage.items())
    )
    title = "Figure 2b: share of investigations that used each tool at least once"
    note = (
        "All rows are ours, with Wilson's 95 % interval. The paper shows these shares as a plot without numbers, so that "
        "none of its own stand here."
    )
    columns = ("source", "backbone", "run", "tool", "share", "share_low", "share_high", "investigations")
    table = DataTable(caption=title, columns=columns, rows=rows, notes=(note,))
    legend, ticks = [bar_key(RUNS[0], False, _OUR_BARS)], (0, 0.2, 0.4, 0.6, 0.8, 1)
    chart = RowChart(panels=[panel], legend=legend, step=22, is_bars=True, ticks=ticks, tick_format="{:.0%}")
    return PaperFigure(name="figure-2b", title=title, chart=chart, table=table)


def _lengths(runs: Sequence[MeasuredRun]) -> PaperFigure:
    panel = [ChartRow(label="Turns", is_heading=True)]
    rows: list[tuple[TableCell, ...]] = []
    for number, run in enumerate(runs):
        if turns := run.turns:
            count = run.agents.investigations
            mark = _mark(turns.mean, turns.low, turns.high, RUNS[number % len(RUNS)])
            panel.append(ChartRow(label=run.agent_label, text=f"{turns.mean:.1f} (n = {count})", marks=(mark,)))
            rows.append((_OURS, run.backbone, run.name, "", turns.mean, turns.low, turns.high, count, ""))
    for row in published("turns"):
        bound, number = row["bound"], float(row["turns"])
        mark = _mark(number, None, None, POSITIVE, is_published=True)
        panel.append(ChartRow(label=f"paper: {row['backbone']}", text=f"{bound} {number:g}", marks=(mark,)))
        rows.append((_PAPER, row["backbone"], "", bound, number, None, None, None, row["source"]))
    title = "Figure 2c: mean number of turns of an investigation"
    note = "Rows of runs are ours, with a 95 % bootstrap interval; rows of the paper are read from its text, without interval."
    columns = ("source", "backbone", "run", "bound", "turns", "turns_low", "turns_high", "investigations", "printed_in")
    table = DataTable(caption=title, columns=columns, rows=tuple(rows), notes=(note,))
    legend = [bar_key(RUNS[0], False, _OUR_BARS), bar_key(NEUTRAL, True, 'paper (published; "about" or "more than")')]
    chart = RowChart(panels=[panel], legend=legend, step=22, is_bars=True)
    return PaperFigure(name="figure-2c", title=title, chart=chart, table=table)


def ablation_csv(results: Sequence[ToolSetResult], network: str) -> bytes:
    """Returns a CSV table with a row for each of our sets of tools, and each row of table A5."""
    columns = ("source", "network", "tool_set", "units", "tested", *(f"{name}{end}" for name in _EFFECTS for end in ("", "_low", "_high")))  # fmt: skip
    rows: list[tuple[TableCell, ...]] = []
    for result in results:
        intervals: list[Interval | None] = [getattr(result, name) for name in _EFFECTS]
        ends = [end for interval in intervals for end in (interval.as_list() if interval else [None] * 3)]
        rows.append((_OURS, network, result.name, result.units, result.tested, *ends))
    for row in published("ablation"):
        head = (row["source"], row["network"], row["method"], None, None, float(row["positive"]), None, None)
        rows.append((*head, float(row["neutral"]), *[None] * (len(columns) - len(head) - 1)))
    return DataTable(columns=columns, rows=tuple(rows)).csv()
