"""`openmaia import`: files that other projects published."""

from typing import Annotated

import typer

from openmaia.core.errors import UsageError


def import_files(
    folder: Annotated[str, typer.Argument(metavar="DIR", help="A folder with published files, at any depth.")],
    to: Annotated[str, typer.Option(help="The folder that exemplars, labels and tasks are written to.")] = "exemplars",
    target: Annotated[
        str, typer.Option(help="The target's name here, if it is not the published one. Label tables need it.")
    ] = "",
    dataset: Annotated[str, typer.Option(help="The dataset's name here (exemplars.dataset), such as imagenet.")] = "",
    method: Annotated[
        str, typer.Option(help="The method that made the labels of tables. Default: the one of their format.")
    ] = "",
) -> None:
    """Imports exemplars, labels and answers of other projects.

    The projects are MAIA, MILAN, CLIP-Dissect, Describe-and-Dissect and CoSy. Answers are those that agents ended with.
    Of MAIA it takes a whole checkout, with prompts and lists of units.

    Example: openmaia import ~/maia --dataset imagenet
    """
    from openmaia.cli.terminal.output import Terminal
    from openmaia.interop.importing import Importer

    with Terminal() as terminal:
        report = Importer(folder, to, target=target, dataset=dataset, method=method).run(terminal.progress)
    print("\n".join(report.lines()))
    if not report.imported:
        raise UsageError(f"nothing below {folder} could be imported")
