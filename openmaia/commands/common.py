"""What the commands share: how their arguments read, and how they end."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from openmaia.signals import STOPPED

Config = Annotated[list[str], typer.Argument(help="YAML files and key=value overrides, later ones win")]
Runs = Annotated[list[str], typer.Argument(help="run directories, such as runs/demo")]


@contextmanager
def stoppable() -> Iterator[None]:
    """Ctrl-C and SIGTERM end orderly: what was completed is kept. A scheduler that sees STOPPED may start it again."""
    try:
        yield
    except KeyboardInterrupt:
        fail("stopped; the same command goes on from here", STOPPED)


def fail(message: str, code: int) -> None:
    print(f"error: {message}", file=sys.stderr)
    raise SystemExit(code)
