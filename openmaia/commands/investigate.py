"""`openmaia investigate`."""

from typing import Annotated

import typer

from openmaia.commands.common import Config, fail, stoppable
from openmaia.errors import UsageError


def investigate(
    config: Config,
    unit: Annotated[str, typer.Option(help="one unit, such as layer4=122")],
) -> None:
    """One unit in this process, without Ray, the conversation live in the terminal."""
    from openmaia import build, exemplars
    from openmaia.agent.attempt import attempt
    from openmaia.config import load
    from openmaia.store.files import safe
    from openmaia.store.run import Owed, Run
    from openmaia.tasks.task import load as load_task
    from openmaia.terminal.conversation import show_turn
    from openmaia.terminal.progress import Terminal
    from openmaia.units import select

    settings = load([*config, f"units={unit}"])
    task = load_task(settings.task.name)
    units = select(unit, build.target(settings).info(), task.scope).units
    if len(units) != 1:
        raise UsageError(f"--unit {unit} names {len(units)} units; give one, such as {units[0].layer}={units[0].index}")
    settings.name = safe(f"{settings.name}-{str(units[0]).partition('/')[2].replace('/', '-') or 'network'}")
    record_run = Run.create(settings)
    record_run.set_plan(units, settings.replicates)
    with Terminal() as terminal:
        store = exemplars.make(
            settings, [units[0].layer], terminal.say, lambda done, total: terminal.progress("exemplars", done, total)
        )
    with stoppable():
        result = attempt(
            Owed(unit=units[0], replicate=0),
            task,
            build.services(settings, store),
            build.options(settings),
            record_run,
            watch=show_turn,
        )
    if result.summary is None:
        fail(result.cause, 1)
    print(f"record: {record_run.files.root}")
