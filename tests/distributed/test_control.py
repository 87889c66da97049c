"""A run on Ray is paused, resumed and stopped, and repeats units, while it goes on."""

import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from openmaia.agent.loop import InvestigationResult
from openmaia.assembly import ConfigAssembly, exemplars
from openmaia.config.loading import load
from openmaia.core.errors import ServiceError
from openmaia.distributed.scheduler import Scheduler
from openmaia.distributed.sweep import run_sweep
from openmaia.distributed.worker import SweepContext, UnitWorker
from openmaia.runs import control
from openmaia.runs.run import InvestigationId, Run
from openmaia.runs.state import counts
from tests.distributed.test_same_records import investigated, records
from tests.distributed.test_scheduler import job
from tests.helpers.samples import comparable
from tests.helpers.sweeping import ANSWER, LAYERS, planned, short, sources

pytestmark = pytest.mark.slow

MEASURES = """[CODE]:
```python
values, images = system.call_neuron(tools.text2image(["a red square"]))
print(values, tools.hold({folder!r}))
```"""
UNITS = [
    "name=ordered",
    "units=mono=0-2",
    "tools=[tests.helpers.sweeping:hold]",
    "ray.investigations=2",
    "sandbox.seconds=600",
]
PATIENCE = 240


class Heard:
    def __init__(self) -> None:
        self.lines: list[str] = []

    def say(self, line: str) -> None:
        self.lines.append(line)

    def progress(self, stage: str, done: int, total: int, note: str = "") -> None: ...


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


def turns(run: Run) -> Counter[InvestigationId]:
    return run.turns_begun() + Counter(dict.fromkeys(run.done(), 100))


@dataclass
class Ordered:
    """What a run did that was paused, resumed, told to repeat its first unit, and stopped while it did."""

    run: Run
    paused: Counter[InvestigationId]
    """The turns of each investigation a moment after the order to pause."""
    later: Counter[InvestigationId]
    """Those some seconds later."""
    words: str
    """The state in words, while it was paused."""
    repeated: InvestigationId
    view: Heard


@dataclass(frozen=True)
class HeldExperiments:
    """Those of the agents, which wait for the test: `sweeping.hold`."""

    folder: Path

    @property
    def replies(self) -> list[str]:
        return [*[MEASURES.format(folder=str(self.folder))] * 3, ANSWER]

    def allow(self, calls: int) -> None:
        new = self.folder / "new"
        new.write_text(str(calls))
        new.replace(self.folder / "allowed")  # agents may read it meanwhile

    def begun(self) -> int:
        """Number of experiments."""
        return len(list((self.folder / "calls").iterdir()))

    def wait_for(self, calls: int) -> None:
        """Until so many experiments have begun."""
        until(lambda: self.begun() == calls)


def give_orders(run: Run, held_back: HeldExperiments, found: list[Ordered], view: Heard) -> None:
    try:
        found.append(obeyed_orders(run, held_back, view))
    except BaseException:
        held_back.allow(10**6)  # or the run would not end
        raise


def obeyed_orders(run: Run, held_back: HeldExperiments, view: Heard) -> Ordered:
    held_back.wait_for(2)  # two units are in their first turn
    control.pause(run)
    held_back.allow(2)
    until(lambda: list(run.turns_begun().values()) == [1, 1])
    paused, words = turns(run), counts(run).text
    time.sleep(3.0)  # in which further turns would begin
    assert held_back.begun() == 2, "a turn began while the run was paused"
    later = turns(run)
    held_back.allow(6)  # two units with three experiments
    control.resume(run)
    until(lambda: len(run.done()) == 2)
    first = min(run.done())
    control.retry(run, first)
    held_back.wait_for(8)  # it is in its first turn again, as the third unit is
    held_back.allow(8)
    held_back.wait_for(10)  # both are in their second
    control.stop(run)
    return Ordered(run, paused, later, words, first, view)


@pytest.fixture(scope="module")
def held_back(tmp_path_factory: pytest.TempPathFactory) -> HeldExperiments:
    made = HeldExperiments(tmp_path_factory.mktemp("held_back"))
    (made.folder / "calls").mkdir()
    made.allow(0)
    return made


@pytest.fixture(scope="module")
def ordered(ray_cluster: None, held_back: HeldExperiments, tmp_path_factory: pytest.TempPathFactory) -> Ordered:
    config = load([*sources(tmp_path_factory.mktemp("ordered"), held_back.replies), *UNITS])
    run, found, view = Run.create(config), list[Ordered](), Heard()
    thread = threading.Thread(target=give_orders, args=(run, held_back, found, view))
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        run_sweep(config, ConfigAssembly(), view)
    thread.join()
    assert not run.is_driven()
    held_back.allow(10**6)
    run_sweep(config, ConfigAssembly(), view)  # the same command continues
    return found[0]


def test_no_turn_begins_while_a_run_is_paused(ordered: Ordered):
    assert ordered.paused == ordered.later != Counter()
    assert "paused since" in ordered.words and "2 running" in ordered.words


def test_the_driver_says_what_it_obeys(ordered: Ordered):
    said = "\n".join(ordered.view.lines)
    assert "ordered is paused since" in said and "ordered goes on" in said and "ordered is stopped" in said


def test_paused_stopped_and_repeated_run_has_the_records_of_an_undisturbed_one_in_one_process(
    ordered: Ordered, held_back: HeldExperiments, tmp_path: Path
):
    config = load([*sources(tmp_path, held_back.replies), *UNITS])
    undisturbed, *_ = investigated(config)
    assert [comparable(each) for each in records(ordered.run)] == [comparable(each) for each in records(undisturbed)]
    assert not any(each.notes for each in records(ordered.run))


def test_repeated_unit_is_tested_again_and_its_old_record_is_kept(ordered: Ordered):
    (kept,) = [name for name in ordered.run.files.names("retried") if "/records/" in name]
    assert kept.endswith(f"records/{ordered.repeated.path}.parquet")
    assert ordered.run.evaluated() == ordered.run.done() == set(ordered.run.plan())
    assert control.read_orders(ordered.run) == control.RunOrders()


@pytest.mark.nightly
def test_run_that_is_complete_repeats_a_unit_that_is_marked_meanwhile(ordered: Ordered):
    run, again = ordered.run, max(ordered.run.done())
    before = run.record(again)
    control.retry(run, again)
    assert run_sweep(load([f"{run.files.path('config.yaml')}"]), ConfigAssembly(), Heard()).done == 3
    assert comparable(run.record(again)) == comparable(before) and run.record(again).started > before.started
    assert again in run.evaluated()


@dataclass(slots=True)
class FailsUntilAsked(UnitWorker):
    """Fails unit 0 as long as its run has no file `ready`."""

    def investigate(self, number: int, investigation: InvestigationId, caller: str) -> InvestigationResult:
        run = self.sweeps[number].run
        if investigation.unit.index == 0 and not run.files.exists("ready"):
            raise ServiceError("the model cannot be loaded")
        if investigation.unit.index:  # ends before the orders are next read
            until(lambda: run.files.exists("ready"))
        return UnitWorker.investigate(self, number, investigation, caller)


@pytest.mark.nightly
def test_failed_unit_is_repeated_in_the_run_that_goes_on(ray_cluster: None, tmp_path: Path):
    config = short(tmp_path, "ray.investigations=2", "retries=0")
    ended = list[tuple[int, bool]]()
    repeated = list[int]()
    with job(config, 2) as given:
        scheduler = Scheduler(config, [given], on_retried=repeated.append, worker_class=FailsUntilAsked)
        for _, result in scheduler.results():
            ended.append((result.investigation.unit.index, result.summary is not None))
            if result.summary is None:
                control.retry(given.run, result.investigation)
                given.run.files.write("ready", b"")
    assert sorted(ended) == [(0, False), (0, True), (1, True)]
    assert repeated == [0] and given.run.failures() == {}
    (kept,) = given.run.files.names("retried")
    assert "/failures/" in kept


@pytest.mark.nightly
def test_pause_of_one_of_two_runs_lets_the_other_go_on(ray_cluster: None, tmp_path: Path):
    from openmaia.distributed.pools.run_pools import run_pools
    from openmaia.runs.lease import held

    configs = [short(tmp_path, f"name={name}", f"target.name={name}", "ray.investigations=1") for name in "ab"]
    runs = [planned(config, 2) for config in configs]
    stores = [exemplars.make(config, list(LAYERS)) for config in configs]
    with run_pools(configs, ConfigAssembly()) as made, held(runs[0].investigations):
        control.pause(runs[0])
        jobs = [
            SweepContext(config=c, run=r, pools=p, exemplars=s, assembly=ConfigAssembly())
            for c, r, p, s in zip(configs, runs, made, stores, strict=True)
        ]
        order = list[int]()
        for number, _ in Scheduler(configs[0], jobs).results():
            order.append(number)
            if order == [1, 1]:
                control.resume(runs[0])
    assert order == [1, 1, 0, 0]
