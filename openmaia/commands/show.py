"""`openmaia show`."""

import json
from typing import Annotated

import typer


def show(
    path: Annotated[str, typer.Argument(metavar="RUN", help="a run directory")],
    as_json: Annotated[bool, typer.Option("--json", help="for programs")] = False,
) -> None:
    """The state of a run: owed, running, done, failed and why. Works while it runs."""
    from openmaia.store.run import Run
    from openmaia.store.state import state

    opened = Run.open(path)
    found = state(opened)
    if as_json:
        print(json.dumps(found, ensure_ascii=False))
        return
    from openmaia.terminal.tables import show_state

    show_state(found, opened)
