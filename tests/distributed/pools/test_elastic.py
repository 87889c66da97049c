"""Pools of real actors that grow and shrink: every request is answered rightly, and reaches a host once."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from openmaia.config.machine import PoolConfig
from openmaia.core.messages import Chat, Reply, user
from openmaia.distributed.pools.autoscaling import ScalingPolicy
from openmaia.distributed.pools.handles import PoolAddress, PooledBackbone
from tests.conftest import REPOSITORY
from tests.helpers.loading import FLAWLESS, Counted, Load, repeating
from tests.helpers.sleeping import killed_dispatcher, pool

pytestmark = pytest.mark.slow


def quick(smallest: int, largest: int) -> ScalingPolicy:
    return ScalingPolicy(smallest, largest, up_after=0.5, down_after=1.0)


def test_pool_grows_under_load_and_shrinks_while_it_is_used(ray_cluster: None, tmp_path: Path):
    load = Load(tmp_path / "log")
    host = Counted(str(load.log), seconds=0.2)
    with pool(host, PoolConfig(max_replicas=4, max_batch=4), policy=quick(1, 4)) as made:
        with load.on(made.address, callers=12, size=4):
            made.wait_for(lambda now: now.replicas == 4, seconds=120)
        with load.on(made.address, callers=1, size=4):
            made.wait_for(lambda now: now.replicas == 1, seconds=120)
            time.sleep(2)
        assert made.statistics().replicas == 1
        assert made.statistics().deaths == 0
    assert load.counted() == FLAWLESS
    assert len(load.asked) > 100


def test_replica_that_is_drained_finishes_what_it_works_on(ray_cluster: None, tmp_path: Path):
    load, policy = Load(tmp_path / "log"), quick(2, 2)
    host = Counted(str(load.log), seconds=2.0)
    with pool(host, PoolConfig(min_replicas=2, max_batch=1), policy=policy) as made:
        with load.on(made.address, callers=3, size=1):
            made.wait_for(lambda now: now.under_way == 2)
            policy.min_replicas = policy.max_replicas = 1
            made.wait_for(lambda now: now.replicas == 1)
            time.sleep(3)
        assert made.statistics().deaths == 0
    assert load.counted() == FLAWLESS


@pytest.mark.nightly
def test_dispatcher_that_dies_does_not_call_off_the_draining(ray_cluster: None, tmp_path: Path):
    load, policy = Load(tmp_path / "log"), quick(2, 2)
    host = Counted(str(load.log), seconds=4.0)
    with pool(host, PoolConfig(min_replicas=2, max_batch=1), policy=policy) as made:
        manager = made.manager
        with load.on(made.address, callers=3, size=1):
            made.wait_for(lambda now: now.under_way == 2, seconds=120)
            policy.min_replicas = policy.max_replicas = 1
            until = time.monotonic() + 60
            while not manager._draining:
                assert time.monotonic() < until
                time.sleep(0.01)
            killed_dispatcher(made)
            until = time.monotonic() + 60
            while len(manager._actors) > 1:
                assert time.monotonic() < until, made.statistics()
                time.sleep(0.1)
    assert load.wrong == 0


def test_released_pool_ends_its_replicas_and_still_answers_late_requests(ray_cluster: None, tmp_path: Path):
    load = Load(tmp_path / "log")
    with pool(Counted(str(load.log), seconds=0.0), PoolConfig(min_replicas=2)) as made:
        made.manager.dispatcher.release_replicas.remote()
        made.wait_for(lambda now: now.replicas == 0)
        assert made.handle().ask("double", [4]) == [8]


@dataclass(frozen=True)
class Talker:
    """A language model that takes its time for a reply."""

    def reply(self, chats: Sequence[Chat]) -> list[Reply]:
        time.sleep(0.3)
        return [Reply(text=chat.messages[0].text) for chat in chats]


@contextmanager
def conversations(address: PoolAddress, count: int) -> Iterator[None]:
    """So many conversations that go on until the block ends; each must get its own replies."""
    backbones = [PooledBackbone(address, f"caller {number}") for number in range(count)]

    def talk(number: int) -> None:
        chat = Chat(conversation=f"c{number}", messages=[user(f"{number}")], seed=0, max_tokens=1)
        assert [reply.text for reply in backbones[number].reply([chat])] == [f"{number}"]

    with repeating(talk, count):
        yield


def test_pool_of_a_language_model_shrinks_although_each_replica_has_a_chat(ray_cluster: None):
    with pool(Talker(), PoolConfig(max_replicas=2), concurrency=4, policy=quick(1, 2)) as made:
        with conversations(made.address, 8):
            made.wait_for(lambda now: now.replicas == 2, seconds=120)
        with conversations(made.address, 2):
            made.wait_for(lambda now: now.replicas == 1, seconds=120)
        assert made.statistics().deaths == 0


# -- on nodes with pretended GPUs ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("elastic")
    done = subprocess.run(
        [sys.executable, "-m", "tests.helpers.elastic", str(folder)],
        env=os.environ | {"RAY_AUTH_MODE": "token"}, cwd=REPOSITORY, capture_output=True, text=True, timeout=400,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads((folder / "found.json").read_text())


@pytest.mark.nightly
def test_cluster_that_lacks_a_gpu_for_all_replicas_is_used_as_far_as_it_goes(found: dict[str, Any]):
    assert found["short"]["said"] == [
        "1 node with 7 GPUs: the pools start with 4 replicas; of the 11 to which they may grow (pools.….max_replicas), 7 find room"
    ]
    assert found["short"]["started"] == {"target": 1, "generator": 1, "editor": 1, "backbone": 1}
    assert found["short"]["grown"] == {"target": 4, "generator": 1, "editor": 1, "backbone": 1}


@pytest.mark.nightly
def test_released_pools_give_their_gpus_to_the_others(found: dict[str, Any]):
    after = found["released"]["after"]
    assert after["target"] + after["generator"] == 7 and after["generator"] > 1, after
    assert (after["editor"], after["backbone"]) == (0, 0)
    assert found["released"]["counted"] == FLAWLESS


@pytest.mark.nightly
def test_released_pool_gets_a_gpu_back_for_a_late_request(found: dict[str, Any]):
    assert found["released"]["late"] == [2 * 10**6]


@pytest.mark.nightly
def test_node_that_joins_is_used_by_a_pool_that_wants_to_grow(found: dict[str, Any]):
    assert found["joined"]["before"] == 1
    assert found["joined"]["after"] == 3
    assert found["joined"]["nodes"] == 2
    assert found["joined"]["counted"] == FLAWLESS
