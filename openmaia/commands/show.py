"""`openmaia show`."""

import contextlib
import json
from typing import Annotated

import typer


def show(
    path: Annotated[str, typer.Argument(metavar="RUN", help="a run directory")],
    as_json: Annotated[bool, typer.Option("--json", help="for programs: all units")] = False,
    watch: Annotated[bool, typer.Option("--watch", help="again and again, until the run ends")] = False,
) -> None:
    """The state of a run: owed, running, done, failed and why. Works while it runs."""
    from openmaia.store.run import Run
    from openmaia.store.state import state

    opened = Run.open(path)
    if as_json:
        print(json.dumps(state(opened), ensure_ascii=False))
        return
    from openmaia.terminal import state as view

    if watch:
        with contextlib.suppress(KeyboardInterrupt):
            view.watch(opened)
        return
    view.show_once(opened, opened.config()["evaluate"]["bootstrap"])
