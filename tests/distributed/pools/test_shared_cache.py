"""One cache for all callers of a pool: equal requests are generated once."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import ray

from openmaia.config.machine import PoolConfig
from openmaia.core.errors import ServiceError
from openmaia.core.services import GeneratedImage, Generation
from openmaia.distributed.pools.dispatch.cache import CacheSpec
from openmaia.distributed.pools.handles import PoolAddress, PooledGenerator
from tests.helpers.sleeping import Drawing, SleepingPool, drawn, killed_dispatcher, pool, wait_until

pytestmark = pytest.mark.slow

POOL = PoolConfig(max_batch=4)
FIVE = [Generation(prompt="a forest", seed=seed) for seed in range(5)]


@pytest.fixture
def spec(tmp_path: Path) -> CacheSpec:
    return CacheSpec(identity="model", memory_bytes=2**20, disk_bytes=2**24, folder=str(tmp_path / "generator"))


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log"


def generator(made: SleepingPool, caller: str) -> PooledGenerator:
    return PooledGenerator(made.address, caller)


def test_equal_requests_are_generated_once_for_all_callers(ray_cluster: None, spec: CacheSpec, log: Path):
    with pool(Drawing(0.3, str(log)), POOL, cache=spec) as made, ThreadPoolExecutor(4) as threads:
        asked = [threads.submit(generator(made, f"{i}").generate, FIVE) for i in range(4)]
        expected = [drawn(seed) for seed in range(5)]
        assert [one.result(timeout=120) for one in asked] == [expected] * 4
        assert generator(made, "later").generate([*FIVE[3:], *FIVE[3:]]) == [*expected[3:], *expected[3:]]
        counted = made.statistics()
    assert sorted(log.read_text().split()) == ["0", "1", "2", "3", "4"]
    assert (counted.requests, counted.cache_misses, counted.cache_hits + counted.cache_joined) == (24, 5, 19)


def test_joined_requests_survive_the_first_caller(ray_cluster: None, spec: CacheSpec, log: Path):
    slow = [Generation(prompt="slow", seed=100 + i) for i in range(4)]
    with pool(Drawing(1.5, str(log)), POOL, cache=spec) as made, ThreadPoolExecutor(3) as threads:
        threads.submit(generator(made, "busy").generate, slow)
        made.wait_for(lambda now: now.under_way == 4)
        gone = threads.submit(generator(made, "gone").generate, FIVE)
        made.wait_for(lambda now: now.waiting == 5)
        other = threads.submit(generator(made, "other").generate, FIVE[:2])
        made.wait_for(lambda now: now.cache_joined == 2)
        ray.get(made.manager.dispatcher.leave.remote(["gone"]), timeout=60)
        with pytest.raises(ServiceError, match="gone has left"):
            gone.result(timeout=60)
        assert other.result(timeout=60) == [drawn(0), drawn(1)]
        assert made.statistics().dropped == 3
        assert generator(made, "third").generate(FIVE[4:]) == [drawn(4)], "what was dropped can be asked for again"


class Drawer:
    """A caller in a process of its own."""

    def draw(self, address: PoolAddress) -> list[GeneratedImage]:
        return PooledGenerator(address, "gone").generate(FIVE[:1])


@pytest.mark.nightly
def test_joined_requests_survive_the_process_of_the_first_caller(ray_cluster: None, spec: CacheSpec, log: Path):
    """It has stored what is asked, which nobody can read any more."""
    slow = [Generation(prompt="slow", seed=100 + i) for i in range(4)]
    remote: Any = ray.remote(Drawer)
    gone = remote.options(num_cpus=0).remote()
    ray.get(gone.__ray_ready__.remote(), timeout=120)
    with pool(Drawing(2.0, str(log)), POOL, cache=spec) as made, ThreadPoolExecutor(2) as threads:
        threads.submit(generator(made, "busy").generate, slow)
        made.wait_for(lambda now: now.under_way == 4)
        gone.draw.remote(made.address)
        made.wait_for(lambda now: now.waiting == 1)
        other = threads.submit(generator(made, "other").generate, FIVE[:1])
        made.wait_for(lambda now: now.cache_joined == 1)
        ray.kill(gone)
        assert other.result(timeout=60) == [drawn(0)]


def test_failures_are_not_cached(ray_cluster: None, spec: CacheSpec, log: Path):
    with pool(Drawing(0.0, str(log)), POOL, cache=spec) as made:
        for _ in range(2):
            with pytest.raises(ServiceError, match="it cannot be drawn"):
                generator(made, "a").generate([Generation(prompt="impossible", seed=9)])
        assert made.statistics().failures == {"error": 2}
    assert log.read_text().split() == ["9", "9"]


def test_restarted_dispatcher_finds_images_on_disk(ray_cluster: None, spec: CacheSpec, log: Path):
    with pool(Drawing(0.0, str(log)), POOL, cache=spec) as made:
        before = generator(made, "a").generate(FIVE)
        wait_until(lambda: sum("." not in entry.name for entry in Path(spec.folder).glob("*/*")) == len(FIVE))
        killed_dispatcher(made)
        made.wait_for(lambda now: now.replicas == 1)
        assert generator(made, "a").generate(FIVE) == before
        counted = made.statistics()
    assert counted.cache_hits == len(FIVE)
    assert sorted(log.read_text().split()) == ["0", "1", "2", "3", "4"]
