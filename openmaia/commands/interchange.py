"""`openmaia import-maia` and `openmaia export-maia`."""

from typing import Annotated

import typer

from openmaia.commands.common import stoppable
from openmaia.errors import UsageError


def import_maia(
    folder: Annotated[
        str, typer.Argument(metavar="DIR", help="a folder of published files; all below it is looked at")
    ],
    to: Annotated[str, typer.Option(help="where exemplars, unit lists and labels go")] = "exemplars",
    target: Annotated[str, typer.Option(help="the target's name here, in place of the published model's")] = "",
    dataset: Annotated[str, typer.Option(help="the dataset's name here (exemplars.dataset), such as imagenet")] = "",
    runs: Annotated[str, typer.Option(help="where the answers of published investigations go, as labels")] = "",
) -> None:
    """Take over exemplars, unit lists, labels and results of MAIA, MILAN and others."""
    from openmaia.interchange.maia import Import
    from openmaia.terminal.progress import Terminal

    with stoppable(), Terminal() as terminal:
        report = Import(folder, to, target=target, dataset=dataset, runs=runs).run(terminal.progress)
    print("\n".join(report.lines()))
    if not report.imported:
        raise UsageError(f"nothing below {folder} could be imported")


def export_maia(
    folder: Annotated[str, typer.Argument(metavar="EXEMPLARS_DIR", help="exemplars of OpenMAIA, such as exemplars")],
    to: Annotated[str, typer.Argument(metavar="TO", help="gets TARGET/DATASET/LAYER folders")],
) -> None:
    """Write exemplars as MAIA and MILAN lay them out."""
    from openmaia.interchange.export import export
    from openmaia.terminal.progress import Terminal

    with stoppable(), Terminal() as terminal:
        said = export(folder, to, terminal.progress)
    print("\n".join(said))
