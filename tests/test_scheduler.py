"""Investigations on the cluster: where they run, what they share, and what happens when processes and nodes go."""

import os
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import ray

from openmaia.config import load
from openmaia.remote.drive import UnderWay, drive
from openmaia.remote.investigator import Job
from openmaia.remote.services import pools
from openmaia.schema import Config
from openmaia.store.exemplars import ExemplarStore
from openmaia.store.run import Owed, Run
from tests.sweeping import ANSWER, planned, short, sources

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
    config = load([*sources(tmp_path, replies), *TOOLS, "ray.investigations=4", "retries=1"])
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


def test_a_unit_that_was_published_before_its_process_died_is_not_run_again(ray_cluster: None, tmp_path: Path):
    config = load([*sources(tmp_path, [ANSWER]), "ray.investigations=4"])
    with job(config, 4) as given:
        first = next(iter(drive(config, [given])))[1]
        before = os.stat(given.run.record_path(first.owed)).st_ino
        again = list(drive(config, [given]))
    assert first.owed not in {result.owed for _, result in again}
    assert os.stat(given.run.record_path(first.owed)).st_ino == before


# -- nodes that come and go ------------------------------------------------------------------------------------------


@pytest.fixture
def three_nodes() -> Iterator[Any]:
    if ray.is_initialized():
        pytest.skip("another cluster is in use")
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    try:
        ray.init(address=cluster.address, log_to_driver=False)
        yield cluster
    finally:
        ray.shutdown()
        cluster.shutdown()


def nodes_used(run: Run) -> set[str]:
    return {str(run.record(owed).turns[0].observation[0]).strip() for owed in run.done()}


def come_and_go(cluster: Any, folder: Path, units: int) -> None:
    """Of three nodes one, with a dispatcher on it if there is such a one, is removed in the middle; another is added."""
    second, third = cluster.add_node(num_cpus=1), cluster.add_node(num_cpus=1)
    replies = [code("print(tools.node_id()); tools.wait(0.3)"), ANSWER]
    config = load(
        [
            *sources(folder, replies),
            "tools=[tests.sweeping:node_id,tests.sweeping:wait]",
            "ray.investigations=16",
            "ray.investigations_per_process=2",
            "ray.cpus_per_investigation=0.25",
            "ray.memory_mb=100",
            "retries=3",
        ]
    )
    ended: Counter[Owed] = Counter()
    added = ""
    with job(config, units) as given:
        given.pools.target("test").info()
        for _, result in drive(config, [given]):
            assert result.summary is not None, result.cause
            ended[result.owed] += 1
            if sum(ended.values()) == units // 3:
                cluster.remove_node(third, allow_graceful=False)
                added = cluster.add_node(num_cpus=1).node_id
    assert len(ended) == units == len(given.run.done())
    assert set(ended.values()) == {1}
    assert {second.node_id, added} <= nodes_used(given.run)
    assert given.run.owed() == []


def test_a_node_is_removed_and_another_added_and_every_unit_is_done_once(three_nodes: Any, tmp_path: Path):
    come_and_go(three_nodes, tmp_path, 24)


@pytest.mark.slow
def test_two_hundred_units_while_a_node_is_removed_and_another_added(three_nodes: Any, tmp_path: Path):
    come_and_go(three_nodes, tmp_path, 200)
