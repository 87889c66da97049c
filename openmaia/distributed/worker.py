"""The worker processes of a run. Each works on several units in threads, and loads no models."""

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from openmaia.agent.context import InvestigationOptions
from openmaia.agent.loop import InvestigationResult, investigate_and_publish
from openmaia.agent.tasks.task import Task, load
from openmaia.config.schema import Config
from openmaia.core.services import Bank, Effects
from openmaia.distributed.assembly import Assembly
from openmaia.distributed.failures import resolve
from openmaia.distributed.pools.handles import Pools
from openmaia.exemplars.store import ExemplarStore
from openmaia.runs.run import InvestigationId, Run

if TYPE_CHECKING:
    from openmaia.distributed.examiner import Material


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepContext:
    """What all investigations and tests of one sweep share."""

    config: Config
    run: Run
    pools: Pools
    exemplars: ExemplarStore
    bank: Bank | None = None
    assembly: Assembly
    withheld: frozenset[str] = frozenset()
    """`EvaluationDesign.withheld`."""
    preprocessing: str = ""
    """`TargetInfo.preprocessing`."""
    effects: Effects | None = None
    """See `InvestigationOptions`."""


@dataclass(slots=True)
class UnitWorker:
    """Investigates units and tests their descriptions. `WorkerPool` makes it a Ray actor.

    In its methods `number` is the index of the sweep in `sweeps`, and `caller` the name of this attempt as a caller of
    pools, unique among all attempts.
    """

    sweeps: Sequence[SweepContext]
    # Of each sweep, set by `start`.
    _options: list[InvestigationOptions] = field(default_factory=list[InvestigationOptions])
    _tasks: list[Task] = field(default_factory=list[Task])
    _locks: list[Any] = field(default_factory=list[Any])
    _materials: dict[int, "Material"] = field(default_factory=dict[int, "Material"])

    def __repr__(self) -> str:
        return "units"

    def start(self) -> None:
        """Builds the options of the investigations of all sweeps and loads their tasks."""
        # Not in the constructor, because Ray reports an exception there as the death of the process.
        self._options = [
            replace(sweep.assembly.options(sweep.config), preprocessing=sweep.preprocessing, effects=sweep.effects)
            for sweep in self.sweeps
        ]
        self._tasks = [load(sweep.config.task.name) for sweep in self.sweeps]
        self._locks = [threading.Lock() for _ in self.sweeps]

    def investigate(self, number: int, investigation: InvestigationId, caller: str) -> InvestigationResult:
        """Investigates one unit and stores the record in the run."""
        sweep = self.sweeps[number]
        services = replace(sweep.pools.services(sweep.exemplars, caller), bank=sweep.bank)
        return investigate_and_publish(investigation, self._tasks[number], services, self._options[number], sweep.run)

    def test(
        self, number: int, investigation: InvestigationId, examiner: Any, material: Sequence[Any], caller: str
    ) -> None:
        """Tests the description in the record of one investigation and stores the trial in the run.

        `examiner` is the handle of an `Examiner`, and `material` holds Ray's reference to the result of its `prepare`.
        """
        # A process that only investigates does without the libraries of the tests.
        from openmaia.distributed.examiner import store_trial

        with self._locks[number]:  # or each thread would hold a copy
            if number not in self._materials:
                self._materials[number] = resolve(material[0])
        store_trial(self.sweeps[number], investigation, examiner, self._materials[number], caller)
