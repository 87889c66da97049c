"""Elastic pools in simulation: whole sweeps on up to 512 GPUs, which no few cores can play with real processes.

The decisions are the product's (`openmaia.distributed.pools.autoscaling`); replicas, queues and investigations are simulated
with the service times of `rates.yaml`. Every investigation is tested as soon as it has ended, as in the product. Not
simulated: messages, failures, conversations that stay with their replica. The benchmark `miniature` plays 8 and 64 GPUs with
real actors, so that the two can be compared.

busy: the share of the GPUs' time, from the first investigation to the last test, in which a replica had work, without replicas that
share a GPU with another model by the machine file of the cluster. over_one_by_one: see `miniature`. hours: of the simulated sweep.
"""

import itertools
from collections import deque
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import simpy

from openmaia.config.machine import POOLS
from openmaia.distributed.pools.autoscaling import OfferedLoad, PoolClaim, ScalingPolicy, shares_if_short
from openmaia.distributed.pools.manager import STEP_SECONDS
from openmaia.distributed.pools.statistics import PoolStatistics
from openmaia.reporting.costs.estimate import enough_at_once
from openmaia.reporting.costs.simulation import SimulatedPool, Trace
from tests.benchmarks.miniature import fixed_pools, one_by_one, with_gpus
from tests.helpers.traced import tests_of_a_unit, workload

LOADING = {"backbone": 120.0, "generator": 60.0, "editor": 60.0, "target": 20.0}
"""Seconds until a new replica is ready. Assumed, not measured: weights of 54, 24, 24 and 0.2 GB from a local disk."""

Events = Generator[simpy.Event, Any, None]


@dataclass(frozen=True)
class Sweep:
    gpus: int
    units: int


SIZES = (Sweep(8, 800), Sweep(64, 6_400), Sweep(512, 40_000))
SMOKE = (Sweep(8, 40),)


@dataclass(eq=False)
class SimulatedReplica:
    """ready: its model is loaded. work: how many batches or chats it has."""

    number: int
    has_gpu: bool = False
    ready: bool = False
    draining: bool = False
    work: int = 0
    busy_since: float = 0.0


@dataclass(eq=False)
class ElasticPool:
    """The queue and the replicas of one service."""

    environment: simpy.Environment
    timed: SimulatedPool
    chats: int
    """How many chats a replica answers at once; 0 for services that answer batches."""
    policy: ScalingPolicy
    load: OfferedLoad = field(default_factory=OfferedLoad)
    replicas: list[SimulatedReplica] = field(default_factory=list)
    busy_seconds: float = 0.0
    service_seconds: float = 0.0
    arrived: int = 0
    answered: int = 0
    queue: deque[list[Any]] = field(default_factory=deque)
    unplaced_since: float | None = None

    def call(self, requests: int) -> simpy.Event:
        """Returns an event that is triggered when all requests of a call are answered."""
        answered = self.environment.event()
        call = [requests, answered]
        self.arrived += requests
        self.queue.extend([call] * requests)
        self.dispatch()
        return answered

    def dispatch(self) -> None:
        room = self.chats or 1
        while self.queue:
            free = [one for one in self.replicas if one.ready and not one.draining and one.work < room]
            if not free:
                return
            replica = min(free, key=lambda one: one.work)
            size = 1 if self.chats else min(self.timed.max_batch, len(self.queue))
            if not replica.work:
                replica.busy_since = self.environment.now
            replica.work += 1
            self.environment.process(self._answer(replica, [self.queue.popleft() for _ in range(size)]))

    def _answer(self, replica: SimulatedReplica, batch: Sequence[list[Any]]) -> Events:
        seconds = self.timed.fixed + (replica.work if self.chats else len(batch)) * self.timed.per_item
        yield self.environment.timeout(seconds)
        replica.work -= 1
        self.answered += len(batch)
        self.service_seconds += seconds / (self.chats or 1)
        if not replica.work:
            self.busy_seconds += self.environment.now - replica.busy_since
        for call in batch:
            call[0] -= 1
            if not call[0]:
                call[1].succeed()
        self.dispatch()

    @property
    def active(self) -> list[SimulatedReplica]:
        return [one for one in self.replicas if not one.draining]

    @property
    def unplaced(self) -> int:
        return sum(not one.has_gpu for one in self.replicas)

    @property
    def demand(self) -> float:
        at_once = self.chats or 1
        busy = sum(min(one.work / at_once, 1.0) for one in self.replicas)
        return busy + len(self.queue) / (self.chats or self.timed.max_batch)

    def measure(self, now: float) -> None:
        self.unplaced_since = (self.unplaced_since or now) if self.unplaced else None
        waiting = self.arrived - self.answered
        self.load.update(
            PoolStatistics(batched=self.answered, waiting=waiting, service_seconds=self.service_seconds), now
        )

    def claim(self) -> PoolClaim:
        waited = 0.0 if self.unplaced_since is None else self.environment.now - self.unplaced_since
        return self.policy.claim(self.load.value, self.demand, len(self.replicas) - self.unplaced, waited)


class ElasticCluster:
    """GPUs, of which each holds one replica, and what `PoolManager` does every half second.

    Replicas of services that share a GPU with others take none of these.
    """

    def __init__(self, gpus: int, sizes: Mapping[str, SimulatedPool], *, elastic: bool):
        self.environment = simpy.Environment()
        self._free, self._numbers = gpus, itertools.count()
        self._with_gpus = with_gpus(gpus)
        self.pools = {
            role: ElasticPool(
                environment=self.environment,
                timed=workload().timed[role],
                chats=workload().timed[role].max_batch if role == "backbone" else 0,
                policy=ScalingPolicy(1 if elastic else sizes[role].replicas, gpus if elastic else 0),
            )
            for role in POOLS
        }
        for role, pool in self.pools.items():
            for _ in range(pool.policy.min_replicas):
                pool.replicas.append(SimulatedReplica(next(self._numbers), has_gpu=True, ready=True))
                self._free -= role in self._with_gpus

    def scale(self) -> Events:
        while True:
            yield self.environment.timeout(STEP_SECONDS)
            pools, now = [self.pools[role] for role in self._with_gpus], self.environment.now
            for pool in pools:
                pool.measure(now)
                self._end([one for one in pool.replicas if one.draining and not one.work], pool)
            waiting = [pool.unplaced > 0 for pool in pools]
            shares = shares_if_short([pool.claim() for pool in pools], self._free)
            for number, pool in enumerate(pools):
                self._change(pool, now, share=shares[number], room=self._free, is_starting=waiting[number])
            self._place()

    def _change(self, pool: ElasticPool, now: float, **situation: Any) -> None:
        active = pool.active
        wanted = pool.policy.desired(len(active), pool.demand, now, **situation)
        for _ in range(wanted - len(active)):
            pool.replicas.append(SimulatedReplica(next(self._numbers)))
        latest = sorted(active, key=lambda one: (one.has_gpu, -one.number))
        for replica in latest[: max(len(active) - wanted, 0)]:
            replica.draining = True
        self._end([one for one in pool.replicas if one.draining and not one.has_gpu], pool)

    def _end(self, replicas: Sequence[SimulatedReplica], pool: ElasticPool) -> None:
        for replica in replicas:
            pool.replicas.remove(replica)
            self._free += replica.has_gpu

    def _place(self) -> None:
        """Ray serves whoever asked first."""
        waiting = [
            (one.number, one, role) for role in self._with_gpus for one in self.pools[role].replicas if not one.has_gpu
        ]
        for _, replica, role in sorted(waiting, key=lambda each: each[0])[: self._free]:
            replica.has_gpu = True
            self._free -= 1
            self.environment.process(self._load(replica, role))

    def _load(self, replica: SimulatedReplica, role: str) -> Events:
        yield self.environment.timeout(LOADING[role])
        replica.ready = True
        self.pools[role].dispatch()


def simulate(sweep: Sweep, *, elastic: bool) -> dict[str, float]:
    """Simulates a sweep with its tests, on elastic pools or on the best fixed ones."""
    traces = list(itertools.islice(itertools.cycle(workload().traces), sweep.units))
    sizes = fixed_pools(traces, sweep.gpus, sweep.gpus)
    cluster = ElasticCluster(sweep.gpus, sizes, elastic=elastic)
    environment, pools = cluster.environment, cluster.pools
    ended, left = simpy.Store(environment), [sweep.units, sweep.units]
    finished = environment.event()

    def investigate(shared: Iterator[Trace]) -> Events:
        for trace in shared:
            for service, amount in trace:
                if amount:
                    yield pools[service].call(int(amount)) if service else environment.timeout(amount)
            yield ended.put(None)
            left[0] -= 1
            if elastic and not left[0]:
                pools["backbone"].policy.is_released = pools["editor"].policy.is_released = True

    def test() -> Events:
        while True:
            yield ended.get()
            for service, amount in tests_of_a_unit().items():
                yield pools[service].call(amount)
            left[1] -= 1
            if not left[1]:
                finished.succeed()

    shared = iter(traces)
    for _ in range(min(enough_at_once(workload(), sizes, sweep.units), sweep.units)):
        environment.process(investigate(shared))
        environment.process(test())
    if elastic:
        environment.process(cluster.scale())
    environment.run(until=finished)
    busy = sum(pools[role].busy_seconds for role in with_gpus(sweep.gpus))
    return {
        "busy": round(busy / sweep.gpus / environment.now, 3),
        "over_one_by_one": round(one_by_one(traces, sweep.gpus) / environment.now, 3),
        "hours": round(environment.now / 3600, 2),
    }


def measure(smoke: bool) -> dict[str, Any]:
    return {
        f"{sweep.gpus}_gpus": {
            "units": sweep.units,
            "elastic": simulate(sweep, elastic=True),
            "fixed": simulate(sweep, elastic=False),
        }
        for sweep in (SMOKE if smoke else SIZES)
    }
