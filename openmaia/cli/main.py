"""The entry point of the command line. It registers all commands."""

from typing import Annotated

import typer

from openmaia.cli.commands.common import fail, stoppable
from openmaia.cli.commands.discovery import config, layers
from openmaia.cli.commands.evaluate import evaluate
from openmaia.cli.commands.help import Command, Group
from openmaia.cli.commands.interchange import export_maia, import_maia
from openmaia.cli.commands.pools import pools
from openmaia.cli.commands.prefetch import prefetch
from openmaia.cli.commands.run import exemplars, investigate, run
from openmaia.cli.commands.studies import ablate, bias, spurious
from openmaia.cli.commands.submit import submit
from openmaia.cli.commands.view import view
from openmaia.cli.commands.views import dashboard, doctor, figures, report, show, trace
from openmaia.cli.lost_node import end_without_ray
from openmaia.cli.signals import end_on_signals
from openmaia.core.errors import OpenMaiaError, UsageError

app = typer.Typer(
    name="openmaia",
    cls=Group,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def print_version(asked: bool) -> None:
    """Prints the version and ends the command, if `asked` is True."""
    if asked:
        from importlib.metadata import version

        print(f"openmaia {version('openmaia')}")
        raise typer.Exit


for command in (
    run,
    investigate,
    exemplars,
    config,
    layers,
    evaluate,
    ablate,
    bias,
    spurious,
    show,
    report,
    view,
    trace,
    figures,
    dashboard,
    doctor,
    prefetch,
):
    app.command(command.__name__, cls=Command)(stoppable()(command))
app.command("import-maia", cls=Command)(stoppable()(import_maia))
app.command("export-maia", cls=Command)(stoppable()(export_maia))
app.add_typer(submit, name="submit")
app.add_typer(pools, name="pools")


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Agents that find out what the neurons of vision networks do.

    Example: openmaia run configs/demo.yaml
    """


def main() -> None:
    """Runs the command in sys.argv. Exit codes: 0 success, 1 failure, 2 mistake of the user, 3 stopped by a signal."""
    end_on_signals()
    end_without_ray()
    try:
        app()
    except UsageError as error:
        fail(error.message, 2)
    except OpenMaiaError as error:
        fail(error.message, 1)


if __name__ == "__main__":
    main()
