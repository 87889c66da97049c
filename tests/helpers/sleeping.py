"""A service that does nothing but take its time, and callers of it in processes of their own."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import ray

from openmaia.config.machine import PoolConfig
from openmaia.core.images import EncodedImage
from openmaia.core.services import GeneratedImage, Generation
from openmaia.distributed.failures import resolve
from openmaia.distributed.pools.autoscaling import ScalingPolicy
from openmaia.distributed.pools.dispatch.cache import CacheSpec
from openmaia.distributed.pools.handles import BatchedHandle, PoolAddress
from openmaia.distributed.pools.manager import PoolManager, manage
from openmaia.distributed.pools.replica import PoolSpec
from openmaia.distributed.pools.statistics import PoolStatistics


def wait_until(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.02)


@dataclass(frozen=True)
class Sleeping:
    """fixed: seconds per batch, each: seconds per request, until: a file without which no batch ends. Answers a number with its
    double."""

    fixed: float = 0.0
    each: float = 0.0
    until: str = ""

    def double(self, numbers: Sequence[int]) -> list[int]:
        while self.until and not Path(self.until).exists():
            time.sleep(0.02)
        if self.fixed or self.each:
            time.sleep(self.fixed + self.each * len(numbers))
        return [2 * number for number in numbers]

    def echo(self, given: Sequence[Any]) -> list[Any]:
        return list(given)

    def pids(self, given: Sequence[Any]) -> list[int]:
        return [os.getpid()] * len(given)


@dataclass(frozen=True)
class Drawing:
    """seconds: per batch. The picture is a number, the prompt says whether drawing fails; what it was asked is in `log`."""

    seconds: float
    log: str

    def generate(self, requests: Sequence[Generation]) -> list[GeneratedImage]:
        with open(self.log, "a") as log:
            log.writelines(f"{request.seed}\n" for request in requests)
        time.sleep(self.seconds)
        if any(request.prompt == "impossible" for request in requests):
            raise ValueError("it cannot be drawn")
        return [drawn(request.seed) for request in requests]


def drawn(seed: int) -> GeneratedImage:
    pixels = np.random.default_rng(seed).integers(0, 256, (16, 16, 3), dtype=np.uint8)
    return GeneratedImage(image=EncodedImage.of(pixels, sources=(f"source {seed}",)), missing_terms=("unicorn",))


class Handle(BatchedHandle):
    """Calls any method of any host through its pool."""

    role = "target"

    def ask(self, method: str, requests: Sequence[Any]) -> list[Any]:
        return self._submit(method, requests)


@dataclass(frozen=True)
class SleepingPool:
    """A pool whose replicas are ready."""

    manager: PoolManager
    address: PoolAddress

    def handle(self, caller: str = "caller") -> Handle:
        return Handle(self.address, caller)

    def statistics(self) -> PoolStatistics:
        return resolve(self.manager.dispatcher.statistics.remote(), timeout=60)

    def wait_for(self, condition: Callable[[PoolStatistics], bool], seconds: float = 60.0) -> PoolStatistics:
        until = time.monotonic() + seconds
        while not condition(found := self.statistics()):
            assert time.monotonic() < until, found
            time.sleep(0.02)
        return found


@contextmanager
def pool(
    host: Any,
    config: PoolConfig,
    concurrency: int = 0,
    cache: CacheSpec | None = None,
    *,
    ready: bool = True,
    say: Callable[[str], None] = lambda line: None,
    policy: ScalingPolicy | None = None,
    autoscaled: bool = False,
    run: str = "sleeping",
    measures: bool = False,
    **bounds: int,
) -> Iterator[SleepingPool]:
    """A pool of such hosts; `host` is the host, or a function that makes one. `bounds` are those of `PoolSpec`."""
    make = host if callable(host) else partial(same, host)
    spec = PoolSpec(
        role="target", make=make, config=config, concurrency=concurrency, run=run, measures=measures, **bounds
    )
    manager = PoolManager(spec=spec, cache=cache, policy=policy, autoscaled=autoscaled)
    address = PoolAddress(dispatcher=manager.dispatcher, cache_identity=cache.identity if cache else "")
    with manage([manager], say):
        made = SleepingPool(manager, address)
        if ready:
            made.wait_for(lambda now: now.replicas == config.min_replicas)
        yield made


def same(host: Any) -> Any:
    return host


def first_fails(flag: Path) -> Sleeping:
    """The first replica to load finds a bad disk, and every other takes its time."""
    try:
        flag.touch(exist_ok=False)
    except FileExistsError:
        time.sleep(5)
        return Sleeping()
    raise OSError("a bad disk")


def pid_of(actor: Any) -> int:
    return ray.get(actor.__ray_call__.remote(lambda self: os.getpid()), timeout=60)


def node_of(actor: Any) -> str:
    return ray.get(actor.__ray_call__.remote(lambda self: ray.get_runtime_context().get_node_id()), timeout=60)


@dataclass(frozen=True)
class Answered:
    """Seconds of the machine's clock at which each call was answered, and how long each had taken."""

    at: list[float]
    took: list[float]
    wrong: int


class Caller:
    """As an investigation: one call after the other."""

    def __init__(self, name: str):
        self._name = name

    def pid(self) -> int:
        return os.getpid()

    def run(self, address: PoolAddress, calls: int, size: int, start: int = 0) -> Answered:
        handle = Handle(address, self._name)
        at, took, wrong = list[float](), list[float](), 0
        for call in range(calls):
            numbers = list(range(start + call * size, start + (call + 1) * size))
            began = time.perf_counter()
            wrong += handle.ask("double", numbers) != [2 * number for number in numbers]
            took.append(time.perf_counter() - began)
            at.append(time.time())
        return Answered(at, took, wrong)

    def until(self, address: PoolAddress, seconds: float, size: int) -> int:
        """Requests answered within a time."""
        handle = Handle(address, self._name)
        done, end = 0, time.monotonic() + seconds
        while time.monotonic() < end:
            handle.ask("double", list(range(size)))
            done += size
        return done


_RemoteCaller: Any = ray.remote(Caller)


def callers(count: int) -> list[Any]:
    """Processes of their own, up, named "caller 0", …"""
    made = [_RemoteCaller.options(num_cpus=0).remote(f"caller {i}") for i in range(count)]
    ray.get([one.pid.remote() for one in made], timeout=300)
    return made


@dataclass(frozen=True)
class Survived:
    """gap: the longest time, in seconds, in which nobody was answered. batch: the mean size."""

    answered: int
    wrong: int
    gap: float
    deaths: int
    batch: float


def killed_replica(pool: SleepingPool) -> None:
    os.kill(pool.handle("").ask("pids", [None])[0], signal.SIGKILL)


def hung_replica(pool: SleepingPool) -> None:
    os.kill(pool.handle("").ask("pids", [None])[0], signal.SIGSTOP)


def killed_dispatcher(pool: SleepingPool) -> None:
    os.kill(pid_of(pool.manager.dispatcher), signal.SIGKILL)


def survive(pool: SleepingPool, crowd: list[Any], calls: int, size: int, fault: Any, after: float) -> Survived:
    """The fault happens `after` seconds in the middle of all calls."""
    asked = [one.run.remote(pool.address, calls, size, 10**6 * i) for i, one in enumerate(crowd)]
    timer = threading.Timer(after, fault, [pool])
    timer.start()
    done: list[Answered] = ray.get(asked, timeout=300)
    timer.join()
    counted = pool.statistics()
    times = sorted(t for one in done for t in one.at)
    return Survived(
        answered=len(times) * size,
        wrong=sum(one.wrong for one in done),
        gap=max(later - earlier for earlier, later in pairwise(times)),
        deaths=counted.deaths,
        batch=counted.batched / max(counted.batches, 1),
    )
