"""Evaluates the description of each unit in a worker process as soon as the investigation of the unit has ended."""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import uuid4

from ray.exceptions import GetTimeoutError, RayTaskError

from openmaia.agent.patience import PatientBackbone
from openmaia.core.errors import OpenMaiaError, ServiceError, ServiceUnavailable, UsageError
from openmaia.distributed.failures import DEAD, last_line, resolve
from openmaia.distributed.worker import SweepContext
from openmaia.distributed.workers import FinishedWork, Worker, WorkerLimits, WorkerPool
from openmaia.evaluation.analysis.overlap import explored
from openmaia.evaluation.claims import read_claim
from openmaia.evaluation.controls import ReferenceData
from openmaia.evaluation.protocol import evaluate_investigation
from openmaia.evaluation.run import measure_run, prepare_run, score_trials, unevaluated_claims
from openmaia.evaluation.services import EvaluationServices
from openmaia.runs.run import TRIALS, InvestigationId

PER_PROCESS = 32
"""Largest number of concurrent evaluations in one process. They mostly wait for answers of the models."""

ISOLATED = 4
"""Largest number of evaluations that are repeated alone at the same time. Each process loads data of its own."""

CALLER = "evaluation"
"""The name that identifies calls of the evaluation to the pools and in Ray's dashboard."""


@dataclass(slots=True)
class EvaluationWorker:
    """Evaluates descriptions in a worker process. `WorkerPool` makes it a Ray actor.

    An evaluation generates images from the description of a unit and compares the unit's activations on them with those
    on control images.
    """

    sweeps: Sequence[SweepContext]
    """The sweeps whose descriptions are evaluated. A sweep executes the run of one config."""
    _services: dict[int, EvaluationServices] = field(default_factory=dict[int, EvaluationServices])
    """The services of each sweep that has been used in this process, by the index of the sweep."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __repr__(self) -> str:
        return CALLER

    def start(self) -> None:
        """Does nothing. `WorkerPool` calls it when the process has started, while models may still be loading."""

    def prepare(self, number: int) -> ReferenceData:
        """Returns what all evaluations of a sweep share: control images and the responses of its units' layers to them.

        It also tests descriptions that consist of one random word, as a control for the descriptions of the sweep, and
        stores these measurements in the run.

        One call for each sweep is enough. Its result is passed to `run` in all workers.

        Args:
            number: The index of the sweep (the run of one config) in `sweeps`.
        """
        sweep = self.sweeps[number]
        layers = {investigation.unit.layer for investigation in sweep.run.plan()}
        return prepare_run(sweep.run, layers, self._prepared(number), sweep.assembly.design(sweep.config))

    def run(self, number: int, investigation: InvestigationId, reference: ReferenceData, caller: str) -> None:
        """Tests the description of one investigation and stores the measurements (the trial) in the run.

        Args:
            number: The index of the sweep (the run of one config) in `sweeps`.
            investigation: The unit and the number of the replicate. Replicates are repeated investigations of a unit.
            reference: The return value of `prepare` for this sweep.
            caller: The name that identifies this evaluation to the pools that serve the models.
        """
        sweep = self.sweeps[number]
        services = self._prepared(number)
        own = sweep.pools.services(sweep.exemplars, caller)
        services = replace(services, generator=sweep.pools.test_generator(caller), target=own.target)
        design = sweep.assembly.design(sweep.config)
        drawn = explored(sweep.run.drawn_prompts(investigation))
        trial = evaluate_investigation(read_claim(sweep.run, investigation), services, design, reference, drawn)
        sweep.run.write_artifact(TRIALS, investigation, trial)

    def score(self, number: int) -> None:
        """Computes and stores the results of a sweep that need the measurements of all its descriptions.

        These are the scores of each description, which compare its unit with other units of the layer, and measures of
        the whole run: its reliability, and how well the labels in its descriptions match known truths (see
        `measure_run`).

        Args:
            number: The index of the sweep (the run of one config) in `sweeps`.
        """
        sweep = self.sweeps[number]
        claims = unevaluated_claims(sweep.run)
        score_trials(sweep.run, claims)
        measure_run(sweep.run, self._prepared(number))

    def _prepared(self, number: int) -> EvaluationServices:
        with self._lock:
            if number not in self._services:
                sweep = self.sweeps[number]
                own = sweep.pools.services(sweep.exemplars, CALLER)
                dataset = sweep.assembly.dataset(sweep.config, lambda line: None)
                services = sweep.assembly.evaluation(
                    sweep.config,
                    sweep.pools.test_generator(CALLER),
                    own.target,
                    PatientBackbone(backbone=own.backbone, minutes=sweep.config.backbone.outage_minutes),
                    store=sweep.exemplars,
                    dataset=dataset,
                )
                if services.judge is not None and services.model is None:
                    services = replace(services, judge=_Serial(services.judge))
                self._services[number] = services
            return self._services[number]


class _Serial:
    """Wraps a judge (which decides what an image shows), so that its methods run one at a time.

    It is for judges whose model is in this process, because such a model is not thread-safe.
    """

    def __init__(self, judge: Any):
        self._judge, self._lock = judge, threading.Lock()

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._judge, name)
        if not callable(attribute):
            return attribute

        def call(*arguments: Any, **named: Any) -> Any:
            with self._lock:
                return attribute(*arguments, **named)

        return call


@dataclass(frozen=True, slots=True)
class _Evaluation:
    sweep: int
    investigation: InvestigationId
    tries: int = 0
    """The number of processes of this evaluation that have died. A death during other evaluations does not count."""
    isolated: bool = False
    """Whether it gets a process of its own, because its last process died while it ran other evaluations, too."""
    reference: Any = None
    """The Ray object reference to the reference data that it was started with."""


class EvaluationTasks:
    """Queue of the evaluations of descriptions, in the driver, which is the process that executes the runs.

    It assigns the evaluations to worker processes and repeats those whose process died. One that fails does not end the
    sweep: `finish` raises its error when everything else is done. What would fail all of them is raised at once.

    Args:
        sweeps: The sweeps whose descriptions are evaluated. A sweep executes the run of one config.
        concurrency: Largest number of concurrent evaluations.
        retries: Number of additional attempts for an evaluation whose process died.
        on_done: Called after each finished evaluation with the index of its sweep and, if it failed, the reason.
        worker_class: The class that runs in the worker processes.
    """

    def __init__(
        self,
        sweeps: Sequence[SweepContext],
        concurrency: int,
        retries: int,
        on_done: Callable[[int, str], None],
        worker_class: type = EvaluationWorker,
    ):
        self._sweeps, self._retries, self._on_done = sweeps, retries, on_done
        limits = WorkerLimits(total=concurrency, per_process=min(concurrency, PER_PROCESS))
        self._workers = WorkerPool(limits, sweeps, worker_class)
        self._waiting: deque[_Evaluation] = deque()
        self._suspects: deque[_Evaluation] = deque()
        """Evaluations that are isolated."""
        self._running: dict[str, _Evaluation] = {}
        self._failed: list[tuple[int, OpenMaiaError]] = []
        """For each failed evaluation the index of its sweep and the error."""
        self._references: dict[int, Any] = {}
        """Ray object references to the results of `EvaluationWorker.prepare`, by index of the sweep."""

    def submit(self, number: int, investigation: InvestigationId) -> None:
        """Queues the evaluation of one finished investigation. `number` is the index of its sweep in `sweeps`."""
        self._waiting.append(_Evaluation(number, investigation))

    def poll(self, timeout: float = 0.0) -> None:
        """Starts queued evaluations for which workers have room, and handles those that have finished.

        Args:
            timeout: Longest time in seconds to wait for an evaluation to finish.

        Raises:
            OpenMaiaError: If it concerns all evaluations: the config does not permit them, a server cannot be reached, or
                the reference data could not be computed. Other errors are raised by `finish`.
        """
        self._workers.scale(len(self._running), len(self._waiting), min(len(self._suspects), ISOLATED))
        while self._suspects and (worker := self._workers.most_free(isolated=True)):
            self._assign(worker, self._suspects.popleft())
        while self._waiting and (worker := self._workers.most_free(isolated=False)):
            self._assign(worker, self._waiting.popleft())
        for finished in self._workers.finished(timeout):
            self._settle(finished)

    def _assign(self, worker: Worker, evaluation: _Evaluation) -> None:
        if evaluation.sweep not in self._references:
            self._references[evaluation.sweep] = worker.actor.prepare.remote(evaluation.sweep)
        reference = self._references[evaluation.sweep]
        unit = evaluation.investigation.unit
        caller = f"{self._sweeps[evaluation.sweep].run.name}/{CALLER}/{unit}/{uuid4().hex[:12]}"
        evaluation = replace(evaluation, reference=reference)
        self._running[caller] = evaluation
        name = f"{CALLER} {unit.layer}/{unit.index}"
        self._workers.assign(worker, evaluation, name, caller, evaluation.sweep, evaluation.investigation, reference)

    def finish(self, numbers: Sequence[int]) -> None:
        """Waits for all evaluations, then computes the scores of the descriptions of the sweeps with these indices.

        The scores of a sweep with a failed evaluation are not computed.

        Raises:
            OpenMaiaError: If an evaluation failed. Finished evaluations are kept in the run.
        """
        while self._waiting or self._suspects or self._running:
            self.poll(timeout=1.0)
        for number in numbers:
            if all(failed != number for failed, _ in self._failed):
                try:
                    self._workers.call("score", number)
                except OpenMaiaError as error:
                    self._failed.append((number, error))
        if self._failed:
            error, count = self._failed[0][1], len(self._failed)
            if count > 1:
                text = f"{count} descriptions, or runs, were not tested or scored. The first: {error.message}"
                raise ServiceError(text, detail=error.detail) from error
            raise error

    def stop(self) -> None:
        """Ends the worker processes, and tells the pools to drop the requests of unfinished evaluations."""
        self._workers.stop()
        for caller, evaluation in self._running.items():
            self._sweeps[evaluation.sweep].pools.leave(caller)

    def _settle(self, finished: FinishedWork) -> None:
        evaluation: _Evaluation = finished.work
        del self._running[finished.caller]
        self._sweeps[evaluation.sweep].pools.leave(finished.caller)
        try:
            finished.future.result()
        except (RayTaskError, *DEAD) as error:
            # If the process that computed the reference data has died, Ray also raises a RayTaskError for the evaluations
            # that waited for them. It is an instance of one of DEAD as well.
            unit = evaluation.investigation.unit
            if isinstance(error, RayTaskError) and isinstance(error.cause, OpenMaiaError):
                for_all = isinstance(error.cause, (UsageError, ServiceUnavailable))
                return self._fail(evaluation, error.cause, for_all)
            if not isinstance(error, DEAD):
                return self._fail(evaluation, ServiceError(f"{unit} could not be evaluated: {last_line(error)}"))
            evaluation = replace(evaluation, isolated=evaluation.isolated or finished.died_with_others)
            tries = evaluation.tries + (not isinstance(error, RayTaskError) and not finished.died_with_others)
            if tries > self._retries:
                text = f"{unit} could not be evaluated: its process died {tries} times"
                return self._fail(evaluation, ServiceError(text))
            # The process may have died while it computed the reference data.
            if self._references.get(evaluation.sweep) is evaluation.reference:
                del self._references[evaluation.sweep]
            (self._suspects if evaluation.isolated else self._waiting).append(replace(evaluation, tries=tries))
            return None
        return self._on_done(evaluation.sweep, "")

    def _fail(self, evaluation: _Evaluation, error: OpenMaiaError, for_all: bool = False) -> None:
        """Keeps the error of one evaluation for `finish`, or raises it if it concerns all evaluations."""
        try:
            resolve(evaluation.reference, timeout=0)
        except GetTimeoutError:
            pass  # the evaluation failed before it needed the reference data
        except OpenMaiaError:
            raise error from None
        if for_all:
            raise error
        self._failed.append((evaluation.sweep, error))
        self._on_done(evaluation.sweep, f"{evaluation.investigation.unit}: {error.message}")
