"""What a pool costs with real payloads, and how it behaves when something dies.

Replicas are real actors that sleep for their service times, so that Ray and the dispatcher are measured. `chats`: chats of 10
and 40 MB of images by 8 callers on 2 replicas without service time; `fresh` has new images in every chat, `growing` one new
image in each (as a conversation has). `lists`: lists of five requests with answers of 50 kB at 50 and 300 ms of service;
`share` is the part of what the replicas could answer. `added_ms`: latency that the pool adds at this service time. `gap_s`: the
longest time without an answer around a fault, with replicas that take 15 s to load; every answer is checked. `dispatcher_*`: CPU time of the dispatcher for one
call, and its memory while 4,096 requests wait.
"""

import statistics
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import psutil
import ray

from openmaia.config.loading import load
from openmaia.config.machine import PoolConfig
from openmaia.core.images import EncodedImage
from openmaia.core.messages import Chat, Reply, user
from openmaia.distributed.cluster.connection import cluster
from openmaia.distributed.pools.handles import PoolAddress, PooledBackbone
from tests.conftest import REPOSITORY
from tests.helpers.sleeping import (
    Sleeping,
    SleepingPool,
    Survived,
    callers,
    hung_replica,
    killed_dispatcher,
    killed_replica,
    pid_of,
    pool,
    survive,
)

IMAGE_BYTES = 200_000
ANSWER_BYTES = 50_000
MB = 10**6
LOADING = 15.0
"""Seconds that a replica takes to load its model."""


@dataclass(frozen=True)
class Talking:
    """A language model that answers at once and says how many bytes of images it has read."""

    def reply(self, chats: Sequence[Chat]) -> list[Reply]:
        return [Reply(text=str(sum(len(i.data) for m in chat.messages for i in m.images))) for chat in chats]


@dataclass(frozen=True)
class Answering:
    """Takes its time for a batch, and answers each request with 50 kB."""

    seconds: float

    def work(self, requests: Sequence[int]) -> list[bytes]:
        time.sleep(self.seconds)
        return [number.to_bytes(8, "big") * (ANSWER_BYTES // 8) for number in requests]


@dataclass(frozen=True)
class Holding:
    """Takes two seconds for each batch."""

    def hold(self, requests: Sequence[Any]) -> list[int]:
        time.sleep(2.0)
        return [0] * len(requests)


class Talker:
    """A caller in a process of its own."""

    def __init__(self, number: int):
        self._random = np.random.default_rng(number)
        self._images = [self._image() for _ in range(40 * MB // IMAGE_BYTES)]
        self._number = number

    def _image(self) -> EncodedImage:
        side = int((IMAGE_BYTES / 3) ** 0.5)
        image = EncodedImage.of(self._random.integers(0, 256, (side, side, 3), dtype=np.uint8))
        _ = image.digest
        return image

    def ready(self) -> None:
        pass

    def talk(self, address: PoolAddress, megabytes: int, seconds: float, fresh: bool) -> int:
        count = max(megabytes * MB // IMAGE_BYTES, 1)
        backbone = PooledBackbone(address, f"talker {self._number}")
        expected, done, until = "", 0, time.monotonic() + seconds
        images = self._images[:count]
        while time.monotonic() < until:
            if fresh:
                backbone = PooledBackbone(address, f"talker {self._number}")
                images = [EncodedImage(data=image.data) for image in images]
                for image, known in zip(images, self._images, strict=False):
                    image.__dict__["digest"] = f"{known.digest}-{done}"
            else:
                images[done % count] = EncodedImage(data=images[done % count].data)
                images[done % count].__dict__["digest"] = f"{self._number}-{done}"
            chat = Chat(conversation="c", messages=[user("look", *images)], seed=done, max_tokens=1)
            (reply,) = backbone.reply([chat])
            expected = expected or str(sum(len(image.data) for image in images))
            assert reply.text == expected, (reply.text, expected)
            done += 1
        return done

    def ask(self, address: PoolAddress, calls: int) -> tuple[int, list[float]]:
        from tests.helpers.sleeping import Handle

        handle, took, right = Handle(address, f"caller {self._number}"), list[float](), 0
        for call in range(calls):
            began = time.monotonic()
            answers = handle.ask("work", [self._number + i for i in range(5)])
            took.append(time.monotonic() - began)
            right += all(len(answer) == ANSWER_BYTES for answer in answers)
            del call
        return right, took


_RemoteTalker: Any = ray.remote(Talker)


def chats(crowd: list[Any], seconds: float) -> dict[str, Any]:
    figures: dict[str, Any] = {}
    for megabytes in (10, 40):
        for fresh in (True, False):
            with pool(Talking(), PoolConfig(min_replicas=2), concurrency=8) as made:
                process = psutil.Process(pid_of(made.manager.dispatcher))
                ray.get([one.talk.remote(made.address, megabytes, 0.5, fresh) for one in crowd], timeout=300)
                cpu, began = sum(process.cpu_times()[:2]), time.monotonic()
                done = sum(
                    ray.get([one.talk.remote(made.address, megabytes, seconds, fresh) for one in crowd], timeout=900)
                )
                took, cpu = time.monotonic() - began, sum(process.cpu_times()[:2]) - cpu
            figures[f"{megabytes}_mb_{'fresh' if fresh else 'growing'}"] = {
                "per_second": round(done / took, 1),
                "dispatcher_ms": round(1000 * cpu / done, 2),
            }
    return figures


def lists(crowd: list[Any], calls: int) -> dict[str, Any]:
    figures: dict[str, Any] = {}
    for seconds in (0.05, 0.3):
        with pool(Answering(seconds), PoolConfig(min_replicas=2, max_batch=20)) as made:
            process = psutil.Process(pid_of(made.manager.dispatcher))
            ray.get([one.ask.remote(made.address, 2) for one in crowd], timeout=300)
            cpu, began = sum(process.cpu_times()[:2]), time.monotonic()
            found = ray.get([one.ask.remote(made.address, calls) for one in crowd], timeout=900)
            took, cpu = time.monotonic() - began, sum(process.cpu_times()[:2]) - cpu
        assert all(right == calls for right, _ in found)
        requests = 5 * calls * len(crowd)
        figures[f"{round(1000 * seconds)}_ms"] = {
            "requests_per_second": round(requests / took, 1),
            "share": round(requests / took / (2 * 20 / seconds), 3),
            "dispatcher_ms": round(1000 * cpu / (calls * len(crowd)), 2),
        }
    return figures


def latency(calls: int) -> dict[str, float]:
    """Milliseconds that a pool adds to one call, with nothing else under way; the median."""
    figures: dict[str, float] = {}
    for seconds in (0.05, 0.3):
        with pool(Sleeping(fixed=seconds), PoolConfig()) as made:
            handle, took = made.handle(), list[float]()
            for call in range(calls + 5):
                began = time.perf_counter()
                handle.ask("double", [call])
                took.append(1000 * (time.perf_counter() - began - seconds))
        figures[f"added_ms_at_{round(1000 * seconds)}"] = round(statistics.median(took[5:]), 2)
    return figures


def memory() -> dict[str, float]:
    """MB of the dispatcher while 4,096 requests of 50 kB wait."""
    image = EncodedImage.of(np.random.default_rng(0).integers(0, 256, (128, 128, 3), dtype=np.uint8))

    class Request:
        def __init__(self) -> None:
            self.image = image

    with pool(Holding(), PoolConfig(max_batch=1), max_waiting=5000, max_waiting_bytes=1 << 30) as made:
        threads = [
            threading.Thread(
                target=_quietly, args=(partial(made.handle(f"{i}").ask, "hold", [Request()] * 512),), daemon=True
            )
            for i in range(8)
        ]
        for thread in threads:
            thread.start()
        made.wait_for(lambda now: now.waiting + now.under_way >= 4090)
        resident = psutil.Process(pid_of(made.manager.dispatcher)).memory_info().rss / MB
    return {"dispatcher_rss_mb": round(resident)}


def _quietly(work: Any) -> None:
    try:
        work()
    except Exception:  # the pool ends while they wait
        pass


def faults(crowd: list[Any], calls: int, loading: float) -> dict[str, Any]:
    settings = PoolConfig(min_replicas=2, max_batch=8, deadline=3.0)
    found: dict[str, Survived] = {}
    for fault in (nothing, killed_replica, killed_dispatcher, hung_replica):
        with pool(partial(loaded, loading), settings) as made:
            survived = survive(made, crowd, calls, 5, fault, after=1.0)
        if survived.wrong or survived.answered != len(crowd) * calls * 5:
            raise RuntimeError(f"{fault.__name__}: {survived}")
        found[fault.__name__] = survived
    gaps = {name: round(survived.gap, 2) for name, survived in found.items()}
    return {"fill": round(found["nothing"].batch / settings.max_batch, 3), "gap_s": gaps}


def loaded(seconds: float) -> Sleeping:
    """A model that takes so long to load."""
    time.sleep(seconds)
    return Sleeping(fixed=0.05, each=0.005)


def nothing(made: SleepingPool) -> None:
    """No fault, to compare with."""


def measure(smoke: bool) -> dict[str, Any]:
    with cluster(load([str(REPOSITORY / "configs/closed-form.yaml"), "ray.num_cpus=2"])):
        delays = latency(20 if smoke else 200)  # before there are others
        crowd = [_RemoteTalker.options(num_cpus=0).remote(i) for i in range(2 if smoke else 8)]
        ray.get([one.ready.remote() for one in crowd], timeout=300)
        figures = delays | {"chats": chats(crowd, 1.0 if smoke else 10.0), "lists": lists(crowd, 3 if smoke else 40)}
        for one in crowd:
            ray.kill(one)
        return figures | memory() | faults(callers(4 if smoke else 12), 10 if smoke else 40, 0.5 if smoke else LOADING)
