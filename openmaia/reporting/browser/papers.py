"""The page papers.html, with figures and tables of the MAIA papers with our numbers, and a comparison of runs."""

from collections.abc import Sequence

from openmaia.evaluation.analysis.comparison import compared_measures
from openmaia.evaluation.analysis.sanity import warning
from openmaia.reporting.browser.pages import render
from openmaia.reporting.figures.beside import set_beside_papers
from openmaia.runs.claimed import with_claim_runs
from openmaia.runs.run import Run

_FOLDER = "papers/"


def make_papers_files(runs: Sequence[tuple[Run, str]], tabs: Sequence[tuple[str, str]]) -> dict[str, bytes]:
    """Returns papers.html, and each figure as SVG, CSV and LaTeX, by file name. Only `openmaia export figures` makes PNG.

    Each method with claims about a run's units (`openmaia.runs.claimed`) is shown like a further run after the run
    itself.

    Raises StoreError if a stored evaluation is damaged.
    """
    runs = [
        (each, name if each is run else f"{name}: {each.name}") for run, name in runs for each in with_claim_runs([run])
    ]
    found = set_beside_papers(runs)
    page = render(
        "papers.html.j2",
        top="",
        pages=tabs,
        runs=found.runs,
        figures=found.figures,
        comparisons=found.comparisons,
        truths=found.truths,
        folder=_FOLDER,
        measures=compared_measures(),
        warnings={measure: warning(measure) for measure in compared_measures()},
    )
    return {f"{_FOLDER}{name}": data for name, data in found.files(is_png=False)} | {"papers.html": page}
