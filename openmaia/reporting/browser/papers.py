"""The page papers.html, with figures and tables of the MAIA papers with our numbers, and a comparison of runs."""

from collections.abc import Sequence

from openmaia.evaluation.analysis.comparison import compare_runs, compared_measures
from openmaia.evaluation.analysis.sanity import warning
from openmaia.reporting.browser.pages import render
from openmaia.reporting.figures.differences import difference_table
from openmaia.reporting.figures.papers.measured import measured
from openmaia.reporting.figures.papers.paper_figures import paper_figures
from openmaia.reporting.figures.truths import truth_tables
from openmaia.runs.claimed import with_claim_runs
from openmaia.runs.run import Run

_FOLDER = "papers/"


def make_papers_files(runs: Sequence[tuple[Run, str]], tabs: Sequence[tuple[str, str]]) -> dict[str, bytes]:
    """Returns papers.html, and each figure as SVG, CSV and LaTeX, by file name. Only `openmaia figures` makes PNG.

    Each method with claims about a run's units (`openmaia.runs.claimed`) is shown like a further run after the run
    itself.

    Raises StoreError if a stored evaluation is damaged.
    """
    runs = [
        (each, name if each is run else f"{name}: {each.name}") for run, name in runs for each in with_claim_runs([run])
    ]
    measurements = [measured(run, name) for run, name in runs]
    comparisons = compare_runs(runs, min(one.resamples for one in measurements)) if len(runs) > 1 else []
    figures = paper_figures(measurements)
    made: dict[str, bytes] = {}
    for figure in figures:
        made[f"{_FOLDER}{figure.name}.svg"] = figure.svg.encode()
        made[f"{_FOLDER}{figure.name}.csv"] = figure.table.csv()
        made[f"{_FOLDER}{figure.name}.tex"] = figure.table.latex()
    if comparisons:
        table = difference_table(comparisons)
        made |= {f"{_FOLDER}differences.csv": table.csv(), f"{_FOLDER}differences.tex": table.latex()}
    truths = truth_tables(runs)
    for name, table in truths.items():
        made |= {f"{_FOLDER}{name}.csv": table.csv(), f"{_FOLDER}{name}.tex": table.latex()}
    made["papers.html"] = render(
        "papers.html.j2",
        top="",
        pages=tabs,
        runs=measurements,
        figures=figures,
        comparisons=comparisons,
        truths=truths,
        folder=_FOLDER,
        measures=compared_measures(),
        warnings={measure: warning(measure) for measure in compared_measures()},
    )
    return made
