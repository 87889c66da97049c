"""A service that does nothing but take its time, and callers of it in processes of their own."""

import os
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import ray

from openmaia.images import Picture
from openmaia.remote import listener
from openmaia.remote.cache import Kept
from openmaia.remote.failures import resolve
from openmaia.remote.pool import dispatcher
from openmaia.remote.replica import Hosting
from openmaia.remote.services import PooledBackbone
from openmaia.schema import PoolConfig
from openmaia.services import Drawn, Generation

POISON = -1


@dataclass(frozen=True)
class Sleeping:
    """fixed: seconds per batch, each: seconds per request. Answers a number with its double, and dies of POISON."""

    fixed: float = 0.0
    each: float = 0.0

    def double(self, numbers: Sequence[int]) -> list[int]:
        if POISON in numbers:
            os.kill(os.getpid(), signal.SIGKILL)
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

    def generate(self, requests: Sequence[Generation]) -> list[Drawn]:
        with open(self.log, "a") as log:
            log.writelines(f"{request.seed}\n" for request in requests)
        time.sleep(self.seconds)
        if any(request.prompt == "impossible" for request in requests):
            raise ValueError("it cannot be drawn")
        return [drawn(request.seed) for request in requests]


def drawn(seed: int) -> Drawn:
    pixels = np.random.default_rng(seed).integers(0, 256, (16, 16, 3), dtype=np.uint8)
    return Drawn(picture=Picture.of(pixels, sources=(f"source {seed}",)), undrawn=("unicorn",))


class Handle(PooledBackbone):
    """Any method of any host, through the way that all services go."""

    def ask(self, method: str, requests: Sequence[Any]) -> list[Any]:
        return self._submit(method, requests)


@contextmanager
def pool(host: Sleeping | Drawing, config: PoolConfig, at_once: int = 0, kept: Kept | None = None) -> Iterator[Any]:
    """A pool of such hosts, its replicas ready."""
    hosting = Hosting(role="target", make=partial(same, host), pool=config, at_once=at_once)
    actor = dispatcher(hosting, kept, run="sleeping")
    try:
        while resolve(actor.counters.remote()).replicas < config.replicas:
            time.sleep(0.05)
        yield actor
    finally:
        ray.kill(actor)


def same(host: Sleeping | Drawing) -> Sleeping | Drawing:
    return host


def elsewhere() -> Sleeping:
    """Its process says that it listens where nobody does, as behind a firewall."""
    listener.build_address = lambda host, port: "127.0.0.1:1" if port else f"{host}:0"
    return Sleeping()


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

    def run(self, actor: Any, calls: int, size: int, start: int = 0) -> Answered:
        handle = Handle(actor, self._name)
        at, took, wrong = list[float](), list[float](), 0
        for call in range(calls):
            numbers = list(range(start + call * size, start + (call + 1) * size))
            began = time.perf_counter()
            wrong += handle.ask("double", numbers) != [2 * number for number in numbers]
            took.append(time.perf_counter() - began)
            at.append(time.time())
        return Answered(at, took, wrong)

    def until(self, actor: Any, seconds: float, size: int) -> int:
        """Requests answered within a time."""
        handle = Handle(actor, self._name)
        done, end = 0, time.monotonic() + seconds
        while time.monotonic() < end:
            handle.ask("double", list(range(size)))
            done += size
        return done

    def until_bare(self, replica: Any, seconds: float) -> int:
        """The same, one at a time, of an actor without a pool before it."""
        done, end = 0, time.monotonic() + seconds
        while time.monotonic() < end:
            resolve(replica.call.remote("double", [done]))
            done += 1
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


def killed_replica(actor: Any) -> None:
    os.kill(Handle(actor, "").ask("pids", [None])[0], signal.SIGKILL)


def hung_replica(actor: Any) -> None:
    os.kill(Handle(actor, "").ask("pids", [None])[0], signal.SIGSTOP)


def killed_dispatcher(actor: Any) -> None:
    os.kill(pid_of(actor), signal.SIGKILL)


def survive(actor: Any, crowd: list[Any], calls: int, size: int, fault: Any, after: float) -> Survived:
    """The fault happens `after` seconds in the middle of everybody's calls."""
    asked = [one.run.remote(actor, calls, size, 10**6 * i) for i, one in enumerate(crowd)]
    timer = threading.Timer(after, fault, [actor])
    timer.start()
    done: list[Answered] = ray.get(asked, timeout=300)
    timer.join()
    counted = resolve(actor.counters.remote())
    times = sorted(t for one in done for t in one.at)
    return Survived(
        answered=len(times) * size,
        wrong=sum(one.wrong for one in done),
        gap=max(later - earlier for earlier, later in pairwise(times)),
        deaths=counted.deaths,
        batch=counted.batched / counted.batches,
    )
