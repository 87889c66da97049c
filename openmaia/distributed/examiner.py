"""The processes that hold what the tests of a sweep share: photographs and other controls, and judge and writer if they are
models of their own.
"""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from typing import Any

import ray
from ray.exceptions import GetTimeoutError

from openmaia.agent.metering import metered
from openmaia.config.machine import TEST_GENERATOR
from openmaia.config.schema import BankConfig
from openmaia.core.images import EncodedImage
from openmaia.core.messages import Chat, Reply
from openmaia.core.services import Backbone
from openmaia.datasets.library import ImageDataset
from openmaia.distributed.failures import resolve
from openmaia.distributed.gates import use_shared_gates
from openmaia.distributed.worker import SweepContext
from openmaia.evaluation.analysis.agreement import Agreement
from openmaia.evaluation.analysis.overlap import explored
from openmaia.evaluation.claims import read_claim
from openmaia.evaluation.controls import ReferenceData
from openmaia.evaluation.judging.judges import ImageVerdict, Judge, LocatingJudge, Region
from openmaia.evaluation.protocol import evaluate_investigation
from openmaia.evaluation.run import compare_claims, prepare_run
from openmaia.evaluation.services import EvaluationDesign, EvaluationServices
from openmaia.exemplars.store import ExemplarStore
from openmaia.runs.run import TRIALS, InvestigationId

CALLER = "evaluation"
"""The name of tests as callers of pools, and in Ray's dashboard."""

TESTS_PER_EXAMINER = 32

_RETRIES = 4
"""Ray repeats a call to an examiner that has died so often."""


@dataclass(frozen=True, slots=True)
class Material:
    """What the tests of one sweep share."""

    reference: ReferenceData
    judge: tuple[str, bool] | None
    """The name of the examiner's judge, and whether it is a `LocatingJudge`. None: a language model judges, or nothing does."""


@dataclass(slots=True)
class Examiner:
    """Answers the tests of all sweeps, which call it from several threads. `Examiners` makes it a Ray actor."""

    # Each call brings its sweep: Ray may not be able to restart an actor whose constructor was given handles of others.
    _models: dict[tuple[str, str], Any] = field(default_factory=dict[tuple[str, str], Any])
    """By role and sweep; those that the config does not have are None."""
    _loading: threading.Lock = field(default_factory=threading.Lock)
    _judging: threading.Lock = field(default_factory=threading.Lock)

    def __repr__(self) -> str:
        return CALLER

    def prepare(self, sweep: SweepContext) -> Material:
        """Measures what all tests of a sweep share. Trials of random words are stored in the run."""
        layers = {investigation.unit.layer for investigation in sweep.run.plan()}
        services = self._services(sweep, sweep.assembly.dataset(sweep.config, lambda line: None))
        reference = prepare_run(sweep.run, layers, services, _design(sweep))
        return Material(reference, self._judge_facts(sweep))

    def judge(
        self, sweep: SweepContext, method: str, images: Sequence[EncodedImage], labels: Sequence[str]
    ) -> list[Any]:
        """Calls `judge` or `locate` of the judge."""
        model = self._model("judge", sweep)
        with self._judging:  # a model in this process is not thread-safe
            return getattr(model, method)(images, labels)

    def reply(self, sweep: SweepContext, chats: Sequence[Chat]) -> list[Reply]:
        """Calls the language model of `evaluate.writer`."""
        return self._model("writer", sweep).reply(chats)

    def compare(self, sweep: SweepContext) -> tuple[Agreement, ...]:
        """Calls `openmaia.evaluation.run.compare_claims`."""
        services = self._services(sweep, None)
        return compare_claims(sweep.run, services.similarities, services.truths)

    def _model(self, role: str, sweep: SweepContext) -> Any:
        key = role, str(sweep.run.files.root)
        with self._loading:
            if key not in self._models:
                use_shared_gates()
                self._models[key] = sweep.assembly.host(role, sweep.config)
            return self._models[key]

    def _judge_facts(self, sweep: SweepContext) -> tuple[str, bool] | None:
        judge: Judge | None = self._model("judge", sweep)
        return None if judge is None else (judge.name, isinstance(judge, LocatingJudge))

    def _services(self, sweep: SweepContext, dataset: ImageDataset | None) -> EvaluationServices:
        judge = _judge(self._judge_facts(sweep), partial(self.judge, sweep))
        return _services(sweep, CALLER, self._model("writer", sweep), judge, sweep.exemplars, dataset)


def store_trial(
    sweep: SweepContext,
    investigation: InvestigationId,
    examiner: Any,
    material: Material,
    caller: str,
) -> None:
    """Tests the description of one investigation in the name of `caller`, and stores the trial in the run.

    `examiner` is the handle of an `Examiner`.
    """

    def judge(method: str, images: Sequence[EncodedImage], labels: Sequence[str]) -> list[Any]:
        return resolve(examiner.judge.remote(sweep, method, list(images), list(labels)))

    services = _services(sweep, caller, _ExaminerWriter(examiner, sweep), _judge(material.judge, judge))
    claim, drawn = read_claim(sweep.run, investigation), explored(sweep.run.drawn_prompts(investigation))
    design = _design(sweep)
    sweep.run.write_artifact(
        TRIALS, investigation, evaluate_investigation(claim, services, design, material.reference, drawn)
    )


def _design(sweep: SweepContext) -> EvaluationDesign:
    # Another node may lack the file `bank.prompts`, which the driver has read.
    alone = sweep.assembly.design(replace(sweep.config, bank=BankConfig()))
    return replace(alone, withheld=sweep.withheld)


def _services(
    sweep: SweepContext,
    caller: str,
    writer: Backbone | None,
    judge: Judge | None,
    store: ExemplarStore | None = None,
    dataset: ImageDataset | None = None,
) -> EvaluationServices:
    own = sweep.pools.services(sweep.exemplars, caller)
    writer = None if writer is None else metered(writer, "backbone", own.ledger, 0.0)
    generator = sweep.pools.generator(caller, TEST_GENERATOR)
    return sweep.assembly.evaluation(
        sweep.config, generator, own.target, own.backbone, writer, judge, own.exemplars, store, dataset
    )


@dataclass(frozen=True, slots=True)
class _ExaminerWriter:
    examiner: Any
    sweep: SweepContext

    def reply(self, chats: Sequence[Chat]) -> list[Reply]:
        return resolve(self.examiner.reply.remote(self.sweep, list(chats)))


@dataclass(frozen=True)
class _CalledJudge:
    name: str
    call: Callable[[str, Sequence[EncodedImage], Sequence[str]], list[Any]]
    """Takes the name of a method."""

    def judge(self, images: Sequence[EncodedImage], labels: Sequence[str]) -> list[tuple[ImageVerdict, ...]]:
        return self.call("judge", images, labels)


class _CalledLocatingJudge(_CalledJudge):
    def locate(self, images: Sequence[EncodedImage], labels: Sequence[str]) -> list[Region]:
        return self.call("locate", images, labels)


def _judge(facts: tuple[str, bool] | None, call: Callable[..., list[Any]]) -> Judge | None:
    if facts is None:
        return None
    name, locates = facts
    return _CalledLocatingJudge(name, call) if locates else _CalledJudge(name, call)


class Examiners:
    """The examiners of a run, in the driver. They start when the first test needs them, and Ray restarts those that die.

    `sweeps` are all sweeps, and `most` is the largest number of concurrent tests.
    """

    def __init__(self, sweeps: Sequence[SweepContext], most: int, examiner_class: type = Examiner):
        self._sweeps, self._most = list(sweeps), -(-most // TESTS_PER_EXAMINER)
        self._remote_class: Any = ray.remote(examiner_class)
        self._actors: list[Any] = []
        self._materials: dict[int, Any] = {}
        """Ray's references to the results of `Examiner.prepare`, by index of the sweep."""
        self._assigned = count()

    def assign(self, number: int, running: int) -> tuple[Any, list[Any]]:
        """Returns the arguments `examiner` and `material` of `UnitWorker.test` for a test, beside so many that run."""
        while len(self._actors) < min(running // TESTS_PER_EXAMINER + 1, self._most):
            self._start()
        self.prepare(number)
        return self._actors[next(self._assigned) % len(self._actors)], [self._materials[number]]

    def prepare(self, number: int) -> None:
        """Begins `Examiner.prepare` for a sweep, unless it has begun."""
        if not self._actors:
            self._start()
        if number not in self._materials:
            self._materials[number] = self._actors[0].prepare.remote(self._sweeps[number])

    def check(self, number: int) -> None:
        """Raises the OpenMaiaError with which `Examiner.prepare` has failed for a sweep, if it has."""
        try:
            resolve(self._materials[number], timeout=0)
        except GetTimeoutError:
            pass

    def compare(self, number: int) -> tuple[Agreement, ...]:
        """Calls `Examiner.compare` and waits. Raises OpenMaiaError."""
        if not self._actors:
            self._start()
        return resolve(self._actors[0].compare.remote(self._sweeps[number]))

    def stop(self) -> None:
        """Ends all examiners."""
        for actor in self._actors:
            ray.kill(actor)
        self._actors.clear()

    def _start(self) -> None:
        options = self._remote_class.options(
            num_cpus=0,
            max_concurrency=2 * TESTS_PER_EXAMINER,
            max_restarts=-1,
            max_task_retries=_RETRIES,
            scheduling_strategy="SPREAD",
        )
        self._actors.append(options.remote())
