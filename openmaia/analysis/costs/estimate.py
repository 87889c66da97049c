"""Bounds the duration of a sweep from below: by the work of each pool, and by the agents, who wait for one reply at a time.

Queueing is not counted, so that every sweep takes longer.
"""

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from openmaia.analysis.costs.beside import count_each, count_once, count_tested_images
from openmaia.analysis.costs.workload import Asked, TimedPool, Workload, join_edits
from openmaia.config.machine import TEST_GENERATOR
from openmaia.config.schema import Config, pools_by_role
from openmaia.core.components import of_config
from openmaia.core.errors import UsageError

TimedPools = Mapping[str, TimedPool]

AGENTS = "ray.investigations"
"""The bound by the agents: the largest if too few investigations run at the same time."""
CORES = "cores"
"""The bound by the CPU time of all processes."""

_SLACK = 1e-9
"""Tolerance in sums of GPUs, because fractions of a GPU do not add up exactly."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolWork:
    """What a sweep and the tests of its descriptions ask of one pool."""

    pool: TimedPool
    requests: float

    @property
    def replica_seconds(self) -> float:
        """Time that the replicas spend on the requests if all batches are full."""
        return self.requests * self.pool.per_request

    @property
    def seconds(self) -> float:
        """The smallest possible duration, at which all replicas are always busy."""
        return self.replica_seconds / self.pool.replicas


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """Lower bounds of the duration of a sweep and of the tests of its descriptions."""

    units: int
    """Number of investigations."""
    at_once: int
    """Number of concurrent investigations."""
    alone: float
    """Seconds of one investigation whose calls never wait."""
    services: Mapping[str, PoolWork]
    cpu_seconds: float
    """CPU seconds of all processes, for a run without GPUs; 0 if they were not measured."""
    cores: int
    """Number of cores that they share."""
    tokens: Sequence[float]
    """Total numbers of prompt tokens (including cached ones), of cached prompt tokens, and of generated tokens."""

    @property
    def agents_seconds(self) -> float:
        """The bound by the agents: `at_once` of them are always at work, and none ever waits."""
        return self.alone * self.units / self.at_once

    @property
    def bounds(self) -> Mapping[str, float]:
        """The seconds of each bound: by service, of the agents (AGENTS), and of the cores (CORES)."""
        services = {service: work.seconds for service, work in self.services.items()}
        return services | {AGENTS: self.agents_seconds, CORES: self.cpu_seconds / self.cores}

    @property
    def bottleneck(self) -> str:
        """The name of the largest bound."""
        return max(self.bounds, key=lambda name: self.bounds[name])

    @property
    def seconds(self) -> float:
        """The largest of all bounds."""
        return self.bounds[self.bottleneck]

    @property
    def gpus(self) -> int:
        """The number of GPUs that the replicas occupy."""
        return _whole_gpus([(work.pool.replicas, work.pool.gpus) for work in self.services.values()])


def _whole_gpus(replicas: Sequence[tuple[int, float]]) -> int:
    """Returns the GPUs of all replicas, given as pairs of a number of replicas and the share of a GPU of each."""
    # Two replicas whose shares are above one half cannot share a GPU.
    large = sum(count * math.ceil(share) for count, share in replicas if share > 0.5)
    return max(large, math.ceil(sum(count * share for count, share in replicas) - _SLACK))


def estimate(config: Config, work: Workload, units: int, gpus: int | None) -> Estimate:
    """Bounds the duration of a sweep whose numbers of replicas make the bound smallest.

    Args:
        config: The config of the sweep.
        work: What its investigations ask of the services.
        units: The number of investigations.
        gpus: The number of GPUs. If it is given, the config limits neither the replicas of services that use GPUs nor
            the number of concurrent investigations. If it is None, the config sets all limits: `min_replicas` and
            `max_replicas` of each service, the GPUs of its job, and the number of concurrent investigations.

    Raises:
        UsageError: The GPUs do not suffice even for the smallest permitted numbers of replicas.
    """
    pools: dict[str, TimedPool] = {}
    most: dict[str, float] = {}
    agent = of_config(config.backbone)
    if pools_by_role(config)["editor"] == "generator":
        work = join_edits(work)
    for role, timed in work.timed.items():
        settings, served = getattr(config.pools, role), role == "backbone" and agent.reads_prompts
        batch = agent.concurrency(config.backbone) if served else settings.max_batch
        pools[role] = replace(timed, replicas=settings.min_replicas, max_batch=batch, gpus=settings.num_gpus)
        most[role] = max(settings.min_replicas, settings.max_replicas)
        if gpus is not None and (timed.gpus or settings.num_gpus):
            pools[role] = replace(pools[role], replicas=1) if settings.num_gpus else timed
            most[role] = math.inf
    available = (config.job.nodes * config.job.gpus or math.inf) if gpus is None else gpus
    requests = _requests(config, work, units)
    cpu = work.cores if gpus is None else None
    pools = balance({role: requests[role] * pool.per_request for role, pool in pools.items()}, pools, most, available)
    return Estimate(
        units=units,
        at_once=max(1, min(units, config.ray.investigations)) if gpus is None else choose_at_once(work, pools, units),
        alone=work.experiments + sum(_alone(work.asked[role], pool) for role, pool in pools.items()),
        services={role: PoolWork(pool=pool, requests=units * requests[role]) for role, pool in pools.items()},
        cpu_seconds=cpu.start + units * cpu.investigation if cpu else 0.0,
        cores=count_cores(config),
        tokens=list(units * work.tokens),
    )


def count_cores(config: Config) -> int:
    """Returns the number of cores of a run: of this machine, or of the job if Ray is elsewhere."""
    here = config.ray.num_cpus or os.cpu_count() or 1
    return here if config.ray.address in ("local", "auto") else config.job.nodes * config.job.cpus


def _requests(config: Config, work: Workload, units: int) -> dict[str, float]:
    """Returns the requests of one of `units` investigations to each service: its own, those of the test of its description,
    and its share of those that are made once.
    """
    tested = count_tested_images(config)[-1]
    # Images are generated once, and measured twice: for the unit, and as controls of another one.
    tests = {pools_by_role(config)[TEST_GENERATOR]: 2 * tested, "target": 4 * tested}
    each, once = count_each(config, work), count_once(config)
    return {
        service: asked.requests + tests.get(service, 0) + each.get(service, 0) + once.get(service, 0) / max(units, 1)
        for service, asked in work.asked.items()
    }


def _alone(asked: Asked, pool: TimedPool) -> float:
    """Returns the seconds of all calls to a pool if no other requests are there. The replicas share each call."""
    if not asked.calls:
        return 0.0
    size = asked.requests / asked.calls
    each = min(size, max(pool.max_batch, size / pool.replicas))
    return asked.calls * (math.ceil(each / pool.max_batch) * pool.fixed + each * pool.per_item)


def choose_at_once(work: Workload, pools: TimedPools, units: int) -> int:
    """Returns how many investigations to run concurrently so that the replicas of all services are busy.

    It is twice the number of calls that fill one batch of every replica, but at most `units`.
    """
    sizes = {role: asked.requests / asked.calls for role, asked in work.asked.items() if asked.calls}
    calls = sum(pool.replicas * max(1.0, pool.max_batch / sizes[role]) for role, pool in pools.items() if role in sizes)
    return max(1, min(units, math.ceil(2 * calls)))


def balance(
    work: Mapping[str, float], pools: TimedPools, most: Mapping[str, float], gpus: float
) -> dict[str, TimedPool]:
    """Adds replicas to pools so that the time of the busiest one is minimal.

    Args:
        work: The replica-seconds of each service.
        pools: The smallest permitted pools.
        most: The maximum number of replicas of each service.
        gpus: The number of GPUs.

    Raises:
        UsageError: The GPUs do not suffice for `pools`.
    """

    def fits(counts: Mapping[str, int]) -> bool:
        return _whole_gpus([(counts[service], pool.gpus) for service, pool in pools.items()]) <= gpus

    counts = {service: pool.replicas for service, pool in pools.items()}
    if not fits(counts):
        needed = ", ".join(f"{service} {pool.replicas} x {pool.gpus:g}" for service, pool in pools.items() if pool.gpus)
        raise UsageError(f"{gpus:g} GPUs do not hold {needed}; give more, or a smaller pools.<service>.num_gpus")
    while any(work.values()):
        # Only one more replica of the busiest pool can make the maximum smaller, so that this greedy rule is optimal.
        busiest = max(work, key=lambda service: work[service] / counts[service])
        more = counts | {busiest: counts[busiest] + 1}
        if more[busiest] > most[busiest] or not fits(more):
            break
        counts = more
    return {service: replace(pool, replicas=counts[service]) for service, pool in pools.items()}
