"""Evaluations that fail, and evaluations whose processes die."""

import os
import signal
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from openmaia.assembly import ConfigAssembly
from openmaia.core.errors import OpenMaiaError, ServiceError, UsageError
from openmaia.distributed.evaluation import PER_PROCESS, EvaluationTasks
from openmaia.distributed.pools.run_pools import Pools
from openmaia.distributed.worker import SweepContext
from openmaia.exemplars.store import ExemplarStore
from openmaia.runs.run import InvestigationId
from tests.helpers.sleeping import wait_until
from tests.helpers.sweeping import planned, short

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("ray_cluster")]

UNITS = PER_PROCESS + 8
"""So many that two processes share them."""


@dataclass
class Dying:
    """Notes what each process does. The first process dies while it computes the reference data and a second waits."""

    sweeps: Sequence[SweepContext]

    def _note(self, what: str) -> Path:
        log = Path(str(self.sweeps[0].run.files.local)) / "notes.log"
        with log.open("a") as file:
            file.write(f"{os.getpid()} {what}\n")
        return log

    def start(self) -> None:
        self._note("start")

    def prepare(self, number: int) -> int:
        log = self._note("prepare")
        if log.read_text().count("prepare") == 1:
            wait_until(lambda: log.read_text().count("start") == 2)
            time.sleep(3)
            os.kill(os.getpid(), signal.SIGKILL)
        return number

    def run(self, number: int, investigation: InvestigationId, reference: int, caller: str) -> None:
        self._note(f"run {investigation.path}")

    def score(self, number: int) -> None:
        self._note("score")


class Failing(Dying):
    """Cannot test some of the units."""

    def prepare(self, number: int) -> int:
        if number == 1:
            raise ServiceError("no image for the reference")
        return number

    def score(self, number: int) -> None:
        self._note(f"score {number}")

    def run(self, number: int, investigation: InvestigationId, reference: int, caller: str) -> None:
        if investigation.unit.index in FAIL:
            raise ServiceError(f"nothing can be drawn for {investigation.unit.index}")
        if investigation.unit.index in CRASH:
            raise ZeroDivisionError("a bug")
        if investigation.unit.index in REFUSED:
            raise UsageError("evaluate.writer does not permit this")
        self._note(f"run {investigation.path}")


FAIL, CRASH, REFUSED = {1}, {2}, {3}


@pytest.mark.parametrize(
    ("units", "said"),
    [
        ([1, 4], "nothing can be drawn for 1"),
        ([2, 4], "could not be evaluated: ZeroDivisionError: a bug"),
        ([1, 2, 4, 5], "2 descriptions, or runs, were not tested or scored. The first: "),
    ],
)
def test_evaluation_that_fails_does_not_end_the_others(tmp_path: Path, units: list[int], said: str):
    """Sweep 2 has no such evaluation, and gets its scores."""
    found = evaluated(tmp_path, {0: units, 2: [0]})
    assert said in str(found.error)
    assert len([note for note in found.notes if note.startswith("run ")]) == len({*units, 0} - FAIL - CRASH)
    assert [note for note in found.notes if note.startswith("score")] == ["score 2"]
    assert len(found.problems) == len(set(units) & (FAIL | CRASH))


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


def evaluated(folder: Path, units: dict[int, list[int]]) -> Found:
    """Evaluates these units of some of three sweeps."""
    config = short(folder, "name=failing", "ray.memory_mb=1", "ray.cpus_per_investigation=0")
    run = planned(config, 1 + max(max(each) for each in units.values()))
    store = ExemplarStore.at(config.paths.exemplars, config.target.name, "none")
    context = SweepContext(config=config, run=run, pools=Pools({}), exemplars=store, assembly=ConfigAssembly())
    found = Found([], [])
    tasks = EvaluationTasks([context] * 3, 1, 1, lambda number, problem: found.problems.append(problem), Failing)
    try:
        for number, chosen in units.items():
            for investigation in run.plan():
                if investigation.unit.index in chosen:
                    tasks.submit(number, investigation)
        tasks.finish(list(units))
    except OpenMaiaError as raised:
        found.error = raised
    finally:
        tasks.stop()
    found.problems = [problem for problem in found.problems if problem]
    log = folder / "runs/failing/notes.log"
    found.notes = [line.split(" ", 1)[1] for line in log.read_text().splitlines()] if log.exists() else []
    return found


def test_evaluations_that_wait_for_a_dead_process_are_repeated_and_their_own_process_stays(tmp_path: Path):
    config = short(tmp_path, "name=dying", "ray.memory_mb=1", "ray.cpus_per_investigation=0")
    run = planned(config, UNITS)
    store = ExemplarStore.at(config.paths.exemplars, config.target.name, "none")
    context = SweepContext(config=config, run=run, pools=Pools({}), exemplars=store, assembly=ConfigAssembly())
    done: list[tuple[int, str]] = []
    tasks = EvaluationTasks([context], UNITS, 1, lambda *each: done.append(each), Dying)
    try:
        for investigation in run.plan():
            tasks.submit(0, investigation)
        tasks.finish([0])
    finally:
        tasks.stop()
    notes = [line.split(" ", 1) for line in (tmp_path / "runs/dying/notes.log").read_text().splitlines()]
    counts = Counter(what for _, what in notes)
    assert done == [(0, "")] * UNITS
    assert {counts[f"run {investigation.path}"] for investigation in run.plan()} == {1}
    assert (counts["prepare"], counts["score"]) == (2, 1)
    first, second, *_ = [process for process, what in notes if what == "start"]
    evaluating = {process for process, what in notes if what.startswith("run ")}
    assert first not in evaluating
    assert second in evaluating


@dataclass
class Poisoned:
    """One evaluation ends its process each time; the others take longer than it needs for that."""

    sweeps: Sequence[SweepContext]

    def start(self) -> None:
        pass

    def prepare(self, number: int) -> int:
        return 0

    def run(self, number: int, investigation: InvestigationId, reference: int, caller: str) -> None:
        if investigation.unit.index == 3:
            os._exit(1)
        time.sleep(2)

    def score(self, number: int) -> None:
        raise AssertionError("not all descriptions were tested")


def test_an_evaluation_that_ends_its_process_fails_alone(tmp_path: Path):
    config = short(tmp_path, "name=poisoned", "ray.memory_mb=1", "ray.cpus_per_investigation=0")
    run = planned(config, 8)
    store = ExemplarStore.at(config.paths.exemplars, config.target.name, "none")
    context = SweepContext(config=config, run=run, pools=Pools({}), exemplars=store, assembly=ConfigAssembly())
    problems: list[str] = []
    tasks = EvaluationTasks([context], 8, 1, lambda number, problem: problems.append(problem), Poisoned)
    try:
        for investigation in run.plan():
            tasks.submit(0, investigation)
        with pytest.raises(ServiceError, match="its process died 2 times"):
            tasks.finish([0])
    finally:
        tasks.stop()
    assert len(problems) == 8
    assert len([problem for problem in problems if problem]) == 1
