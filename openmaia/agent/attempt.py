"""The one place that decides whose fault an ended investigation is."""

import traceback
from dataclasses import dataclass
from typing import Any

from openmaia.agent.loop import Watch, investigate
from openmaia.agent.options import Options
from openmaia.errors import OpenMaiaError
from openmaia.sandbox.spares import Spares
from openmaia.services import Services
from openmaia.store.parquet import summary
from openmaia.store.run import Owed, Run
from openmaia.tasks.task import Task


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """summary: of the published record, None where it failed. cause: why it failed."""

    owed: Owed
    summary: dict[str, Any] | None
    cause: str = ""


def attempt(
    owed: Owed,
    task: Task,
    services: Services,
    options: Options,
    run: Run,
    watch: Watch = lambda turn: None,
    spares: Spares | None = None,
) -> Result:
    """Investigates and publishes. A failure of ours is data: noted in the run, the unit stays owed."""
    try:
        record = investigate(
            owed.unit,
            task,
            services,
            options,
            replicate=owed.replicate,
            journal=run.journal(owed),
            watch=watch,
            spares=spares,
        )
        run.publish(record)
        return Result(owed=owed, summary=summary(record))
    except OpenMaiaError as error:
        cause = f"{type(error).__name__}: {error.message}"
    except Exception as error:  # the boundary: whatever it is, the sweep goes on
        cause = f"{type(error).__name__}: {error}\n{traceback.format_exc(limit=-4)}"
    run.fail(owed, cause)
    return Result(owed=owed, summary=None, cause=cause)
