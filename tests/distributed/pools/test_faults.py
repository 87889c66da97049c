"""Pools of real actors under faults: every request is answered rightly, and no replica is lost."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest
import ray

from openmaia.config.machine import PoolConfig
from openmaia.core.errors import ServiceError, UsageError
from openmaia.core.messages import Chat, Reply, user
from openmaia.distributed.pools.handles import PooledBackbone
from tests.conftest import REPOSITORY
from tests.helpers.sleeping import (
    Sleeping,
    callers,
    first_fails,
    hung_replica,
    killed_dispatcher,
    killed_replica,
    pool,
    survive,
    wait_until,
)

pytestmark = pytest.mark.slow

SERVICE = Sleeping(fixed=0.02, each=0.005)
CALLS, SIZE = 40, 5


def settings(**values: Any) -> PoolConfig:
    return PoolConfig(**{"min_replicas": 2, "max_batch": 8, "deadline": 60.0} | values)


@pytest.fixture
def crowd(ray_cluster: None) -> Iterator[list[Any]]:
    made = callers(3)
    yield made
    for one in made:
        ray.kill(one)


def pids(handle: Any, replicas: int) -> set[int]:
    """The processes of so many replicas. The last of them may be loading still when the first one answers."""
    found: set[int] = set()
    with ThreadPoolExecutor(8) as threads:
        while len(found) < replicas:
            found |= {answer[0] for answer in threads.map(lambda _: handle.ask("pids", [None]), range(8))}
    return found


@pytest.mark.parametrize(
    ("fault", "deadline", "deaths"),
    [
        pytest.param(killed_replica, 60.0, 1, id="killed replica"),
        pytest.param(hung_replica, 3.0, 1, id="hung replica", marks=pytest.mark.nightly),
        pytest.param(killed_dispatcher, 60.0, 0, id="killed dispatcher"),
    ],
)
def test_fault_every_request_is_answered(crowd: list[Any], fault: Callable[[Any], None], deadline: float, deaths: int):
    with pool(SERVICE, settings(deadline=deadline)) as made:
        found = survive(made, crowd, CALLS, SIZE, fault, after=0.3)
    assert (found.answered, found.wrong) == (3 * CALLS * SIZE, 0)
    # A busy machine may keep a healthy replica from its answer for as long as the short deadline.
    assert found.deaths >= deaths if fault is hung_replica else found.deaths == deaths


def test_dispatcher_restart_loses_no_replica(ray_cluster: None):
    with pool(SERVICE, settings(min_replicas=2)) as made:
        handle = made.handle()
        before = pids(handle, 2)
        killed_dispatcher(made)
        assert handle.ask("double", [4]) == [8]
        made.wait_for(lambda now: now.replicas == 2)
        assert {handle.ask("pids", [None])[0] for _ in range(20)} <= before
        assert all(psutil.pid_exists(pid) for pid in before)


def test_hung_replica_is_killed(ray_cluster: None):
    """It would keep its GPU."""
    with pool(SERVICE, settings(min_replicas=1, deadline=2.0)) as made:
        handle = made.handle()
        hung = handle.ask("pids", [None])[0]
        os.kill(hung, signal.SIGSTOP)
        assert handle.ask("double", [4]) == [8]
        wait_until(lambda: not psutil.pid_exists(hung))


@dataclass(frozen=True)
class HangsOnce:
    """Its first call never ends; later ones, also in a process that replaces it, are answered."""

    hung: Path

    def double(self, numbers: Sequence[int]) -> list[int]:
        if not self.hung.exists():
            self.hung.touch()
            time.sleep(1000)
        return [2 * number for number in numbers]


def test_hung_replica_is_asked_again_only_in_a_new_process(ray_cluster: None, tmp_path: Path):
    """Until Ray gets to ending it, as on a busy machine, the old process still answers."""
    (raylet,) = [one for one in psutil.Process().children(recursive=True) if one.name() == "raylet"]
    host = HangsOnce(tmp_path / "hung")
    with pool(host, settings(min_replicas=1, deadline=2.0)) as made, ThreadPoolExecutor(1) as threads:
        asked = threads.submit(made.handle().ask, "double", [4])
        wait_until(host.hung.exists)
        raylet.suspend()
        try:
            made.wait_for(lambda now: now.deaths > 0)
            time.sleep(1)
        finally:
            raylet.resume()
        assert asked.result(timeout=60) == [8]
        assert made.statistics().deaths == 1


def test_idle_death_does_not_count_against_a_request(ray_cluster: None):
    with pool(SERVICE, settings(min_replicas=3)) as made:
        handle = made.handle()
        for pid in pids(handle, 3):
            os.kill(pid, signal.SIGKILL)
        assert handle.ask("double", [1, 2, 3]) == [2, 4, 6]
        assert made.statistics().failed == 0


@dataclass(frozen=True)
class Fragile:
    """A language model whose process dies over one chat. It tells its process id."""

    def pids(self, given: Sequence[Any]) -> list[int]:
        return [os.getpid()] * len(given)

    def reply(self, chats: Sequence[Chat]) -> list[Reply]:
        time.sleep(0.5)
        if chats[0].messages[0].text == "deadly":
            os._exit(1)
        return [Reply(text=f"{chat.messages[0].text} {os.getpid()}") for chat in chats]


def chatted(made: Any, text: str) -> str:
    chat = Chat(conversation=text, messages=[user(text)], seed=0, max_tokens=1)
    return PooledBackbone(made.address, text).reply([chat])[0].text


def test_chat_that_kills_its_replica_fails_alone(ray_cluster: None):
    with pool(Fragile(), settings(min_replicas=1), concurrency=4) as made, ThreadPoolExecutor(4) as threads:
        others = [threads.submit(chatted, made, f"chat {number}") for number in range(3)]
        deadly = threads.submit(chatted, made, "deadly")
        assert [one.result(timeout=180).split()[:2] for one in others] == [["chat", f"{n}"] for n in range(3)]
        with pytest.raises(ServiceError, match="died 3 times over this request"):
            deadly.result(timeout=180)
        assert (made.statistics().deaths, made.statistics().failures) == (3, {"died": 1})


def test_idle_deaths_do_not_count_against_a_chat(ray_cluster: None):
    with pool(Fragile(), settings(min_replicas=4), concurrency=1) as made, ThreadPoolExecutor(4) as threads:
        pids = {text.split()[1] for text in threads.map(partial(chatted, made), "abcd")}
        assert len(pids) == 4
        for pid in pids:
            os.kill(int(pid), signal.SIGKILL)
        text, pid = chatted(made, "e").split()
        assert text == "e" and pid not in pids


def test_requests_wait_while_another_replica_still_loads(ray_cluster: None, tmp_path: Path):
    flag = tmp_path / "flag"
    with pool(partial(first_fails, flag), settings(), ready=False) as made:
        wait_until(flag.exists)
        time.sleep(1)
        assert made.handle().ask("double", [2]) == [4]


@pytest.mark.nightly
def test_replica_that_takes_all_memory_counts_as_dead():
    """Ray says it with another exception."""
    command = [sys.executable, "-m", "tests.helpers.out_of_memory"]
    environment = os.environ | {"RAY_AUTH_MODE": "token"}
    done = subprocess.run(command, env=environment, cwd=REPOSITORY, capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads(done.stdout.splitlines()[-1]) == {
        "before": [2], "deadly": "the target died twice over this request", "after": [4], "deaths": 2,
    }  # fmt: skip


@pytest.mark.parametrize("cpus", [0.0, pytest.param(1.5, marks=pytest.mark.nightly)])
def test_unstartable_replica_is_reported(ray_cluster: None, cpus: float):
    """Also if the other replica of the pool waits for room."""

    def refused() -> Any:
        raise UsageError("the disk has no weights")

    with (
        pool(refused, settings(num_cpus=cpus), ready=False) as made,
        pytest.raises(UsageError, match="the disk has no weights"),
    ):
        made.handle().ask("double", [1])


def test_requests_of_a_caller_that_left_are_dropped(crowd: list[Any]):
    (dead,), living = callers(1), crowd[1]
    with pool(Sleeping(fixed=0.05), settings(min_replicas=1)) as made:
        dead.run.remote(made.address, 1, 1000)
        made.wait_for(lambda now: now.waiting > 100)
        asked = living.run.remote(made.address, 10, 1)
        ray.kill(dead)
        ray.get(made.manager.dispatcher.leave.remote(["caller 0"]), timeout=60)  # as the scheduler does
        found = ray.get(asked, timeout=180)
        counted = made.statistics()
    assert (len(found.at), found.wrong) == (10, 0)
    assert counted.dropped > 100
    assert counted.batched < 1000


def test_a_chat_of_a_caller_that_left_ends_and_blocks_nobody(ray_cluster: None):
    with pool(Fragile(), settings(min_replicas=1), concurrency=1) as made, ThreadPoolExecutor(3) as threads:
        first = threads.submit(chatted, made, "first")
        made.wait_for(lambda now: now.under_way == 1)
        lost = threads.submit(chatted, made, "lost")
        made.wait_for(lambda now: now.waiting == 1)
        other = threads.submit(chatted, made, "other")
        ray.get(made.manager.dispatcher.leave.remote(["lost"]), timeout=60)
        with pytest.raises(ServiceError, match="lost has left"):
            lost.result(timeout=60)
        # A process on a node that was cut off for a while asks again.
        with pytest.raises(ServiceError, match="lost has left"):
            chatted(made, "lost")
        assert [one.result(timeout=60).split()[0] for one in (first, other)] == ["first", "other"]
        assert made.statistics().dropped == 1


@pytest.mark.parametrize(
    "fault",
    [killed_replica, *(pytest.param(fault, marks=pytest.mark.nightly) for fault in (killed_dispatcher, hung_replica))],
)
def test_fault_every_chat_is_answered(ray_cluster: None, fault: Callable[[Any], None]):
    with pool(Fragile(), settings(deadline=6.0), concurrency=4) as made, ThreadPoolExecutor(8) as threads:
        asked = [threads.submit(chatted, made, f"chat {number}") for number in range(24)]
        made.wait_for(lambda now: now.under_way > 4)
        fault(made)
        assert [one.result(timeout=180).split()[:2] for one in asked] == [["chat", f"{n}"] for n in range(24)]


def test_a_dead_owner_of_requests_harms_no_other_request(ray_cluster: None, tmp_path: Path):
    """The requests of a caller that died before they were read are lost; those in the same batch are answered."""
    (dead,) = callers(1)
    pid = ray.get(dead.pid.remote(), timeout=60)
    service = Sleeping(until=f"{tmp_path}/end")
    with pool(service, settings(min_replicas=1, max_batch=64)) as made, ThreadPoolExecutor(2) as threads:
        first = threads.submit(made.handle("first").ask, "double", [1])
        made.wait_for(lambda now: now.under_way == 1)
        dead.run.remote(made.address, 1, 3)
        made.wait_for(lambda now: now.waiting == 3)
        other = threads.submit(made.handle("other").ask, "double", [7])
        made.wait_for(lambda now: now.waiting == 4)
        ray.kill(dead)
        wait_until(lambda: not psutil.pid_exists(pid))
        (tmp_path / "end").touch()
        assert other.result(timeout=60) == [14]
        assert first.result(timeout=60) == [2]
        assert made.statistics().deaths == 0


def test_callers_beyond_the_bound_wait_and_are_answered(crowd: list[Any]):
    """Also through the death of a replica."""
    with pool(SERVICE, settings(), max_waiting=6) as made:
        asked = [one.run.remote(made.address, 20, 5, 1000 * i) for i, one in enumerate(crowd)]
        most, outside, killed, done = 0, 0, False, []
        while len(done) < 3:
            done, _ = ray.wait(asked, num_returns=3, timeout=0.02)
            now = made.statistics()
            most, outside = max(most, now.waiting + now.under_way), max(outside, now.outside)
            if not killed and now.batched > 20:
                killed = True
                killed_replica(made)
        assert [ray.get(one, timeout=60).wrong for one in asked] == [0, 0, 0]
        assert 0 < most <= 6
        assert outside > 0
