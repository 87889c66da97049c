"""Investigations on the cluster: where they run, what they share, and what happens when processes and nodes go."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from openmaia.assembly import ConfigAssembly, exemplars
from openmaia.config.loading import load
from openmaia.config.schema import Config
from openmaia.core.errors import ServiceError
from openmaia.distributed.pools.handles import Pools
from openmaia.distributed.scheduler import Scheduler
from openmaia.distributed.worker import SweepContext
from openmaia.runs.run import InvestigationId
from tests.conftest import REPOSITORY
from tests.helpers.run_pools import backbone_pool, pools
from tests.helpers.sweeping import ANSWER, LAYERS, planned, short, sources

pytestmark = pytest.mark.slow

TOOLS = [
    "tools=[tests.helpers.sweeping:process_id,tests.helpers.sweeping:heavy_modules,tests.helpers.sweeping:end_the_process,tests.helpers.sweeping:wait,tests.helpers.sweeping:wait_for_processes]"
]


@contextmanager
def job(
    config: Config, units: int, started: Callable[[Config], AbstractContextManager[Pools]] = backbone_pool
) -> Iterator[SweepContext]:
    run = planned(config, units)
    store = exemplars.make(config, list(LAYERS))
    with started(config) as made:
        yield SweepContext(config=config, run=run, pools=made, exemplars=store, assembly=ConfigAssembly())


def code(text: str) -> str:
    return f"[CODE]:\n```python\n{text}\n```"


LOOKS = """print(tools.heavy_modules())
print(tools.process_id())
tools.wait_for_processes({folder!r}, 2, 4)"""


@dataclass
class Seen:
    """What eight investigations saw, of which four ran at once in processes for two."""

    done: int
    most: int
    """Largest number under way."""
    imported: set[str]
    processes: set[int]


@pytest.fixture(scope="module")
def seen(ray_cluster: None, tmp_path_factory: pytest.TempPathFactory) -> Seen:
    folder = tmp_path_factory.mktemp("seen")
    at_once = ["ray.investigations=4", "ray.investigations_per_process=2"]
    (folder / "processes").mkdir()
    looks = code(LOOKS.format(folder=str(folder / "processes")))
    config = load([*sources(folder, [looks, ANSWER]), *TOOLS, *at_once])
    under_way = list[int]()
    with job(config, 8) as given:
        results = Scheduler(config, [given], lambda running: under_way.append(len(running))).results()
        done = [result.investigation for _, result in results]
        printed = [str(given.run.record(each).turns[0].observation[0]).splitlines() for each in done]
    imported, processes = zip(*printed, strict=True)
    return Seen(len(done), max(under_way), set(imported), set(map(int, processes)))


@pytest.mark.nightly
def test_an_investigating_process_imports_neither_torch_nor_a_model_stack(seen: Seen):
    assert seen.imported == {"[]"}


def test_one_process_runs_several_investigations_at_once(seen: Seen):
    assert seen.done == 8
    assert len(seen.processes) == 2, "two processes for four at once"
    assert seen.most <= 4


def test_nothing_is_left_of_the_processes_when_all_is_done(seen: Seen):
    until = time.monotonic() + 120
    while (left := {each for each in seen.processes if Path(f"/proc/{each}").exists()}) and time.monotonic() < until:
        time.sleep(0.1)
    assert not left


def test_an_investigation_that_kills_its_process_fails_alone(ray_cluster: None, tmp_path: Path):
    replies = [code("tools.wait(0.5); tools.end_the_process()"), ANSWER]
    # More processes are wanted than the cluster has room for, and what the dead one had is taken at once.
    full = ["ray.investigations=8", "ray.investigations_per_process=2", "ray.cpus_per_investigation=0.5"]
    config = load([*sources(tmp_path, replies), *TOOLS, *full, "retries=1"])
    with job(config, 6) as given:
        results = {result.investigation: result for _, result in Scheduler(config, [given]).results()}
        failed = [investigation.unit.index for investigation, result in results.items() if result.summary is None]
    assert len(results) == 6
    assert failed == [3]
    assert given.run.failures().keys() == {investigation for investigation in results if investigation.unit.index == 3}


@dataclass
class Failing:
    """Fails all investigations."""

    sweeps: Sequence[SweepContext]

    def start(self) -> None:
        pass

    def investigate(self, number: int, investigation: InvestigationId, caller: str) -> None:
        raise ServiceError("the model cannot be loaded again")


def test_a_shared_cause_does_not_fail_the_whole_plan(ray_cluster: None, tmp_path: Path):
    config = load([*sources(tmp_path), "ray.investigations=2", "retries=0"])
    run = planned(config, 12)
    run.set_plan(tuple(dict.fromkeys(one.unit for one in run.plan())), 3)
    given = SweepContext(
        config=config,
        run=run,
        pools=Pools({}),
        exemplars=exemplars.make(config, list(LAYERS)),
        assembly=ConfigAssembly(),
    )
    with pytest.raises(ServiceError, match="20 investigations in a row failed, the last with: ServiceError: the model"):
        list(Scheduler(config, [given], worker_class=Failing).results())
    assert len(run.failures()) == 20
    assert len(list(run.iter_pending())) == 36


def test_jobs_take_turns_and_share_all_pools_but_the_target(ray_cluster: None, tmp_path: Path):
    from openmaia.distributed.pools.run_pools import run_pools

    configs = [short(tmp_path, f"name={name}", f"target.name={name}", "ray.investigations=1") for name in "ab"]
    runs = [planned(config, 4) for config in configs]
    stores = [exemplars.make(config, list(LAYERS)) for config in configs]
    with run_pools(configs, ConfigAssembly()) as made:
        jobs = [
            SweepContext(config=c, run=r, pools=p, exemplars=s, assembly=ConfigAssembly())
            for c, r, p, s in zip(configs, runs, made, stores, strict=True)
        ]
        order = [number for number, _ in Scheduler(configs[0], jobs).results()]
        assert made[0].addresses["backbone"] is made[1].addresses["backbone"]
        assert [each.target("x").info().name for each in made] == ["a", "b"]
    assert order == [0, 1] * 4
    assert [len(run.done()) for run in runs] == [4, 4]


@pytest.mark.timeout(180)
@pytest.mark.nightly
def test_on_a_cluster_that_has_grown_to_its_end_investigations_leave_room_for_replicas(
    ray_cluster: None, tmp_path: Path
):
    """There each replica has a place of its own, which investigations do not take."""
    greedy = ["ray.autoscaling=true", "ray.investigations=16", "ray.cpus_per_investigation=0.5"]
    roles = ("target", "generator", "editor", "backbone")
    config = short(tmp_path, *greedy, *(f"pools.{role}.num_cpus=0.25" for role in roles))
    with job(config, 12, pools) as given:
        assert [result.cause for _, result in Scheduler(config, [given]).results()] == [""] * 12


def test_a_unit_that_was_published_before_its_process_died_is_not_run_again(ray_cluster: None, tmp_path: Path):
    config = load([*sources(tmp_path, [ANSWER]), "ray.investigations=4"])
    with job(config, 4) as given:
        first = next(iter(Scheduler(config, [given]).results()))[1]
        before = os.stat(given.run.record_path(first.investigation)).st_ino
        again = list(Scheduler(config, [given]).results())
    assert first.investigation not in {result.investigation for _, result in again}
    assert os.stat(given.run.record_path(first.investigation)).st_ino == before


# -- nodes that come and go ------------------------------------------------------------------------------------------


@pytest.mark.nightly
@pytest.mark.timeout(600)
def test_thirty_units_are_done_once_while_a_node_is_removed_and_another_added(tmp_path: Path):
    """In a process of its own, beside the cluster that other tests share."""
    environment = os.environ | {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "0123456789abcdef" * 4}
    command = [sys.executable, "-m", "tests.helpers.come_and_go", str(tmp_path), "30"]
    done = subprocess.run(command, env=environment, cwd=REPOSITORY, capture_output=True, text=True, timeout=550)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
