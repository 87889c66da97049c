"""Writes the table as a page, a chart and a CSV file, with the paper's numbers."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from markupsafe import Markup

from openmaia.config.schema import Config
from openmaia.core.components import of_config, target_class
from openmaia.recipes.spurious.study import StudyResult
from openmaia.recipes.spurious.table import SelectionRow, SpuriousTable, to_data_table
from openmaia.reporting.browser.pages import render
from openmaia.reporting.figures.row_chart import ChartRow, RowMark, point_key, row_chart
from openmaia.reporting.figures.style import NEUTRAL, POSITIVE, png, svg
from openmaia.runs.files import Files

_PAPER = "Spawrious O2O-Easy, ResNet-18 (MAIA paper, Table 2)"


def write(files: Files, config: Config, made: SpuriousTable, results: Sequence[StudyResult], backbone: str) -> Path:
    """Writes report/spurious.html, .svg, .png and .csv, and table.json. Returns the path of the page."""
    legend = [
        point_key(POSITIVE, False, f"ours: mean, 95 % over {len(results)} classifiers"),
        point_key(NEUTRAL, True, f"published: {_PAPER}"),
    ]
    chart = row_chart([[_chart_row(row) for row in made.rows]], legend, step=36, is_from_zero=False)
    drawn = svg(chart, "Accuracy on test images, in which the places are exchanged")
    files.write("report/spurious.csv", to_data_table(made).csv())
    files.write("report/spurious.png", png(chart))
    files.write("report/spurious.svg", drawn.encode())
    files.write("table.json", json.dumps(asdict(made)).encode())
    files.write("report/spurious.html", _page(config, made, results, drawn, backbone))
    return Path(files.path("report/spurious.html"))


def _page(config: Config, made: SpuriousTable, results: Sequence[StudyResult], drawn: Markup, backbone: str) -> bytes:
    settings = config.spurious
    return render(
        "spurious.html.j2",
        "openmaia.recipes.spurious",
        name=config.name,
        network=of_config(config.target, "target").title(config.target),
        backbone=backbone,
        remark="" if settings.folder else of_config(config.generator, "generator").remark(config.generator),
        is_drawn=not settings.folder,
        has_closed_vocabulary=of_config(config.backbone).tasks is not None,
        layer=target_class(config.target).layers(config.target)[0],
        pairs=list(zip(settings.classes, settings.train_locations, settings.test_locations, strict=True)),
        filler=settings.filler,
        table=made,
        results=results,
        drawn=drawn,
        names={row.name: f"{row.selection}{' (balanced)' if row.is_balanced else ''}" for row in made.rows},
        paper=_PAPER,
        settings=settings,
    )


def _chart_row(row: SelectionRow) -> ChartRow:
    marks: list[RowMark] = []
    if row.published is not None:
        marks.append(RowMark(value=row.published.accuracy, colour=NEUTRAL, is_published=True))
    if row.accuracy is not None:
        low, high = row.accuracy.low, row.accuracy.high
        interval = None if low is None or high is None else (low, high)
        marks.append(RowMark(value=row.accuracy.mean, interval=interval))
    balanced, units = ", balanced validation" if row.is_balanced else "", f", {row.units:g} units" if row.units else ""
    return ChartRow(
        label=row.selection,
        note=f"{row.subset}{balanced}{units}",
        text="" if row.accuracy is None else f"{row.accuracy.mean:.3f}",
        marks=tuple(marks),
        spread=row.spread,
    )
