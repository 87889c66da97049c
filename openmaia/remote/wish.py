"""What a run wants of a cluster, and what of it finds no place there. Knows nothing of Ray."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from openmaia.schema import POOLS, Config, PoolConfig

ROUNDING = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """count processes, each of which holds so much of one node that has the labels. memory: bytes."""

    name: str
    count: int
    gpus: float = 0.0
    cpus: float = 0.0
    memory: float = 0.0
    labels: Mapping[str, str] = field(default_factory=dict[str, str])

    def __str__(self) -> str:
        parts = [f"{self.gpus:g} GPUs"] if self.gpus else []
        parts += [f"{self.cpus:g} CPUs"] if self.cpus else []
        parts += [f"{self.memory / 2**20:.0f} MiB"] if self.memory else []
        on = f" on nodes labelled {', '.join(f'{k}={v}' for k, v in self.labels.items())}" if self.labels else ""
        return f"{self.name} {self.count} x {' + '.join(parts) or 'nothing'}{on}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """What a node has. memory: bytes."""

    gpus: int = 0
    cpus: float = float("inf")
    memory: float = float("inf")
    labels: Mapping[str, str] = field(default_factory=dict[str, str])


def of_pools(config: Config) -> list[Claim]:
    """Of the pools, which hold their share as long as the run lasts; those that hold none left out."""
    pools: dict[str, PoolConfig] = {role: getattr(config.pools, role) for role in POOLS}
    found = [of_pool(role, pool) for role, pool in pools.items()]
    return [claim for claim in found if claim.gpus or claim.cpus or claim.labels]


def of_pool(role: str, pool: PoolConfig) -> Claim:
    labels = dict(pool.node_labels)
    return Claim(name=role, count=pool.replicas, gpus=pool.num_gpus, cpus=pool.num_cpus, labels=labels)


def of_investigations(config: Config) -> Claim:
    ray = config.ray
    memory = ray.memory_mb * 2**20
    return Claim(name="investigations", count=ray.investigations, cpus=ray.cpus_per_investigation, memory=memory)


def of_exemplars(config: Config) -> Claim:
    """Of the workers that compute exemplars, before there are pools."""
    return Claim(name="ray.exemplar_workers", count=config.ray.exemplar_workers, gpus=config.pools.target.num_gpus)


def unplaced(claims: Sequence[Claim], nodes: Sequence[Node]) -> dict[str, int]:
    """How many processes of each claim find no place; empty where all do.

    The widest first, each where it leaves least room: what does not fit that way hardly fits in any other, since Ray
    places processes as they come. Parts of a GPU are parts of one card, whole GPUs of one process are those of one node.
    """
    free = [_Room(node) for node in nodes]
    short: dict[str, int] = {}
    for claim in sorted(claims, key=lambda claim: (claim.gpus, claim.cpus, claim.memory), reverse=True):
        for _ in range(claim.count):
            able = [room for room in free if room.takes(claim)]
            if not able:
                short[claim.name] = short.get(claim.name, 0) + 1
                continue
            min(able, key=lambda room: room.left(claim)).take(claim)
    return short


class _Room:
    def __init__(self, node: Node):
        self._cards = [1.0] * node.gpus
        self._cpus, self._memory = node.cpus, node.memory
        self._labels = node.labels.items()

    def takes(self, claim: Claim) -> bool:
        if not claim.labels.items() <= self._labels:
            return False
        return self._memory >= claim.memory and self._cpus >= claim.cpus - ROUNDING and self._spots(claim) is not None

    def left(self, claim: Claim) -> tuple[float, float]:
        """What would stay free: on the card that takes it, or whole cards, and CPUs."""
        spots = self._spots(claim)
        on_cards = (
            sum(self._cards) if not spots else self._cards[spots[0]] if claim.gpus <= 1 else self._cards.count(1.0)
        )
        return on_cards - claim.gpus, self._cpus - claim.cpus

    def take(self, claim: Claim) -> None:
        self._cpus -= claim.cpus
        self._memory -= claim.memory
        for spot in self._spots(claim) or ():
            self._cards[spot] -= min(claim.gpus, 1.0)

    def _spots(self, claim: Claim) -> list[int] | None:
        """The cards that would take it; None where none do."""
        if claim.gpus > 1:
            whole = [at for at, room in enumerate(self._cards) if room == 1.0][: int(claim.gpus)]
            return whole if len(whole) == int(claim.gpus) else None
        able = [at for at, room in enumerate(self._cards) if room >= claim.gpus - ROUNDING]
        if not claim.gpus:
            return []
        return [min(able, key=lambda at: self._cards[at])] if able else None
