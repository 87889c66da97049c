"""A process in which investigations run, several at once in threads: they share what a process costs in memory and start.

It holds no model and imports none: everything heavy is asked of the pools.
"""

import gc
from collections.abc import Sequence
from dataclasses import dataclass

import ray

from openmaia import build
from openmaia.agent.attempt import Result, attempt
from openmaia.remote.services import Pools
from openmaia.sandbox.spares import Spares
from openmaia.schema import Config
from openmaia.services import Exemplars
from openmaia.store.run import Owed, Run
from openmaia.tasks.task import load


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One sweep: what its investigations need besides a unit."""

    config: Config
    run: Run
    pools: Pools
    exemplars: Exemplars


class Investigator:
    """A plain class; `ray.remote` is applied at the end of this file."""

    def __init__(self, jobs: Sequence[Job], at_once: int):
        self._jobs = jobs
        self._spares = Spares(keep=at_once)

    def start(self) -> None:
        """What all investigations share. A mistake in it is the result of a call and not the death of a process."""
        self._options = [build.options(job.config) for job in self._jobs]
        self._tasks = [load(job.config.task.name) for job in self._jobs]
        # Ray has garbage collected in all processes whenever something waits for room: what was imported need not be searched.
        gc.freeze()

    def investigate(self, number: int, owed: Owed, caller: str) -> Result:
        """number: of the job."""
        job = self._jobs[number]
        services = job.pools.services(job.exemplars, caller)
        return attempt(owed, self._tasks[number], services, self._options[number], job.run, spares=self._spares)

    def end(self) -> None:
        self._spares.close()


RemoteInvestigator = ray.remote(Investigator)
