"""The worker processes of investigations. Each runs several investigations in threads, and loads no models."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from openmaia.agent.context import InvestigationOptions
from openmaia.agent.loop import InvestigationResult, investigate_and_publish
from openmaia.agent.tasks.task import Task, load
from openmaia.config.schema import Config
from openmaia.distributed.assembly import Assembly
from openmaia.distributed.pools.handles import Pools
from openmaia.exemplars.store import ExemplarStore
from openmaia.runs.run import InvestigationId, Run


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepContext:
    """What all investigations and evaluations of one sweep share."""

    config: Config
    run: Run
    pools: Pools
    exemplars: ExemplarStore
    assembly: Assembly
    preprocessing: str = ""
    """`TargetInfo.preprocessing`."""


@dataclass(slots=True)
class InvestigationWorker:
    """Investigates units in a worker process. `WorkerPool` makes it a Ray actor."""

    sweeps: Sequence[SweepContext]
    # Of each sweep, set by `start`.
    _options: list[InvestigationOptions] = field(default_factory=list[InvestigationOptions])
    _tasks: list[Task] = field(default_factory=list[Task])

    def __repr__(self) -> str:
        return "investigations"

    def start(self) -> None:
        """Builds the options of the investigations of all sweeps and loads their tasks."""
        # Not in the constructor, because Ray reports an exception there as the death of the process.
        self._options = [
            replace(sweep.assembly.options(sweep.config), preprocessing=sweep.preprocessing) for sweep in self.sweeps
        ]
        self._tasks = [load(sweep.config.task.name) for sweep in self.sweeps]

    def run(self, number: int, investigation: InvestigationId, caller: str) -> InvestigationResult:
        """Investigates one unit and stores the record in the run.

        Args:
            number: The index of the sweep in `sweeps`.
            investigation: The investigation.
            caller: The name of this attempt as a caller of pools, unique among all attempts.
        """
        sweep = self.sweeps[number]
        services = sweep.pools.services(sweep.exemplars, caller)
        return investigate_and_publish(investigation, self._tasks[number], services, self._options[number], sweep.run)
