"""How much work the worker processes of a run do at the same time, and how much of it fits on one node."""

from dataclasses import dataclass
from typing import Any

from openmaia.config.schema import Config
from openmaia.distributed.cluster.nodes import alive
from openmaia.distributed.cluster.placement import held


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerLimits:
    """Limits of concurrent work, and the resources of one piece of work: an investigation or an evaluation."""

    total: int
    """Largest number of concurrent pieces of work."""
    per_process: int
    """Largest number of them in one process."""
    cpus: float = 0.0
    memory_mb: int = 0
    """In MiB."""
    max_isolated: int = 0
    """Largest number of processes that run suspects, see `Worker.isolated`. 0: only `total` limits them."""

    @classmethod
    def of_investigations(cls, config: Config) -> "WorkerLimits":
        """Returns the limits that a config sets for investigations."""
        return cls(
            total=config.ray.investigations,
            per_process=min(config.ray.investigations_per_process, largest_capacity(config)),
            cpus=config.ray.cpus_per_investigation,
            memory_mb=config.ray.memory_mb,
        )


def largest_capacity(config: Config) -> int:
    """Returns how many investigations fit on the node that has room for the most: 1 to `ray.investigations`.

    Only what placement groups have reserved, for example for replicas, counts as used.
    """
    taken = held()

    def room(resources: dict[str, float]) -> int:
        cpus, memory = config.ray.cpus_per_investigation, config.ray.memory_mb * 2**20
        by_cpus = resources.get("CPU", 0) / cpus if cpus else float("inf")
        return int(min(by_cpus, resources.get("memory", 0) / memory, config.ray.investigations))

    def free(node: dict[str, Any]) -> dict[str, float]:
        return {name: amount - taken[node["NodeID"]][name] for name, amount in node["Resources"].items()}

    return max([1, *(room(free(node)) for node in alive())])
