"""Figures of the MAIA papers with our runs, differences between the runs, and what is known of their units."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from openmaia.evaluation.analysis.comparison import RunComparison, compare_runs, compared_measures
from openmaia.evaluation.analysis.sanity import warning
from openmaia.evaluation.truth import read_truth, truth_scores
from openmaia.reporting.figures.papers import MeasuredRun, PaperFigure, figure_2, measured, paper_figures
from openmaia.reporting.figures.row_chart import draw_beside, svg_beside
from openmaia.reporting.figures.style import png
from openmaia.reporting.figures.table import DataTable
from openmaia.runs.run import Run

_DIFFERENCES = (
    "one",
    "other",
    "measure",
    "units",
    "mean_one",
    "mean_other",
    "difference",
    "low",
    "high",
    "p",
    "adjusted",
)
_TRUTH_SCORES = ("exact", "precision", "recall")


@dataclass(frozen=True, slots=True, kw_only=True)
class BesidePapers:
    """Figures and tables, and the numbers from which they are made."""

    runs: tuple[MeasuredRun, ...]
    figures: tuple[PaperFigure, ...]
    comparisons: tuple[RunComparison, ...]
    """One for each pair of runs."""
    truths: Mapping[str, DataTable]
    """`truth`, with a row for each run and method of comparison, and `truth-units`, with one for each investigation and
    method. Empty if no run has a stored comparison."""

    def files(self, *, is_png: bool) -> Iterator[tuple[str, bytes]]:
        """Yields name and content of each file: SVG, CSV, LaTeX and, with `is_png`, PNG."""
        for figure in self.figures:
            yield from figure.documents(is_png=is_png)
        whole = figure_2(self.figures)
        yield "figure-2.svg", svg_beside(whole, "Figure 2: activations, tools and turns").encode()
        if is_png:
            yield "figure-2.png", png(draw_beside(whole))
        differences = {"differences": _difference_table(self.comparisons)} if self.comparisons else {}
        for name, table in {**differences, **self.truths}.items():
            yield f"{name}.csv", table.csv()
            yield f"{name}.tex", table.latex()


def set_beside_papers(runs: Sequence[tuple[Run, str]]) -> BesidePapers:
    """Reads the runs, which have unique names. Raises StoreError if a stored evaluation is damaged."""
    measurements = tuple(measured(run, name) for run, name in runs)
    resamples = min(run.config()["evaluate"]["bootstrap"] for run, _ in runs)
    return BesidePapers(
        runs=measurements,
        figures=paper_figures(measurements),
        comparisons=tuple(compare_runs(runs, resamples)) if len(runs) > 1 else (),
        truths=_truth_tables(runs),
    )


def _difference_table(comparisons: Sequence[RunComparison]) -> DataTable:
    """Returns a table with a row for each measure of each pair of runs that can be compared."""
    titles = compared_measures()
    rows = tuple(
        (
            pair.one, pair.other, titles[each.measure], each.units, each.one.mean, each.other.mean,
            each.difference.mean, each.difference.low, each.difference.high, each.p, each.adjusted,
        )
        for pair in comparisons
        for each in pair.differences
    )  # fmt: skip
    compared = {each.measure for pair in comparisons for each in pair.differences}
    notes = (
        "Means over the units that both have, and differences paired by unit, with 95 % bootstrap intervals over prompts and "
        "units; p: Wilcoxon's signed-rank test over units, adjusted for the false discovery rate over all rows.",
        *(
            f"By our sanity tests, {titles[name]}: {warning(name)}."
            for name in titles
            if name in compared and warning(name)
        ),
    )
    return DataTable(caption="Paired differences between methods", columns=_DIFFERENCES, rows=rows, notes=notes)


def _truth_tables(runs: Sequence[tuple[Run, str]]) -> dict[str, DataTable]:
    matches = {name: read_truth(run) for run, name in runs}
    if not any(matches.values()):
        return {}
    means = tuple(
        (
            name,
            each.by,
            each.units,
            *(value for score in _TRUTH_SCORES for value in getattr(each, score).as_list()),
            each.unknown,
        )
        for name, several in matches.items()
        for each in truth_scores(several)
    )
    units = tuple(
        (
            name, each.by, each.unit.layer, each.unit.index, each.replicate, "; ".join(each.labels), "; ".join(each.truth),
            int(each.exact), each.precision, each.recall,
        )
        for name, several in matches.items()
        for each in several
    )  # fmt: skip
    intervals = (f"{score}{end}" for score in _TRUTH_SCORES for end in ("", "_low", "_high"))
    notes = (
        "exact: every alternative that excites the unit has a label, and no label is left over; 95 % intervals, Wilson for "
        "exact, bootstrap over units for precision and recall; unknown: comparisons without an answer, which count as misses.",
    )
    title = "Labels against what the units are known to respond to"
    return {
        "truth": DataTable(
            caption=title, columns=("run", "by", "units", *intervals, "unknown"), rows=means, notes=notes
        ),
        "truth-units": DataTable(
            caption=f"{title}, by unit",
            columns=("run", "by", "layer", "unit", "replicate", "labels", "truth", *_TRUTH_SCORES),
            rows=units,
            notes=notes,
        ),
    }
