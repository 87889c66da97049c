"""Investigations on the cluster: where they run, what they share, and what happens when processes and nodes go."""

import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from openmaia.config import load
from openmaia.remote.drive import UnderWay, drive
from openmaia.remote.investigator import Job
from openmaia.remote.services import pools
from openmaia.schema import Config
from openmaia.store.exemplars import ExemplarStore
from tests.conftest import REPOSITORY
from tests.sweeping import ANSWER, planned, short, sources

pytestmark = pytest.mark.slow

TOOLS = [
    "tools=[tests.sweeping:process_id,tests.sweeping:heavy_modules,tests.sweeping:end_the_process,tests.sweeping:wait]"
]


@contextmanager
def job(config: Config, units: int) -> Iterator[Job]:
    run = planned(config, units)
    store = ExemplarStore.at(config.paths.exemplars, config.target.name, "none")
    with pools(config) as made:
        yield Job(config=config, run=run, pools=made, exemplars=store)


def code(text: str) -> str:
    return f"[CODE]:\n```python\n{text}\n```"


def test_an_investigating_process_imports_neither_torch_nor_a_model_stack(ray_cluster: None, tmp_path: Path):
    config = load([*sources(tmp_path, [code("print(tools.heavy_modules())"), ANSWER]), *TOOLS])
    with job(config, 1) as given:
        assert [result.cause for _, result in drive(config, [given])] == [""]
        turn = given.run.record(given.run.plan()[0]).turns[0]
    assert [part for part in turn.observation if isinstance(part, str)] == ["[]\n"]


def test_one_process_runs_several_investigations_at_once(ray_cluster: None, tmp_path: Path):
    replies = [code("print(tools.process_id()); tools.wait(1.0)"), ANSWER]
    config = load([*sources(tmp_path, replies), *TOOLS, "ray.investigations=4", "ray.investigations_per_process=2"])
    most = 0

    def look(running: Sequence[UnderWay]) -> None:
        nonlocal most
        most = max(most, len(running))

    with job(config, 8) as given:
        results = [result for _, result in drive(config, [given], look)]
        seen = Counter(str(given.run.record(r.owed).turns[0].observation[0]) for r in results)
    assert len(results) == 8
    assert len(seen) == 2, "two processes for four at once"
    assert most <= 4


def test_an_investigation_that_kills_its_process_fails_alone(ray_cluster: None, tmp_path: Path):
    replies = [code("tools.wait(0.5); tools.end_the_process()"), ANSWER]
    # More processes are wanted than the cluster has room for, and what the dead one had is taken at once.
    full = ["ray.investigations=8", "ray.investigations_per_process=2", "ray.cpus_per_investigation=0.5"]
    config = load([*sources(tmp_path, replies), *TOOLS, *full, "retries=1"])
    with job(config, 6) as given:
        results = {result.owed: result for _, result in drive(config, [given])}
        failed = [owed.unit.index for owed, result in results.items() if result.summary is None]
    assert len(results) == 6
    assert failed == [3]
    assert given.run.failures().keys() == {owed for owed in results if owed.unit.index == 3}


def test_nothing_is_left_of_the_processes_when_all_is_done(ray_cluster: None, tmp_path: Path):
    config = load([*sources(tmp_path, [code("print(tools.process_id())"), ANSWER]), *TOOLS])
    with job(config, 3) as given:
        list(drive(config, [given]))
        record = given.run.record(given.run.plan()[0])
    process = int(str(record.turns[0].observation[0]))
    until = time.monotonic() + 20
    while Path(f"/proc/{process}").exists() and time.monotonic() < until:
        time.sleep(0.1)
    assert not Path(f"/proc/{process}").exists()


def test_jobs_take_turns_and_share_all_pools_but_the_target(ray_cluster: None, tmp_path: Path):
    from openmaia.remote.services import shared

    configs = [short(tmp_path, f"name={name}", f"target.name={name}", "ray.investigations=1") for name in "ab"]
    runs = [planned(config, 4) for config in configs]
    store = ExemplarStore.at(configs[0].paths.exemplars, "a", "none")
    with shared(configs) as made:
        jobs = [Job(config=c, run=r, pools=p, exemplars=store) for c, r, p in zip(configs, runs, made, strict=True)]
        order = [number for number, _ in drive(configs[0], jobs)]
        assert made[0].dispatchers["backbone"] is made[1].dispatchers["backbone"]
        assert [each.target("x").info().name for each in made] == ["a", "b"]
    assert order == [0, 1] * 4
    assert [len(run.done()) for run in runs] == [4, 4]


@pytest.mark.timeout(180)
def test_on_a_cluster_that_has_grown_to_its_end_investigations_leave_room_for_replicas(
    ray_cluster: None, tmp_path: Path
):
    """There each replica has a place of its own, which investigations do not take."""
    greedy = ["ray.autoscaling=true", "ray.investigations=16", "ray.cpus_per_investigation=0.5"]
    roles = ("target", "generator", "editor", "backbone")
    config = short(tmp_path, *greedy, *(f"pools.{role}.num_cpus=0.25" for role in roles))
    with job(config, 12) as given:
        assert [result.cause for _, result in drive(config, [given])] == [""] * 12


def test_a_unit_that_was_published_before_its_process_died_is_not_run_again(ray_cluster: None, tmp_path: Path):
    config = load([*sources(tmp_path, [ANSWER]), "ray.investigations=4"])
    with job(config, 4) as given:
        first = next(iter(drive(config, [given])))[1]
        before = os.stat(given.run.record_path(first.owed)).st_ino
        again = list(drive(config, [given]))
    assert first.owed not in {result.owed for _, result in again}
    assert os.stat(given.run.record_path(first.owed)).st_ino == before


# -- nodes that come and go ------------------------------------------------------------------------------------------


@pytest.mark.timeout(900)
def test_two_hundred_units_are_done_once_while_a_node_is_removed_and_another_added(tmp_path: Path):
    """In a process of its own, beside the cluster that other tests share."""
    environment = os.environ | {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "0123456789abcdef" * 4}
    command = [sys.executable, "-m", "tests.come_and_go", str(tmp_path), "200"]
    done = subprocess.run(command, env=environment, cwd=REPOSITORY, capture_output=True, text=True, timeout=800)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
