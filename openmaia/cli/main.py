"""The entry point of the command line. It registers all verbs."""

import os
from collections.abc import Callable
from typing import Annotated

import typer

from openmaia.cli.commands.ask import ask
from openmaia.cli.commands.benchmark import benchmark
from openmaia.cli.commands.common import UNPAID, fail, stoppable
from openmaia.cli.commands.config import config
from openmaia.cli.commands.configs import configs, demo
from openmaia.cli.commands.ctl import ctl
from openmaia.cli.commands.doctor import doctor
from openmaia.cli.commands.evaluate import evaluate
from openmaia.cli.commands.exports import export
from openmaia.cli.commands.help import Command, Group
from openmaia.cli.commands.imports import import_files
from openmaia.cli.commands.mcp import mcp
from openmaia.cli.commands.pools import pools
from openmaia.cli.commands.publish import publish
from openmaia.cli.commands.results import report, show, view
from openmaia.cli.commands.run import exemplars, investigate, run
from openmaia.cli.commands.studies import study
from openmaia.cli.commands.submit import submit
from openmaia.cli.lost_node import end_without_ray
from openmaia.cli.signals import end_on_signals
from openmaia.core.errors import OpenMaiaError, OutOfBudget, UsageError

app = typer.Typer(
    name="openmaia",
    cls=Group,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def print_version(asked: bool) -> None:
    """Prints the version and ends the command, if asked."""
    if asked:
        from importlib.metadata import version

        print(f"openmaia {version('openmaia')}")
        raise typer.Exit


_VERBS: dict[str, dict[str, Callable[..., None] | typer.Typer]] = {
    "Investigate units": {
        "demo": demo,
        "run": run,
        "investigate": investigate,
        "mcp": mcp,
        "exemplars": exemplars,
        "evaluate": evaluate,
        "benchmark": benchmark,
        "study": study,
    },
    "Look at results": {"show": show, "view": view, "report": report, "ask": ask, "ctl": ctl},
    "Prepare": {"configs": configs, "config": config, "doctor": doctor},
    "Exchange files": {"import": import_files, "export": export, "publish": publish},
    "Use clusters": {"submit": submit, "pools": pools},
}
"""All verbs by the heading of --help. Typer puts groups behind commands, so a heading of groups alone comes last."""

for heading, verbs in _VERBS.items():
    for name, verb in verbs.items():
        if isinstance(verb, typer.Typer):
            app.add_typer(verb, name=name, rich_help_panel=heading)
        else:
            app.command(name, cls=Command, rich_help_panel=heading)(stoppable()(verb))


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Agents that find out what the neurons of vision networks do.

    Example: openmaia demo
    """


def main() -> None:
    """Runs the command in sys.argv. Exit codes: 0 success, 1 failure, 2 mistake of the user, 3 stopped by a signal, 4 budget
    spent."""
    # The products of a bootstrap are small: further threads cost as much CPU again and save no time. NumPy reads this
    # when it is imported.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    end_on_signals()
    end_without_ray()
    try:
        app()
    except UsageError as error:
        fail(error.message, 2)
    except OutOfBudget as error:
        fail(f"{error.message}; what is done is kept, and the same with a larger budget=… continues", UNPAID)
    except OpenMaiaError as error:
        fail(error.message, 1)


if __name__ == "__main__":
    main()
