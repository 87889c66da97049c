"""What `openmaia figures` and papers.html show of runs: figures of the MAIA papers, differences, and known truth."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from openmaia.evaluation.analysis.comparison import RunComparison, compare_runs
from openmaia.reporting.figures.differences import difference_table
from openmaia.reporting.figures.papers.measured import MeasuredRun, measured
from openmaia.reporting.figures.papers.paper_figures import PaperFigure, paper_figures
from openmaia.reporting.figures.table import DataTable
from openmaia.reporting.figures.truths import truth_tables
from openmaia.runs.run import Run


@dataclass(frozen=True, slots=True, kw_only=True)
class BesidePapers:
    """Figures and tables, and the numbers from which they are made."""

    runs: tuple[MeasuredRun, ...]
    figures: tuple[PaperFigure, ...]
    comparisons: tuple[RunComparison, ...]
    """One for each pair of runs."""
    truths: Mapping[str, DataTable]
    """See `truth_tables`."""

    def files(self, *, png: bool) -> Iterator[tuple[str, bytes]]:
        """Yields name and content of each file: SVG, CSV, LaTeX and, with `png`, PNG."""
        for figure in self.figures:
            yield from figure.documents(png=png)
        differences = {"differences": difference_table(self.comparisons)} if self.comparisons else {}
        for name, table in {**differences, **self.truths}.items():
            yield f"{name}.csv", table.csv()
            yield f"{name}.tex", table.latex()


def set_beside_papers(runs: Sequence[tuple[Run, str]]) -> BesidePapers:
    """Reads the runs, which have unique names. Raises StoreError if a stored evaluation is damaged."""
    measurements = tuple(measured(run, name) for run, name in runs)
    resamples = min(one.resamples for one in measurements)
    return BesidePapers(
        runs=measurements,
        figures=paper_figures(measurements),
        comparisons=tuple(compare_runs(runs, resamples)) if len(runs) > 1 else (),
        truths=truth_tables(runs),
    )
