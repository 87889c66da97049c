"""Writes a page with our versions of the MAIA papers' figures and tables and a comparison of runs, and figure files."""

from collections.abc import Sequence

from openmaia.evaluation.analysis.comparison import MEASURES, compare_runs
from openmaia.evaluation.analysis.sanity import warning
from openmaia.reporting.browser.pages import render
from openmaia.reporting.figures.papers.measured import measured
from openmaia.reporting.figures.papers.paper_figures import paper_figures
from openmaia.runs.files import Files
from openmaia.runs.run import Run

FOLDER = "papers/"


def write_papers(runs: Sequence[tuple[Run, str]], files: Files) -> None:
    """Writes report/papers.html, and each figure as SVG, CSV and LaTeX. Only `openmaia figures` writes PNG.

    Args:
        runs: The runs, each with its name in this report.
        files: The directory that contains the report.

    Raises:
        StoreError: An evaluation is damaged.
    """
    measurements = [measured(run, name) for run, name in runs]
    comparisons = compare_runs(runs, min(one.resamples for one in measurements)) if len(runs) > 1 else []
    figures = paper_figures(measurements)
    for figure in figures:
        files.write(f"report/{FOLDER}{figure.name}.svg", figure.svg.encode())
        files.write(f"report/{FOLDER}{figure.name}.csv", figure.table.csv())
        files.write(f"report/{FOLDER}{figure.name}.tex", figure.table.latex())
    page = render(
        "papers.html.j2",
        runs=measurements,
        figures=figures,
        comparisons=comparisons,
        folder=FOLDER,
        measures=MEASURES,
        warnings={measure: warning(measure) for measure in MEASURES},
    )
    files.write("report/papers.html", page)
