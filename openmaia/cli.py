"""The command line."""

import typer

from openmaia.commands.ablate import ablate
from openmaia.commands.bias import bias
from openmaia.commands.common import fail
from openmaia.commands.dashboard import dashboard
from openmaia.commands.doctor import doctor
from openmaia.commands.evaluate import evaluate
from openmaia.commands.exemplars import exemplars
from openmaia.commands.figures import figures
from openmaia.commands.interchange import export_maia, import_maia
from openmaia.commands.investigate import investigate
from openmaia.commands.report import report
from openmaia.commands.run import run
from openmaia.commands.show import show
from openmaia.commands.spurious import spurious
from openmaia.commands.submit import submit
from openmaia.errors import OpenMaiaError, UsageError
from openmaia.signals import end_on_signals

app = typer.Typer(
    name="openmaia",
    help="Agents that find out what the neurons of vision networks do.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
for command in (
    run,
    investigate,
    exemplars,
    evaluate,
    ablate,
    bias,
    report,
    figures,
    spurious,
    show,
    dashboard,
    import_maia,
    export_maia,
    doctor,
):
    app.command(command.__name__.replace("_", "-"))(command)
app.add_typer(submit, name="submit")


def main() -> None:
    """Exit codes: 0 all done, 1 some units failed or something of ours did, 2 the user's mistake, 3 stopped by a signal."""
    end_on_signals()
    try:
        app()
    except UsageError as error:
        fail(error.message, 2)
    except OpenMaiaError as error:
        fail(error.message, 1)


if __name__ == "__main__":
    main()
