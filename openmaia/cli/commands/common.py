"""What the commands share: their arguments, and how they end."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from openmaia.cli.signals import STOPPED
from openmaia.core.text import first_line, printable

if TYPE_CHECKING:
    from openmaia.distributed.sweep import SweepOutcome

ConfigSources = Annotated[list[str], typer.Argument(help="YAML files and key=value overrides. Later ones win.")]
RunPaths = Annotated[list[str], typer.Argument(help="Run directories, such as runs/demo.")]
RunPath = Annotated[str, typer.Argument(metavar="RUN", help="A run directory, such as runs/demo.")]

SHOWN_FAILURES = 20


@contextmanager
def stoppable() -> Iterator[None]:
    """Ends a command with the exit code STOPPED after Ctrl-C or SIGTERM. What was completed is kept."""
    try:
        yield
    except KeyboardInterrupt:
        fail("stopped; run the same command again to continue", STOPPED)


def fail(message: str, code: int) -> NoReturn:
    """Prints an error and ends the process with this exit code."""
    print(f"error: {printable(message, keep=chr(10))}", file=sys.stderr)
    raise SystemExit(code)


def print_report(paths: Sequence[str]) -> None:
    """Writes the HTML report about these run directories into the first one, and prints the path of the report."""
    from openmaia.reporting.browser import write_report
    from openmaia.runs.run import Run

    page: Path = write_report([Run.open(path) for path in paths])
    print(f"report: {page}")


def print_failures(outcome: "SweepOutcome") -> bool:
    """Prints why the first SHOWN_FAILURES failed investigations of a sweep failed, and writes the sweep's HTML report.

    Returns:
        Whether an investigation failed.
    """
    failures = outcome.failed
    for investigation, cause in islice(failures.items(), SHOWN_FAILURES):
        print(f"failed: {printable(str(investigation.unit))}: {first_line(cause)}", file=sys.stderr)
    if (more := len(failures) - SHOWN_FAILURES) > 0:
        print(f"failed: {more} more (openmaia show {outcome.run.files.root})", file=sys.stderr)
    print_report([outcome.run.files.root])
    return bool(failures)
