"""Averages the rows of Table 2 over all classifiers, and writes them as a page, a chart and a CSV file, with the paper's
numbers.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

import numpy as np
from markupsafe import Markup
from scipy import stats

from openmaia.config.schema import Config
from openmaia.core.components import of_config, target_class
from openmaia.recipes.spurious.rows import TABLE_ROWS
from openmaia.recipes.spurious.study import StudyResult
from openmaia.reporting.browser.pages import render
from openmaia.reporting.figures.row_chart import ChartRow, RowMark, point_key, row_chart
from openmaia.reporting.figures.style import NEUTRAL, POSITIVE, png, svg
from openmaia.reporting.figures.table import DataTable
from openmaia.runs.files import Files

_LEVEL = 0.95


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedFigure:
    """One row of the paper's table (arXiv 2404.14394v2), for a ResNet-18 trained on Spawrious O2O-Easy."""

    units: int
    accuracy: float


PUBLISHED = {
    "original": PublishedFigure(units=512, accuracy=0.731),
    "l1": PublishedFigure(units=50, accuracy=0.779),
    "random": PublishedFigure(units=22, accuracy=0.705),
    "l1_n": PublishedFigure(units=22, accuracy=0.757),
    "agent": PublishedFigure(units=22, accuracy=0.837),
    "balanced": PublishedFigure(units=147, accuracy=0.830),
    "balanced_n": PublishedFigure(units=22, accuracy=0.865),
}

_NAMES = {
    "original": ("All", "Original model"),
    "l1": ("l1 top {units}", "All"),
    "random": ("l1 top {units}", "Random"),
    "l1_n": ("l1 top {units}", "l1, as many as the agent's"),
    "agent": ("l1 top {units}", "Agent"),
    "probe": ("l1 top {units}", "Factorial probe, no agent"),
    "balanced": ("All", "l1, tuned"),
    "balanced_n": ("All", "l1, as many as the agent's"),
}
"""For each row the set of units from which it selects, and how it selects them. {units}: their number."""

_COMPARED = ("l1_n", "random", "probe", "original")
"""Rows with which that of the agent is compared."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SeedEstimate:
    """A mean over classifiers that were trained with different seeds, with its 95 % interval by Student's t, which is
    None for a single classifier.

    All classifiers are scored on the same test images, so the interval does not include the variance due to the choice
    of these images.
    """

    mean: float
    low: float | None
    high: float | None

    @classmethod
    def of(cls, values: Sequence[float], limits: tuple[float, float] = (-np.inf, np.inf)) -> "SeedEstimate":
        """Estimates the mean of one value for each classifier, with an interval that is clipped to `limits`."""
        mean = float(np.mean(values))
        if len(values) < 2:
            return cls(mean=mean, low=None, high=None)
        half = float(stats.t.ppf((1 + _LEVEL) / 2, len(values) - 1) * np.std(values, ddof=1) / np.sqrt(len(values)))
        return cls(mean=mean, low=max(mean - half, limits[0]), high=min(mean + half, limits[1]))

    @classmethod
    def of_shares(cls, values: Sequence[float]) -> "SeedEstimate":
        """Estimates the mean of shares, such as accuracies."""
        return cls.of(values, (0.0, 1.0))


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectionRow:
    """One row, averaged over all classifiers."""

    name: str
    """One of `rows.TABLE_ROWS`."""
    subset: str
    """See _NAMES."""
    selection: str
    """See _NAMES."""
    is_balanced: bool
    """Whether the row is fitted on balanced validation sets."""
    units: float | None
    """The median over seeds and draws. None if no seed has the row."""
    accuracy: SeedEstimate | None
    """The value of a seed is the mean of its draws. None if no seed has the row."""
    spread: tuple[float, float] | None
    """The 2.5th and the 97.5th percentile of the accuracies of all random draws of all seeds; None without draws."""
    by_seed: tuple[float | None, ...]
    """Mean accuracy of each seed; None if the seed does not have the row."""
    published: PublishedFigure | None
    """None if the paper does not have the row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpuriousTable:
    """Our version of the table."""

    rows: tuple[SelectionRow, ...]
    differences: dict[str, SeedEstimate]
    """Accuracy of the agent's row minus that of another row, paired by seed, by the name of the other row."""
    seen: SeedEstimate
    """Accuracy on the unbalanced validation images."""
    shifted: SeedEstimate
    """Accuracy on the test images."""


def table(results: Sequence[StudyResult], units: int) -> SpuriousTable:
    """Computes the table from the results of all classifiers. `units` is the number of units in the row `l1`."""
    rows = tuple(_row(name, results, units) for name in TABLE_ROWS)
    by_name = {row.name: row.by_seed for row in rows}
    differences: dict[str, SeedEstimate] = {}
    for name in _COMPARED:
        pairs = zip(by_name["agent"], by_name[name], strict=True)
        values = [agent - other for agent, other in pairs if agent is not None and other is not None]
        if values:
            differences[name] = SeedEstimate.of(values)
    return SpuriousTable(
        rows=rows,
        differences=differences,
        seen=SeedEstimate.of_shares([result.seen for result in results]),
        shifted=SeedEstimate.of_shares([result.shifted for result in results]),
    )


def to_data_table(made: SpuriousTable) -> DataTable:
    """Returns the table for a CSV file, with the paper's numbers in separate columns."""
    columns = ["row", "subset", "selection", "balanced", "units", "accuracy", "low", "high", "draws_low", "draws_high"]
    columns += [f"seed_{number}" for number in range(len(made.rows[0].by_seed))]
    rows: list[tuple[str | float | None, ...]] = []
    for row in made.rows:
        accuracy, published = row.accuracy, row.published
        names = (row.name, row.subset, row.selection, "yes" if row.is_balanced else "no")
        ours = (accuracy.mean, accuracy.low, accuracy.high) if accuracy else (None, None, None)
        theirs = (published.units, published.accuracy) if published else (None, None)
        rows.append((*names, row.units, *ours, *(row.spread or (None, None)), *row.by_seed, *theirs))
    return DataTable(columns=(*columns, "published_units", "published_accuracy"), rows=tuple(rows))


def _row(name: str, results: Sequence[StudyResult], units: int) -> SelectionRow:
    scores = [result.rows.get(name) for result in results]
    present = [score for score in scores if score is not None]
    draws = [value for score in present for value in score.accuracies if len(score.accuracies) > 1]
    subset, selection = _NAMES[name]
    return SelectionRow(
        name=name,
        subset=subset.format(units=units),
        selection=selection,
        is_balanced=name.startswith("balanced"),
        units=median([value for score in present for value in score.units]) if present else None,
        accuracy=SeedEstimate.of_shares([float(np.mean(score.accuracies)) for score in present]) if present else None,
        spread=(float(np.percentile(draws, 2.5)), float(np.percentile(draws, 97.5))) if draws else None,
        by_seed=tuple(None if score is None else float(np.mean(score.accuracies)) for score in scores),
        published=PUBLISHED.get(name),
    )


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
