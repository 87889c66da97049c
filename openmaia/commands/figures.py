"""`openmaia figures`."""

from pathlib import Path
from typing import Annotated

import typer

from openmaia.commands.common import Runs


def figures(
    runs: Runs,
    to: Annotated[str, typer.Option(help="the folder that gets the files")] = "figures",
) -> None:
    """The papers' figures and tables, ours beside the published ones: PNG, SVG, CSV and LaTeX."""
    from openmaia.figures.papers.made import figures as made
    from openmaia.figures.papers.measured import measured
    from openmaia.figures.papers.written import documents
    from openmaia.report.write import named
    from openmaia.store.files import Files
    from openmaia.store.run import Run

    folder = Files(to)
    folder.create()
    found = made([measured(run, name) for run, name in named([Run.open(path) for path in runs])])
    for figure in found:
        for name, data in documents(figure):
            folder.write(name, data)
    print(f"{len(found)} figures and tables, each as PNG, SVG, CSV and LaTeX: {Path(folder.path(''))}")
