"""One investigation, from the opening message to the record.

The same function runs in a notebook, in the command line's process and as a Ray task, and yields the same record.
"""

from collections.abc import Callable
from functools import partial

from openmaia.agent.investigation import Investigation
from openmaia.agent.options import Options
from openmaia.errors import ReplayDiverged
from openmaia.sandbox.spares import Spares
from openmaia.services import Services
from openmaia.store.journal import Journal, NoJournal
from openmaia.store.records import Record, Turn
from openmaia.tasks.task import Task
from openmaia.units import Unit

Watch = Callable[[Turn], None]
"""Told of every turn as it ends, for those who want to look on."""


def investigate(
    unit: Unit,
    task: Task,
    services: Services,
    options: Options,
    *,
    replicate: int = 0,
    journal: Journal | None = None,
    watch: Watch = lambda turn: None,
    spares: Spares | None = None,
) -> Record:
    """Ask, experiment, show the outcome, until the agent answers or a limit is reached; then test the answer.

    Completed turns found in the journal are not repeated. Raises ServiceError or SandboxError where something of ours
    failed; the journal then holds what was completed. spares: where its sandbox comes from, and goes back to untouched.
    """
    journal = journal or NoJournal()
    make = partial(Investigation, unit, task, services, options, replicate, journal, spares=spares)
    try:
        return _conduct(make(), watch)
    except ReplayDiverged as divergence:
        journal.clear()
        return _conduct(make(notes=(f"restarted from the first turn: {divergence.message}",)), watch)


def _conduct(investigation: Investigation, watch: Watch) -> Record:
    with investigation:
        investigation.resume()
        while not investigation.ended:
            watch(investigation.turn())
        investigation.confirm()
        return investigation.record()
