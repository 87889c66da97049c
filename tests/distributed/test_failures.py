"""Tests that fail, and tests whose processes die."""

import os
import signal
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from openmaia.agent.loop import InvestigationResult
from openmaia.api.progress import PrintedProgress
from openmaia.assembly import ConfigAssembly
from openmaia.core.errors import OpenMaiaError, ServiceError, UsageError
from openmaia.distributed.failures import resolve
from openmaia.distributed.pools.run_pools import Pools
from openmaia.distributed.scheduler import Scheduler
from openmaia.distributed.sweep import Unscored
from openmaia.distributed.worker import SweepContext, UnitWorker
from openmaia.exemplars.store import ExemplarStore
from openmaia.runs.run import InvestigationId
from tests.helpers.sweeping import planned, short

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("ray_cluster")]

UNITS = 6


class NotingWorker(UnitWorker):
    """Notes what is tested."""

    def start(self) -> None:
        pass

    def test(
        self, number: int, investigation: InvestigationId, examiner: Any, material: Sequence[Any], caller: str
    ) -> None:
        resolve(material[0])
        note(self.sweeps, f"test {investigation.path}")


@dataclass
class Preparing:
    """Notes what an examiner does."""

    def prepare(self, sweep: SweepContext) -> str:
        note([sweep], "prepare")
        if sweep.preprocessing == "1":
            raise ServiceError("no image for the reference")
        return sweep.preprocessing

    def compare(self, sweep: SweepContext) -> None:
        note([sweep], f"compare {sweep.preprocessing}")


def note(sweeps: Sequence[SweepContext], what: str) -> Path:
    log = Path(str(sweeps[0].run.files.local)) / "notes.log"
    with log.open("a") as file:
        file.write(f"{os.getpid()} {what}\n")
    return log


class Dying(Preparing):
    """The first process dies while it computes the reference data."""

    def prepare(self, sweep: SweepContext) -> str:
        log = note([sweep], "prepare")
        if log.read_text().count("prepare") == 1:
            time.sleep(1)
            os.kill(os.getpid(), signal.SIGKILL)
        return sweep.preprocessing


class Failing(NotingWorker):
    """Cannot test some of the units."""

    def test(
        self, number: int, investigation: InvestigationId, examiner: Any, material: Sequence[Any], caller: str
    ) -> None:
        resolve(material[0])
        if investigation.unit.index in FAIL:
            raise ServiceError(f"nothing can be drawn for {investigation.unit.index}")
        if investigation.unit.index in CRASH:
            raise ZeroDivisionError("a bug")
        if investigation.unit.index in REFUSED:
            raise UsageError("evaluate.writer does not permit this")
        note(self.sweeps, f"test {investigation.path}")


class DyingOnce(NotingWorker):
    """Its process dies in the first test."""

    def investigate(self, number: int, investigation: InvestigationId, caller: str) -> InvestigationResult:
        note(self.sweeps, f"investigate {investigation.path}")
        return InvestigationResult(investigation=investigation, summary={})

    def test(
        self, number: int, investigation: InvestigationId, examiner: Any, material: Sequence[Any], caller: str
    ) -> None:
        resolve(material[0])
        if "death" not in note(self.sweeps, f"begin {investigation.path}").read_text():
            note(self.sweeps, f"death {investigation.path}")
            os.kill(os.getpid(), signal.SIGKILL)
        note(self.sweeps, f"test {investigation.path}")


class Poisoned(NotingWorker):
    """One test ends its process each time; the others take longer than it needs for that."""

    def test(
        self, number: int, investigation: InvestigationId, examiner: Any, material: Sequence[Any], caller: str
    ) -> None:
        if investigation.unit.index == 3:
            os._exit(1)
        time.sleep(2)


FAIL, CRASH, REFUSED = {1}, {2}, {3}


def test_evaluations_that_fail_do_not_end_the_others(tmp_path: Path):
    """Sweep 2 has no such evaluation, and gets its scores."""
    found = evaluated(tmp_path, {0: [1, 2, 4, 5], 2: [0]})
    assert str(found.error).startswith("2 descriptions, or runs, were not tested or scored. The first: ")
    tested = sorted(note.rpartition("/")[2] for note in found.notes if note.startswith("test "))
    assert tested == ["0-0", "4-0", "5-0"]
    assert [note for note in found.notes if note.startswith("compare")] == ["compare 2"]
    drawn, crashed = sorted(found.problems, key=lambda problem: "ZeroDivisionError" in problem)
    assert "nothing can be drawn for 1" in drawn
    assert "could not be evaluated: ZeroDivisionError: a bug" in crashed


@pytest.mark.parametrize(
    ("units", "said"), [({0: [3, 4]}, "evaluate.writer"), ({1: [4, 5]}, "image for the reference")]
)
def test_what_concerns_all_evaluations_ends_them_at_once(tmp_path: Path, units: dict[int, list[int]], said: str):
    found = evaluated(tmp_path, units)
    assert said in str(found.error) and found.problems == []


@dataclass
class Found:
    notes: list[str]
    """What the processes noted."""
    problems: list[str]
    """Why evaluations failed."""
    error: OpenMaiaError | None = None
    tested: int = 0
    """Number of tests that have ended."""


def evaluated(
    folder: Path,
    units: dict[int, list[int]],
    worker: type = Failing,
    examiner: type = Preparing,
    *overrides: str,
    investigates: bool = False,
) -> Found:
    """Tests these units of some of three sweeps, which are investigated already unless `investigates`."""
    settings = ("name=failing", "ray.memory_mb=1", "ray.cpus_per_investigation=0", "ray.investigations=1", "retries=1")
    config = short(folder, *settings, *overrides)
    run = planned(config, 1 + max(max(each) for each in units.values()))
    store = ExemplarStore.at(config.paths.exemplars, config.target.name, "none")
    context = SweepContext(config=config, run=run, pools=Pools({}), exemplars=store, assembly=ConfigAssembly())
    # The field tells the sweeps apart, and is not used otherwise.
    sweeps = [replace(context, preprocessing=str(number)) for number in range(1 if investigates else 3)]
    chosen = {
        number: [each for each in run.plan() if each.unit.index in some and not investigates]
        for number, some in units.items()
    }
    found, problems = Found([], []), list[str]()
    scheduler = Scheduler(
        config,
        sweeps,
        untested=chosen,
        on_tested=lambda number, investigation, problem: problems.append(problem),
        investigates=investigates,
        worker_class=worker,
        examiner_class=examiner,
    )
    try:
        assert len(list(scheduler.results())) == (run.planned() if investigates else 0)
        scheduler.compare(list(units))
        Unscored([], scheduler.errors).score(PrintedProgress())
    except OpenMaiaError as raised:
        found.error = raised
    finally:
        scheduler.stop()
    found.problems, found.tested = [problem for problem in problems if problem], len(problems)
    log = folder / "runs/failing/notes.log"
    found.notes = [line.split(" ", 1)[1] for line in log.read_text().splitlines()] if log.exists() else []
    return found


def test_tests_wait_until_an_examiner_that_died_has_prepared_again(tmp_path: Path):
    found = evaluated(tmp_path, {0: [0, 1, 2, 3, 4, 5]}, NotingWorker, Dying, "ray.investigations=4")
    counts = Counter(found.notes)
    assert (found.error, found.problems) == (None, [])
    assert (counts["prepare"], counts["compare 0"]) == (2, 1)
    tested = [note for note in found.notes if note.startswith("test ")]
    assert len(tested) == len(set(tested)) == found.tested == UNITS


def test_a_unit_whose_test_ended_its_process_is_tested_again_and_not_investigated_again(tmp_path: Path):
    found = evaluated(tmp_path, {0: [0, 1, 2, 3, 4, 5]}, DyingOnce, investigates=True)
    counts = Counter(found.notes)
    [death] = [note for note in found.notes if note.startswith("death ")]
    assert (found.error, found.problems, found.tested) == (None, [], UNITS)
    assert len([note for note in found.notes if note.startswith("test ")]) == UNITS
    assert counts[death.replace("death", "investigate")] == 1
    assert counts[death.replace("death", "begin")] == 2


def test_a_test_that_ends_its_process_fails_alone(tmp_path: Path):
    found = evaluated(tmp_path, {0: [0, 1, 2, 3, 4, 5]}, Poisoned, Preparing, "ray.investigations=8")
    assert "its process died 2 times" in str(found.error)
    assert found.tested == UNITS
    assert len(found.problems) == 1
