"""The worker processes of investigations. Each runs several investigations in threads.

The processes load no models. They call the target, generator, editor and backbone, which run in the pools.
"""

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
    """The data that all investigations and evaluations of one sweep share. A sweep is the run of one config."""

    config: Config
    run: Run
    pools: Pools
    exemplars: ExemplarStore
    """The exemplars of the target: dataset images selected for its units."""
    assembly: Assembly
    """Builds the objects that the config describes."""
    preprocessing: str = ""
    """What is done to an image before the target receives it, in words (`TargetInfo.preprocessing`)."""


@dataclass(slots=True)
class InvestigationWorker:
    """Investigates units in a worker process. `WorkerPool` makes it a Ray actor."""

    sweeps: Sequence[SweepContext]
    _options: list[InvestigationOptions] = field(default_factory=list[InvestigationOptions])
    """The options of the investigations of each sweep. Set by `start`."""
    _tasks: list[Task] = field(default_factory=list[Task])
    """The task of each sweep: the question to the agent. Set by `start`."""

    def __repr__(self) -> str:
        return "investigations"

    def start(self) -> None:
        """Builds the options of the investigations of all sweeps and loads their tasks.

        A sweep is the run of one config, and its task is the question to the agent. This work is not done in the
        constructor, because Ray reports an exception there as the death of the process.
        """
        self._options = [
            replace(sweep.assembly.options(sweep.config), preprocessing=sweep.preprocessing) for sweep in self.sweeps
        ]
        self._tasks = [load(sweep.config.task.name) for sweep in self.sweeps]

    def run(self, number: int, investigation: InvestigationId, caller: str) -> InvestigationResult:
        """Investigates one unit and stores the record of the investigation in the run.

        Args:
            number: The index of the sweep (the run of one config) in `sweeps`.
            investigation: The unit and the number of the replicate. Replicates are repeated investigations of a unit.
            caller: The name that identifies this attempt to the pools that serve the models, unique among all attempts.
        """
        sweep = self.sweeps[number]
        services = sweep.pools.services(sweep.exemplars, caller)
        return investigate_and_publish(investigation, self._tasks[number], services, self._options[number], sweep.run)
