"""One cache for all callers of a pool: what is equal is drawn once."""

import os
import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import ray

from openmaia.errors import ServiceError
from openmaia.remote.cache import Kept
from openmaia.remote.counters import Counters
from openmaia.remote.services import PooledGenerator
from openmaia.schema import PoolConfig
from openmaia.services import Generation
from openmaia.store.files import Files
from tests.sleeping import Drawing, drawn, pid_of, pool

POOL = PoolConfig(replicas=1, max_batch=4)
FIVE = [Generation(prompt="a forest", seed=seed) for seed in range(5)]


@pytest.fixture
def kept(tmp_path: Path) -> Kept:
    return Kept(identity="", memory=2**20, disk=2**20, files=Files(str(tmp_path)), folder="cache/generator")


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log"


def counted(actor: Any) -> Counters:
    return ray.get(actor.counters.remote(), timeout=60)


def wait_for(actor: Any, condition: Callable[[Counters], bool]) -> None:
    until = time.monotonic() + 60
    while not condition(counted(actor)):
        assert time.monotonic() < until, counted(actor)
        time.sleep(0.02)


def test_equal_requests_are_drawn_once_for_all_callers(ray_cluster: None, kept: Kept, log: Path):
    with pool(Drawing(0.3, str(log)), POOL, kept=kept) as actor, ThreadPoolExecutor(4) as threads:
        asked = [threads.submit(PooledGenerator(actor, f"{i}").generate, FIVE) for i in range(4)]
        expected = [drawn(seed) for seed in range(5)]
        assert [one.result(timeout=120) for one in asked] == [expected] * 4
        assert PooledGenerator(actor, "later").generate([*FIVE[3:], *FIVE[3:]]) == [*expected[3:], *expected[3:]]
        counters = counted(actor)
    assert sorted(log.read_text().split()) == ["0", "1", "2", "3", "4"]
    assert (counters.requests, counters.cache_misses, counters.cache_hits + counters.cache_joined) == (24, 5, 19)
    assert counters.cache_joined >= 10 and counters.cache_hits >= 4


def test_the_others_get_their_picture_when_the_first_to_ask_has_left(ray_cluster: None, kept: Kept, log: Path):
    slow = [Generation(prompt="slow", seed=100 + i) for i in range(4)]
    with pool(Drawing(1.5, str(log)), POOL, kept=kept) as actor, ThreadPoolExecutor(3) as threads:
        threads.submit(PooledGenerator(actor, "busy").generate, slow)
        wait_for(actor, lambda now: now.under_way == 4)
        gone = threads.submit(PooledGenerator(actor, "gone").generate, FIVE)
        wait_for(actor, lambda now: now.waiting == 5)
        other = threads.submit(PooledGenerator(actor, "other").generate, FIVE[:2])
        wait_for(actor, lambda now: now.cache_joined == 2)
        ray.get(actor.leave.remote(["gone"]), timeout=60)
        with pytest.raises(ServiceError, match="gone has left"):
            gone.result(timeout=60)
        assert other.result(timeout=60) == [drawn(0), drawn(1)]
        assert counted(actor).dropped == 3
        assert PooledGenerator(actor, "third").generate(FIVE[4:]) == [drawn(4)], (
            "what was dropped can be asked for again"
        )


def test_what_fails_is_not_kept(ray_cluster: None, kept: Kept, log: Path):
    with pool(Drawing(0.0, str(log)), POOL, kept=kept) as actor:
        for _ in range(2):
            with pytest.raises(ServiceError, match="it cannot be drawn"):
                PooledGenerator(actor, "a").generate([Generation(prompt="impossible", seed=9)])
        assert counted(actor).failures == {"error": 2}
    assert log.read_text().split() == ["9", "9"]


def test_a_dispatcher_that_is_killed_finds_its_pictures_in_the_run_directory(
    ray_cluster: None, kept: Kept, log: Path, tmp_path: Path
):
    with pool(Drawing(0.0, str(log)), POOL, kept=kept) as actor:
        generator = PooledGenerator(actor, "a")
        before = generator.generate(FIVE)
        until = time.monotonic() + 60
        while len(kept.files.names("cache")) < 5 and time.monotonic() < until:
            time.sleep(0.05)
        damaged = sorted((tmp_path / "cache/generator").iterdir())[0]
        damaged.write_bytes(damaged.read_bytes()[:-1])
        os.kill(pid_of(actor), signal.SIGKILL)
        wait_for(actor, lambda now: now.replicas == 1)
        assert generator.generate(FIVE) == before
        counters = counted(actor)
    assert (counters.cache_hits, counters.cache_misses) == (4, 1)
    assert len(log.read_text().split()) == 6
