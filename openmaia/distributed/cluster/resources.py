"""Computes the resources that a run requests, and which of them fit on given nodes. Does not use Ray."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from openmaia.config.machine import PoolConfig
from openmaia.config.schema import Config, pool_names

ROUNDING = 1e-6
"""Tolerance in comparisons of fractional resources."""

_EXEMPLAR_SHARE = 0.25
"""Smallest fraction of a GPU that a worker for exemplars requests if `ray.exemplar_workers` is 0. The target's pool may
request less (`pools.target.num_gpus`), but with so little, Ray would put dozens of workers on one GPU and leave the
other GPUs idle."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceRequest:
    """The resources that a number of equal processes request. Each process runs on one node."""

    name: str
    """Name of the processes, such as "generator" for the replicas of that pool."""
    count: int
    gpus: float = 0.0
    """Of each process, like the other resources; may be a fraction."""
    cpus: float = 0.0
    memory: float = 0.0
    """In bytes."""
    labels: Mapping[str, str] = field(default_factory=dict[str, str])
    """Labels that the node must have: Ray's label selectors, such as "h100" or "!l4", by label key."""

    def __str__(self) -> str:
        parts = [f"{self.gpus:g} GPUs"] if self.gpus else []
        parts += [f"{self.cpus:g} CPUs"] if self.cpus else []
        parts += [f"{self.memory / 2**20:.0f} MiB"] if self.memory else []
        on = f" on nodes labelled {', '.join(f'{k}={v}' for k, v in self.labels.items())}" if self.labels else ""
        return f"{self.name} {self.count} x {' + '.join(parts) or 'nothing'}{on}"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeResources:
    """The total resources of one node. The memory is in bytes."""

    gpus: int = 0
    cpus: float = float("inf")
    memory: float = float("inf")
    labels: Mapping[str, str] = field(default_factory=dict[str, str])


def of_pools(configs: Sequence[Config], *, largest: bool = False) -> list[ResourceRequest]:
    """Returns the resources that each pool requests, without pools that need neither GPUs nor CPUs nor labelled nodes.

    Args:
        configs: The configs of the runs of one command. Each run has its own target pool; they share the other pools,
            which the first config describes.
        largest: Whether to count the largest number of replicas of each pool instead of the initial number.
    """
    pools = [(role, configs[0]) for role in pool_names(configs[0])] + [("target", other) for other in configs[1:]]
    found = [of_pool(role, config, largest=largest) for role, config in pools]
    return [request for request in found if request.gpus or request.cpus or request.labels]


def of_pool(role: str, config: Config, *, largest: bool = False) -> ResourceRequest:
    """Returns the resources that the replicas of one pool request. `largest`: see `of_pools`."""
    pool: PoolConfig = getattr(config.pools, role)
    request = of_replica(role, pool)
    count = max(pool.min_replicas, pool.max_replicas) if largest else pool.min_replicas
    return replace(request, count=count)


def of_replica(role: str, pool: PoolConfig) -> ResourceRequest:
    """Returns the resources that one replica requests."""
    labels = dict(pool.node_labels)
    return ResourceRequest(name=role, count=1, gpus=pool.num_gpus, cpus=pool.num_cpus, labels=labels)


def of_investigations(config: Config) -> ResourceRequest:
    """Returns the resources that the concurrent investigations of a run request."""
    ray = config.ray
    memory = ray.memory_mb * 2**20
    return ResourceRequest(
        name="investigations", count=ray.investigations, cpus=ray.cpus_per_investigation, memory=memory
    )


def of_exemplars(config: Config) -> ResourceRequest:
    """Returns the resources of the workers that compute exemplars.

    If `ray.exemplar_workers` is 0, the number of workers is chosen later.
    """
    count, gpus = config.ray.exemplar_workers, config.pools.target.num_gpus
    if gpus and not count:
        gpus = max(gpus, _EXEMPLAR_SHARE)
    return ResourceRequest(name="ray.exemplar_workers", count=count, gpus=gpus)


def unplaced(requests: Sequence[ResourceRequest], nodes: Sequence[NodeResources]) -> dict[str, int]:
    """Returns the number of processes of each request that do not fit on the nodes, by the name of the request.

    The algorithm is best-fit decreasing bin packing: the largest process comes first, and each is placed where it leaves
    the least free. A fraction of a GPU is taken from one GPU.
    """
    free = [_Room(node) for node in nodes]
    short: dict[str, int] = {}
    for request in sorted(requests, key=lambda one: (one.gpus, one.cpus, one.memory), reverse=True):
        for _ in range(request.count):
            able = [room for room in free if room.takes(request)]
            if able:
                min(able, key=lambda room: room.left(request)).take(request)
            else:
                short[request.name] = short.get(request.name, 0) + 1
    return short


def too_wide(pools: Sequence[ResourceRequest], nodes: Sequence[NodeResources]) -> str:
    """Returns a message if a replica requests more GPUs than any of the nodes has; empty otherwise."""
    most = max((node.gpus for node in nodes), default=0)
    for pool in pools:
        if pool.gpus > max(most, 1):
            return (
                f"pools.{pool.name}.num_gpus={pool.gpus:g}, but no node has more than {most}, and a replica cannot span "
                "nodes: give fewer, or serve so large a model with vLLM and use it as an endpoint"
            )
    return ""


def unused_gpus(configs: Sequence[Config], nodes: Sequence[NodeResources]) -> str:
    """Returns a message if nodes have GPUs and no pool requests any; empty otherwise."""
    gpus = sum(node.gpus for node in nodes)
    if not gpus or any(request.gpus for request in of_pools(configs)):
        return ""
    return (
        f"no pool requests one of the {gpus:g} GPUs here, so that all models run on CPUs; give pools.….num_gpus, or a file "
        "of configs/machine"
    )


def shortage(configs: Sequence[Config], nodes: Sequence[NodeResources]) -> str:
    """Returns what finds no room on nodes, and how to solve it; empty if nothing.

    The initial replicas of all pools have to fit beside one investigation. The workers that compute exemplars have to fit
    on their own, because they end before the pools start.
    """
    pools, investigations = of_pools(configs), of_investigations(configs[0])
    exemplars = of_exemplars(configs[0])
    if reason := too_wide(pools, nodes):
        return reason
    if missing := unplaced(pools, nodes):
        listed = ", ".join(f"{count} of the {name}'s replicas" for name, count in missing.items())
        return (
            f"no room for {listed} (wanted: {', '.join(map(str, pools))}); give smaller pools.….num_gpus or num_cpus, fewer "
            "pools.….min_replicas, or more nodes"
        )
    if unplaced([exemplars], nodes):
        return f"no room for {exemplars}; give fewer ray.exemplar_workers"
    if unplaced([*pools, replace(investigations, count=1)], nodes):
        return (
            f"no room for a single one of the {investigations} beside the pools; give a smaller "
            "ray.cpus_per_investigation, ray.memory_mb or pools.….num_cpus, or more nodes"
        )
    return ""


def _are_selected(labels: Mapping[str, str], selectors: Mapping[str, str]) -> bool:
    """Ray's label selectors are "v", "!v", "in(v,w)" or "!in(v,w)", by key."""

    def is_selected(key: str, selector: str) -> bool:
        values = (
            selector.removeprefix("!").removeprefix("in").strip("()") if "(" in selector else selector.removeprefix("!")
        )
        is_listed = labels.get(key) in [value.strip() for value in values.split(",")]
        return is_listed != selector.startswith("!")

    return all(is_selected(key, selector) for key, selector in selectors.items())


class _Room:
    """The free resources of one node."""

    def __init__(self, node: NodeResources):
        self._cards = [1.0] * node.gpus
        self._cpus, self._memory = node.cpus, node.memory
        self._labels = node.labels

    def takes(self, request: ResourceRequest) -> bool:
        if not _are_selected(self._labels, request.labels):
            return False
        return (
            self._memory >= request.memory
            and self._cpus >= request.cpus - ROUNDING
            and self._spots(request) is not None
        )

    def left(self, request: ResourceRequest) -> tuple[float, float]:
        """Returns how much of the node would be left after placing the request. The node with the least is the best fit.

        Returns:
            The GPUs and the CPUs that would be left. For a request of a whole GPU or a fraction, only the chosen GPU
            counts. For several GPUs, the entirely free GPUs count. For none, the free parts of all GPUs count.
        """
        spots = self._spots(request)
        on_cards = (
            sum(self._cards) if not spots else self._cards[spots[0]] if request.gpus <= 1 else self._cards.count(1.0)
        )
        return on_cards - request.gpus, self._cpus - request.cpus

    def take(self, request: ResourceRequest) -> None:
        self._cpus -= request.cpus
        self._memory -= request.memory
        for spot in self._spots(request) or ():
            self._cards[spot] -= min(request.gpus, 1.0)

    def _spots(self, request: ResourceRequest) -> list[int] | None:
        """Returns the indices of the GPUs that the request would use, or None if it does not fit."""
        if request.gpus > 1:
            whole = [at for at, room in enumerate(self._cards) if room == 1.0][: int(request.gpus)]
            return whole if len(whole) == int(request.gpus) else None
        able = [at for at, room in enumerate(self._cards) if room >= request.gpus - ROUNDING]
        if not request.gpus:
            return []
        return [min(able, key=lambda at: self._cards[at])] if able else None
