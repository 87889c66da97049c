"""`openmaia ctl`: orders to the command that executes a run."""

from enum import StrEnum
from typing import Annotated

import typer

from openmaia.cli.commands.common import RunPath
from openmaia.core.errors import UsageError


class Action(StrEnum):
    """What `openmaia ctl` orders."""

    PAUSE = "pause"
    RESUME = "resume"
    STOP = "stop"
    RETRY = "retry"


def ctl(
    path: RunPath,
    action: Annotated[Action, typer.Argument(metavar="ACTION", help="pause, resume, stop or retry.")],
    unit: Annotated[
        str, typer.Argument(metavar="UNIT", help="For retry: such as layer4=122; layer4=122#1 is its replicate 1.")
    ] = "",
) -> None:
    """Pauses, resumes or stops a run, or repeats a unit.

    It works from any machine that can write to the run directory. pause: turns that run end, no other begins, and models
    stay loaded. resume: they go on. stop: the run ends as with Ctrl-C. retry UNIT: a finished or failed unit is
    investigated anew, in the run that goes on or else by the next `openmaia run`; its old record is kept.

    Examples:

    openmaia ctl runs/demo pause

    openmaia ctl runs/demo retry stage4=66
    """
    from openmaia.runs import control
    from openmaia.runs.run import Run

    if bool(unit) != (action is Action.RETRY):
        raise UsageError(
            f"{unit} is not used by {action}" if unit else "retry of which unit? Give it, such as layer4=122"
        )
    run = Run.open(path)
    match action:
        case Action.PAUSE:
            control.pause(run)
            print(f"{run.name} pauses: turns that run end, and no other begins. Models stay loaded and keep their GPUs")
        case Action.RESUME:
            control.resume(run)
            print(f"{run.name} goes on")
        case Action.STOP:
            control.stop(run)
            print(f"{run.name} stops as with Ctrl-C; `openmaia run` with the same config continues it")
        case Action.RETRY:
            investigation = control.find_investigation(run, unit)
            control.retry(run, investigation)
            now = "by the command that executes the run, or, if that ends before, " if run.is_driven() else ""
            print(
                f"{investigation.name} is investigated again {now}by the next `openmaia run`; its record moves to retried/"
            )
