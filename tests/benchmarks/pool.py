"""What a pool costs and how it behaves when something dies. Its replicas are real actors that sleep for their service
times, so that nothing but Ray and the dispatcher is measured.

added_ms, p99_ms: a call through the pool beside a call of a bare actor right before it, nothing else under way; median
and 99th percentile of the differences. relay_ms, per_second_relay: the same for an actor of two lines that passes each
call on to another, the least that a dispatcher costs whose calls are Ray's. per_second_lists,
per_second_single: requests answered, handed in five at a time and one at a time by callers in processes of their own;
per_second_bare: by one actor without a pool. fill: share of full batches where requests wait. small_wait: how long a
single request takes while another caller has 1,000 waiting, and alone. gaps: the longest time in which nobody was
answered when a replica is killed, hangs (with a deadline of 3 s), or the dispatcher is killed, and without any fault;
every answer is checked.
"""

import statistics
import time
from functools import partial
from typing import Any

import ray

from openmaia.config import load
from openmaia.remote.cluster import cluster
from openmaia.remote.failures import resolve
from openmaia.remote.replica import _RemoteReplica
from openmaia.schema import PoolConfig
from tests.conftest import REPOSITORY
from tests.sleeping import (
    Answered,
    Handle,
    Sleeping,
    Survived,
    callers,
    hung_replica,
    killed_dispatcher,
    killed_replica,
    pool,
    same,
    survive,
)

QUICK = Sleeping(fixed=0.002, each=0.0001)
"""Four replicas of it answer 17,000 requests per second in batches of 16: more than any dispatcher hands out."""

IMAGES = Sleeping(fixed=0.05, each=0.005)
"""As a small network answers probes, or a large one on a GPU."""


def bare_actor() -> Any:
    made = _RemoteReplica.options(num_cpus=0, enable_task_events=False).remote(partial(same, Sleeping()))
    ray.get(made.start.remote(), timeout=120)
    return made


class Relay:
    def __init__(self, replica: Any):
        self._replica = replica

    async def call(self, method: str, requests: list[Any]) -> list[Any]:
        return await self._replica.call.remote(method, requests)


_RemoteRelay: Any = ray.remote(Relay)


def latency(calls: int) -> dict[str, float]:
    bare = bare_actor()
    relay = _RemoteRelay.options(num_cpus=0, max_concurrency=1000, enable_task_events=False).remote(bare)
    alone, passed_on, added = list[float](), list[float](), list[float]()
    with pool(Sleeping(), PoolConfig()) as actor:
        handle = Handle(actor, "one")
        for call in range(calls + 50):
            began = time.perf_counter()
            resolve(bare.call.remote("double", [call]))
            between = time.perf_counter()
            handle.ask("double", [call])
            ended = time.perf_counter()
            resolve(relay.call.remote("double", [call]))
            last = time.perf_counter()
            if call >= 50:  # connections and caches are warm
                alone.append(1000 * (between - began))
                added.append(1000 * (ended - between) - alone[-1])
                passed_on.append(1000 * (last - ended) - alone[-1])
    ray.kill(relay)
    ray.kill(bare)
    return {
        "relay_ms": statistics.median(passed_on),
        "added_ms": statistics.median(added),
        "p99_ms": statistics.quantiles(added, n=100)[98],
        "bare_ms": statistics.median(alone),
    }


def throughput(crowd: list[Any], seconds: float, rounds: int) -> dict[str, float]:
    """In turn, the median of the rounds: the machine is not equally fast all the time."""
    bare = bare_actor()
    relay = _RemoteRelay.options(num_cpus=0, max_concurrency=1000, enable_task_events=False).remote(bare)
    found: dict[str, list[float]] = {}
    with pool(QUICK, PoolConfig(replicas=4)) as actor:
        ways = {
            "per_second_bare": lambda one, length: one.until_bare.remote(bare, length),
            "per_second_relay": lambda one, length: one.until_bare.remote(relay, length),
            "per_second_single": lambda one, length: one.until.remote(actor, length, 1),
            "per_second_lists": lambda one, length: one.until.remote(actor, length, 5),
        }
        for length in (0.1, *[seconds] * rounds):  # the first round connects
            for name, ask in ways.items():
                began = time.monotonic()
                answered = ray.get([ask(one, length) for one in crowd], timeout=length + 300)
                found.setdefault(name, []).append(sum(answered) / (time.monotonic() - began))
    ray.kill(relay)
    ray.kill(bare)
    return {name: statistics.median(values[1:]) for name, values in found.items()}


def fairness(large: Any, small: list[Any], calls: int) -> dict[str, float]:
    """Seconds per single request, the median."""
    with pool(IMAGES, PoolConfig(replicas=2, max_batch=8)) as actor:

        def waited() -> float:
            done: list[Answered] = ray.get([one.run.remote(actor, calls, 1) for one in small], timeout=300)
            return statistics.median(took for one in done for took in one.took)

        alone = waited()
        under_way = large.run.remote(actor, 1, 1000)
        while resolve(actor.counters.remote()).waiting < 900:
            time.sleep(0.01)
        beside = waited()
        still_waiting = resolve(actor.counters.remote()).waiting
        ray.get(under_way, timeout=300)
    return {"small_wait_alone_s": alone, "small_wait_s": beside, "large_still_waiting": still_waiting}


def faults(crowd: list[Any], calls: int) -> dict[str, Any]:
    settings = PoolConfig(replicas=2, max_batch=8, deadline=3.0)
    found: dict[str, Survived] = {}
    for fault in (nothing, killed_replica, killed_dispatcher, hung_replica):
        with pool(IMAGES, settings) as actor:
            survived = survive(actor, crowd, calls, 5, fault, after=1.0)
        if survived.wrong or survived.answered != len(crowd) * calls * 5:
            raise RuntimeError(f"{fault.__name__}: {survived}")
        found[fault.__name__] = survived
    gaps = {name: survived.gap for name, survived in found.items()}
    return {"fill": found["nothing"].batch / settings.max_batch, "gap_s": gaps}


def nothing(actor: Any) -> None:
    """No fault, to compare with."""


def measure(smoke: bool) -> dict[str, Any]:
    with cluster(load([str(REPOSITORY / "configs/closed-form.yaml"), "ray.num_cpus=2"])):
        delays = latency(100 if smoke else 2000)  # before there are others
        crowd = callers(12 if smoke else 48)
        return {
            **delays,
            **throughput(crowd, 1.0 if smoke else 10.0, 1 if smoke else 3),
            "callers": len(crowd),
            **fairness(crowd[0], crowd[1:4], 4 if smoke else 10),
            **faults(crowd[:4] if smoke else crowd[:12], 10 if smoke else 40),
        }
