"""The purse of a run that several processes share: its book is an actor on the node of the driver."""

from dataclasses import dataclass
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from openmaia.config.prices import paid_services
from openmaia.config.schema import Config
from openmaia.core.money import Bill
from openmaia.distributed.failures import resolve
from openmaia.runs.purse import RunBook, RunPurse, read_spending
from openmaia.runs.run import Run

_AT_ONCE = 64
"""Calls that the actor answers at once: payments that arrive together share a write."""


@dataclass(frozen=True, slots=True)
class SharedBook:
    """A book in another process."""

    actor: Any

    def pay(self, bill: Bill) -> None:
        resolve(self.actor.pay.remote(bill))

    def may_go_on(self, caller: str, reserve: float) -> bool:
        return resolve(self.actor.may_go_on.remote(caller, reserve))

    def is_empty(self) -> bool:
        return resolve(self.actor.is_empty.remote())

    def leave(self, caller: str) -> None:
        self.actor.leave.remote(caller)


def shared_purse(run: Run, config: Config) -> RunPurse | None:
    """Starts the purse of a run. None if it has no budget, and nothing in its config costs anything."""
    paid = paid_services(config)
    if not (paid or config.budget):
        return None
    read_spending(run)  # of an error in a constructor, Ray says that the process died
    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
    remote: Any = ray.remote(RunBook)
    options = {"num_cpus": 0, "max_concurrency": _AT_ONCE, "max_restarts": -1, "max_task_retries": 0}
    actor = remote.options(**options, scheduling_strategy=here).remote(run, config.budget)
    return RunPurse(SharedBook(actor), config.prices.gpu_hour, paid)
