"""`openmaia import-maia` and `openmaia export-maia`: files of other projects."""

from typing import Annotated

import typer

from openmaia.core.errors import UsageError


def import_maia(
    folder: Annotated[str, typer.Argument(metavar="DIR", help="A folder with published files, at any depth.")],
    to: Annotated[str, typer.Option(help="The folder that exemplars and labels are written to.")] = "exemplars",
    target: Annotated[
        str, typer.Option(help="The target's name here, if it is not the published one. Label tables need it.")
    ] = "",
    dataset: Annotated[str, typer.Option(help="The dataset's name here (exemplars.dataset), such as imagenet.")] = "",
    method: Annotated[str, typer.Option(help="The method of label tables, if it is not that of their format.")] = "",
) -> None:
    """Imports exemplars, labels and answers of MAIA, MILAN, CLIP-Dissect, Describe-and-Dissect and CoSy.

    Example: openmaia import-maia ~/maia/exemplars --dataset imagenet
    """
    from openmaia.cli.terminal.output import Terminal
    from openmaia.interop.importing import Importer

    with Terminal() as terminal:
        report = Importer(folder, to, target=target, dataset=dataset, method=method).run(terminal.progress)
    print("\n".join(report.lines()))
    if not report.imported:
        raise UsageError(f"nothing below {folder} could be imported")


def export_maia(
    folder: Annotated[str, typer.Argument(metavar="EXEMPLARS_DIR", help="Exemplars of OpenMAIA, such as exemplars.")],
    to: Annotated[str, typer.Argument(metavar="TO", help="The folder that gets TARGET/DATASET/LAYER folders.")],
) -> None:
    """Writes exemplars in the layout of MAIA and MILAN.

    Example: openmaia export-maia exemplars published
    """
    from openmaia.cli.terminal.output import Terminal
    from openmaia.interop.export import export

    with Terminal() as terminal:
        lines = export(folder, to, terminal.progress)
    print("\n".join(lines))
