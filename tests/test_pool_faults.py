"""What dies, hangs or leaves in the middle: everybody else is answered, and rightly."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest
import ray

from openmaia.errors import ServiceError, UsageError
from openmaia.remote import wire
from openmaia.remote.failures import resolve
from openmaia.remote.pool import dispatcher
from openmaia.remote.replica import Hosting, launch
from openmaia.remote.staging import Staging
from openmaia.schema import PoolConfig
from tests.conftest import REPOSITORY
from tests.sleeping import (
    POISON,
    Handle,
    Sleeping,
    callers,
    elsewhere,
    first_fails,
    hung_replica,
    killed_dispatcher,
    killed_replica,
    pid_of,
    pool,
    same,
    survive,
)

SERVICE = Sleeping(fixed=0.01, each=0.002)
CALLS, SIZE = 60, 3


def settings(**more: Any) -> PoolConfig:
    return PoolConfig(**{"replicas": 2, "max_batch": 4, "deadline": 60.0} | more)


def wait_for(condition: Callable[[], bool], seconds: float = 90) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.05)


@pytest.fixture(scope="module")
def crowd(ray_cluster: None) -> Iterator[list[Any]]:
    made = callers(3)
    yield made
    for one in made:
        ray.kill(one)


@pytest.mark.parametrize(
    ("fault", "deadline", "deaths"),
    [(killed_replica, 60.0, 1), (hung_replica, 3.0, 1), (killed_dispatcher, 60.0, 0)],
    ids=["killed replica", "hung replica", "killed dispatcher"],
)
def test_everybody_is_answered_rightly(crowd: list[Any], fault: Callable[[Any], None], deadline: float, deaths: int):
    with pool(SERVICE, settings(deadline=deadline)) as actor:
        found = survive(actor, crowd, CALLS, SIZE, fault, after=0.3)
    assert (found.answered, found.wrong) == (3 * CALLS * SIZE, 0)
    assert found.deaths == deaths


def test_a_hung_replica_is_gone_when_another_has_its_place(ray_cluster: None):
    """It would keep its GPU."""
    with pool(SERVICE, settings(replicas=1, deadline=2.0)) as actor:
        handle = Handle(actor, "a")
        hung = handle.ask("pids", [None])[0]
        os.kill(hung, signal.SIGSTOP)
        assert handle.ask("double", [4]) == [8]
        wait_for(lambda: not psutil.pid_exists(hung))


def test_replicas_that_died_unnoticed_are_not_the_requests_doing(ray_cluster: None):
    with pool(SERVICE, settings(replicas=3)) as actor:
        handle = Handle(actor, "a")
        with ThreadPoolExecutor(8) as threads:
            pids: set[int] = set()
            while len(pids) < 3:
                pids |= {found[0] for found in threads.map(lambda _: handle.ask("pids", [None]), range(8))}
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        assert handle.ask("double", [1, 2, 3]) == [2, 4, 6]
        assert ray.get(actor.counters.remote(), timeout=60).failed == 0


def test_nobody_is_refused_while_another_replica_still_loads(ray_cluster: None, tmp_path: Path):
    flag = tmp_path / "flag"
    actor = dispatcher(Hosting(role="target", make=partial(first_fails, flag), pool=settings()), run="half")
    try:
        actor.counters.remote()  # starts its replicas
        wait_for(flag.exists)
        time.sleep(1)
        assert Handle(actor, "a").ask("double", [2]) == [4]
    finally:
        ray.kill(actor)


def test_a_replica_that_takes_all_memory_is_a_dead_one():
    """Ray says it with an exception of another kind."""
    command = [sys.executable, "-m", "tests.out_of_memory"]
    environment = os.environ | {"RAY_AUTH_MODE": "token"}
    done = subprocess.run(command, env=environment, cwd=REPOSITORY, capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stderr[-3000:]
    said = json.loads(done.stdout.splitlines()[-1])
    assert said == {"before": [2], "deadly": "the target died twice over this request", "after": [4], "deaths": 2}


def test_a_caller_that_dies_leaves_its_place_in_the_line_and_before_the_door(ray_cluster: None):
    inside, outside = callers(2)
    with (
        pool(Sleeping(fixed=5.0), settings(replicas=1, max_batch=1, max_waiting=2)) as actor,
        ThreadPoolExecutor(1) as threads,
    ):

        def count() -> tuple[int, int, int]:
            found = resolve(actor.counters.remote())
            return found.waiting, found.outside, found.dropped

        served = threads.submit(Handle(actor, "served").ask, "double", [3])
        wait_for(lambda: resolve(actor.counters.remote()).under_way == 1)
        inside.run.remote(actor, 1, 1)
        wait_for(lambda: count() == (1, 0, 0))
        outside.run.remote(actor, 1, 2)
        wait_for(lambda: count() == (1, 2, 0))
        for doomed, left in ((outside, (1, 0, 0)), (inside, (0, 0, 1))):
            ray.kill(doomed)
            wait_for(lambda left=left: count() == left, seconds=4)
        assert not served.done()
        assert served.result(timeout=60) == [6]


def test_a_replica_that_ray_refuses_to_start_is_said_and_not_waited_for(ray_cluster: None):
    hosting = Hosting(role="target", make=partial(same, Sleeping()), pool=settings(node_labels={"no label": "!"}))
    actor = dispatcher(hosting, run="refused")
    try:
        with pytest.raises(UsageError, match="the target could not be started: ValueError"):
            Handle(actor, "a").ask("double", [1])
    finally:
        ray.kill(actor)


def test_a_replica_out_of_reach_is_the_networks_fault_and_not_waited_for(
    ray_cluster: None, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(wire, "PATIENCE", 1.0)
    hosting = Hosting(role="target", make=elsewhere, pool=settings())
    with pytest.raises(UsageError, match="127.0.0.1:1 is out of reach .* ports between the nodes"):
        asyncio.run(asyncio.wait_for(launch(hosting, 0, Staging()), 60))


@pytest.mark.parametrize(("at_once", "often"), [(0, "twice"), (4, "three times")])
def test_a_poisonous_request_fails_alone(ray_cluster: None, at_once: int, often: str):
    with pool(Sleeping(fixed=0.3), settings(), at_once=at_once) as actor, ThreadPoolExecutor(9) as threads:
        others = [threads.submit(Handle(actor, f"{i}").ask, "double", [i]) for i in range(8)]
        deadly = threads.submit(Handle(actor, "deadly").ask, "double", [POISON])
        assert [one.result(timeout=180) for one in others] == [[2 * i] for i in range(8)]
        with pytest.raises(ServiceError, match=f"died {often} over this request"):
            deadly.result(timeout=180)
        assert ray.get(actor.counters.remote(), timeout=60).failures == {"died": 1}


def test_what_a_killed_agent_asked_for_is_dropped_and_the_others_are_served(crowd: list[Any]):
    (dead,), living = callers(1), crowd[1]
    with pool(Sleeping(fixed=0.05), settings(replicas=1)) as actor:
        dead.run.remote(actor, 1, 1000)
        wait_for(lambda: ray.get(actor.counters.remote(), timeout=60).waiting > 100)
        asked = living.run.remote(actor, 10, 1)
        ray.kill(dead)
        ray.get(actor.leave.remote(["caller 0"]), timeout=60)  # as the driver does
        found = ray.get(asked, timeout=180)
        counters = ray.get(actor.counters.remote(), timeout=60)
    assert (len(found.at), found.wrong) == (10, 0)
    assert counters.dropped > 100 and counters.batched < 1000


def test_callers_wait_with_what_is_too_much_and_all_are_answered(crowd: list[Any]):
    """Through the death of a replica, whose requests go on although everything is full."""
    with pool(SERVICE, settings(max_waiting=6)) as actor:
        asked = [one.run.remote(actor, 20, 5, 1000 * i) for i, one in enumerate(crowd)]
        most, outside, killed, done = 0, 0, False, []
        while len(done) < 3:
            done, _ = ray.wait(asked, num_returns=3, timeout=0.02)
            now = ray.get(actor.counters.remote(), timeout=60)
            most, outside = max(most, now.waiting + now.under_way), max(outside, now.outside)
            if outside and now.requests > 60 and not killed:
                killed_replica(actor)
                killed = True
        assert sum(one.wrong for one in ray.get(asked, timeout=60)) == 0
        assert 0 < most <= 6 and outside > 0 and killed


def test_a_dead_caller_before_the_door_is_forgotten(ray_cluster: None):
    with (
        pool(Sleeping(fixed=1.0), settings(replicas=1, max_waiting=4, max_batch=1)) as actor,
        ThreadPoolExecutor(3) as threads,
    ):
        first = threads.submit(Handle(actor, "first").ask, "double", [1, 2, 3, 4])
        wait_for(lambda: ray.get(actor.counters.remote(), timeout=60).requests == 4)
        asked = actor.admit.remote("dead", 4)
        wait_for(lambda: ray.get(actor.counters.remote(), timeout=60).outside == 4)
        ray.get(actor.leave.remote(["dead"]), timeout=60)
        ray.get(asked, timeout=60)
        assert ray.get(actor.counters.remote(), timeout=60).outside == 0
        later = threads.submit(Handle(actor, "later").ask, "double", [5, 6, 7, 8])
        assert first.result(timeout=60) == [2, 4, 6, 8] and later.result(timeout=60) == [10, 12, 14, 16]


DRIVER = """
import sys, time, ray
from openmaia.schema import PoolConfig
from tests.sleeping import Handle, Sleeping, pid_of, pool
ray.init(address=sys.argv[1], log_to_driver=False)
with pool(Sleeping(fixed=600), PoolConfig(replicas=1)) as actor:
    print(pid_of(actor), *Handle(actor, "a").ask("pids", [None]), flush=True)
    Handle(actor, "a").ask("double", [1])
"""


def test_a_driver_that_dies_leaves_no_process(ray_cluster: None):
    address = ray.get_runtime_context().gcs_address
    command = [sys.executable, "-c", DRIVER, address]
    # Ray otherwise looks for what listens to loopback at this host's address.
    variables = os.environ | {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
    output = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command, cwd=REPOSITORY, env=variables, **output) as driver:
        assert driver.stdout
        pids = [int(pid) for pid in driver.stdout.readline().split()]
        driver.kill()
    assert len(pids) == 2
    wait_for(lambda: not any(psutil.pid_exists(pid) for pid in pids))


def test_a_dispatcher_that_is_killed_leaves_no_replica(ray_cluster: None):
    with pool(SERVICE, settings(replicas=1)) as actor:
        before = Handle(actor, "a").ask("pids", [None])[0]
        os.kill(pid_of(actor), signal.SIGKILL)
        assert Handle(actor, "a").ask("pids", [None])[0] != before
        wait_for(lambda: not psutil.pid_exists(before))
