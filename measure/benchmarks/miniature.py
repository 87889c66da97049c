"""A cluster in miniature: a whole sweep, evaluation included, on elastic pools and on pools of fixed sizes.

Replicas sleep for the service times of `rates.yaml` divided by a factor. Everything else is the product's: scheduler,
investigating and evaluating processes, dispatchers, scaling. Each replica holds as much of a pretended GPU as in the machine file of the cluster.
With `replicas` = GPUs / factor, the dispatchers get as many calls a second as on the full cluster. The times after which pools
grow and shrink are divided by the same
factor; how long Ray takes to start a replica is not, and stands for loading a model.

busy: the share of the GPUs' time, from the first investigation to the last evaluation, in which a replica had work (a language model
that answers a single chat counts as busy). Work of a replica that shares a GPU with another model is left out.
over_one_by_one: the time of as many GPUs that each hold all models and take one unit
after the other, over ours; computed from the same table. cores: what the busiest dispatcher, the driver and the whole machine used. If
`machine` is near the number of cores, the CPU was the bottleneck, and the figures are those of the machine.
"""

import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cache, partial
from math import ceil
from pathlib import Path
from typing import Any

import psutil
import ray

from measure.benchmarks.sweep import Cost
from openmaia.analysis.costs.workload import TimedPool
from openmaia.assembly import ConfigAssembly
from openmaia.config.loading import load
from openmaia.config.machine import POOLS, PoolConfig
from openmaia.config.schema import pools_by_role
from openmaia.distributed.pools.autoscaling import (
    DOWN_AFTER,
    UP_AFTER,
    WINDOW,
    OfferedLoad,
    ScalingPolicy,
)
from openmaia.distributed.pools.handles import PoolAddress, Pools
from openmaia.distributed.pools.manager import PoolManager, manage
from openmaia.distributed.pools.replica import PoolSpec
from openmaia.distributed.scheduler import Scheduler
from openmaia.distributed.worker import SweepContext
from openmaia.exemplars.store import ExemplarStore
from tests.conftest import REPOSITORY
from tests.helpers.sleeping import pid_of
from tests.helpers.sweeping import planned, short
from tests.helpers.traced import IdleExaminer, ScaledSleeper, Trace, TracedWorker, tests_of_a_unit, trace, workload

PER_PROCESS = 64
"""Investigations that share a process."""


@dataclass(frozen=True)
class Miniature:
    """gpus: of the cluster that it stands for. factor: by which all times are divided. fixed: replicas of pools of fixed sizes."""

    gpus: int
    replicas: int
    factor: float
    units: int
    at_once: int
    fixed: Mapping[str, int]


# Sizes and numbers of concurrent investigations are those that `--estimate --gpus` gave on 2026-11-27 for the requests of these
# sweeps. 512 GPUs are more than a few cores can play.
SIZES = (
    Miniature(8, 8, 8, 300, 88, {"target": 1, "generator": 4, "editor": 2, "backbone": 2}),
    Miniature(64, 16, 8, 600, 145, {"target": 1, "generator": 8, "editor": 3, "backbone": 4}),
)
SMOKE = (Miniature(8, 5, 60, 12, 12, {"target": 1, "generator": 2, "editor": 1, "backbone": 1}),)

# -- the pools ---------------------------------------------------------------------------------------------------------


@cache
def shares(gpus: int) -> Mapping[str, float]:
    """The GPUs of a replica of each service, by the machine file of a cluster of that size."""
    machine = REPOSITORY / "configs/machine" / ("eight-gpus.yaml" if gpus == 8 else "many-nodes.yaml")
    pools = load(["name=x", "units=all", "target.name=x", str(machine)]).pools
    return {role: getattr(pools, role).num_gpus for role in POOLS}


def with_gpus(gpus: int) -> list[str]:
    """The services whose replicas have a GPU to themselves, or nearly so."""
    return [role for role, share in shares(gpus).items() if share > 0.5]


def one_by_one(traces: Sequence[Trace], gpus: int) -> float:
    """Seconds, not scaled, of so many GPUs that each hold all models and take one unit after the other."""
    pools = workload().timed

    def alone(steps: Sequence[tuple[str, float]]) -> float:
        return sum(_alone(pools[service], int(amount)) if service else amount for service, amount in steps)

    return (sum(map(alone, traces)) + len(traces) * alone(list(tests_of_a_unit().items()))) / gpus


def _alone(pool: TimedPool, count: int) -> float:
    return ceil(count / pool.max_batch) * pool.fixed + count * pool.per_item


def _manager(role: str, size: Miniature, smallest: int, largest: int) -> PoolManager:
    timed = workload().timed[role]
    cost = Cost(timed.fixed, timed.per_item, timed.max_batch, 0)
    policy = ScalingPolicy(
        smallest,
        largest,
        up_after=UP_AFTER / size.factor,
        down_after=DOWN_AFTER / size.factor,
    )
    return PoolManager(
        spec=PoolSpec(
            role=role,
            make=partial(ScaledSleeper, cost, 1 / size.factor),
            config=PoolConfig(
                min_replicas=smallest,
                max_replicas=largest,
                max_batch=timed.max_batch,
                num_gpus=shares(size.gpus)[role],
            ),
            concurrency=timed.max_batch if role == "backbone" else 0,
        ),
        policy=policy,
        load=OfferedLoad(WINDOW / size.factor),
    )


@contextmanager
def _pools(size: Miniature, *, elastic: bool) -> Iterator[dict[str, PoolManager]]:
    def manager(role: str) -> PoolManager:
        if not elastic:
            return _manager(role, size, size.fixed[role], size.fixed[role])
        return _manager(role, size, 1, size.replicas if role in with_gpus(size.gpus) else 1)

    managers = {role: manager(role) for role in POOLS}
    with manage(list(managers.values())):
        for manager in managers.values():
            while _statistics(manager).replicas < manager.spec.config.min_replicas:
                time.sleep(0.1)
        yield managers


def _statistics(manager: PoolManager) -> Any:
    return ray.get(manager.dispatcher.statistics.remote(), timeout=300)


# -- the sweep ---------------------------------------------------------------------------------------------------------


def sweep(size: Miniature, *, elastic: bool) -> dict[str, Any]:
    """Investigates and evaluates all units."""
    with tempfile.TemporaryDirectory() as folder:
        config = short(
            Path(folder), f"name=miniature-{size.factor:g}", "ray.memory_mb=1", "ray.cpus_per_investigation=0"
        )
        run = planned(config, size.units)
        traces = [trace(investigation) for investigation in run.plan()]
        config.ray.investigations = size.at_once
        config.ray.investigations_per_process = PER_PROCESS
        ray.init(address="local", num_cpus=2, num_gpus=size.replicas, include_dashboard=False, log_to_driver=False)
        try:
            with _pools(size, elastic=elastic) as managers:
                pools = Pools(
                    {role: PoolAddress(manager.dispatcher) for role, manager in managers.items()}, pools_by_role(config)
                )
                store = ExemplarStore.at(config.paths.exemplars, config.target.name, "none")
                context = SweepContext(config=config, run=run, pools=pools, exemplars=store, assembly=ConfigAssembly())
                with _measured(managers, size) as figures:
                    _work(context, elastic=elastic)
        finally:
            ray.shutdown()
    figures["over_one_by_one"] = one_by_one(traces, size.replicas) / size.factor / figures["took_s"]
    return {name: round(value, 3) for name, value in figures.items()}


def _work(context: SweepContext, *, elastic: bool) -> None:
    scheduler = Scheduler(
        context.config, [context], untested={0: []}, worker_class=TracedWorker, examiner_class=IdleExaminer
    )
    left = context.run.planned()
    try:
        for _, result in scheduler.results():
            assert result.summary is not None, result.cause
            left -= 1
            if elastic and not left:
                context.pools.release_all_but(["target", "test_generator"])
        scheduler.compare([0])
        assert not scheduler.errors
    finally:
        scheduler.stop()


@contextmanager
def _measured(managers: Mapping[str, PoolManager], size: Miniature) -> Iterator[dict[str, float]]:
    processes = {role: psutil.Process(pid_of(manager.dispatcher)) for role, manager in managers.items()}
    figures: dict[str, float] = {}
    before = {role: _cpu(process) for role, process in processes.items()}
    driver, machine, began = _cpu(psutil.Process()), _machine(), time.monotonic()
    yield figures
    took = time.monotonic() - began
    busy = sum(_statistics(managers[role]).busy_seconds for role in with_gpus(size.gpus))
    figures["took_s"], figures["busy"] = took, busy / size.replicas / took
    figures["cores_dispatcher"] = max(_cpu(process) - before[role] for role, process in processes.items()) / took
    figures["cores_driver"] = (_cpu(psutil.Process()) - driver) / took
    figures["cores_machine"] = (_machine() - machine) / took


def _cpu(process: psutil.Process) -> float:
    return sum(process.cpu_times()[:2])


def _machine() -> float:
    times = psutil.cpu_times()
    return sum(times) - times.idle - times.iowait


def measure(smoke: bool) -> dict[str, Any]:
    figures: dict[str, Any] = {}
    for size in SMOKE if smoke else SIZES:
        figures[f"{size.gpus}_gpus"] = {
            "miniature": asdict(size),
            "elastic": sweep(size, elastic=True),
            "fixed": sweep(size, elastic=False),
        }
    return figures | {"cores": psutil.cpu_count()}
