"""Schedules the evaluations of descriptions: each begins when the investigation of its unit has ended."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any
from uuid import uuid4

from ray.exceptions import GetTimeoutError, RayTaskError

from openmaia.core.errors import OpenMaiaError, ServiceError, ServiceUnavailable, UsageError
from openmaia.distributed.evaluation_worker import CALLER, EvaluationWorker
from openmaia.distributed.failures import DEAD, last_line, resolve
from openmaia.distributed.worker import SweepContext
from openmaia.distributed.worker_limits import WorkerLimits
from openmaia.distributed.workers import FinishedWork, Worker, WorkerPool
from openmaia.runs.run import InvestigationId

# Evaluations mostly wait for answers of the models, so that many of them fit into one process.
PER_PROCESS = 32

_ISOLATED = 4
"""Largest number of isolated worker processes, see `Worker.isolated`. It is small because each loads its own data."""


@dataclass(frozen=True, slots=True)
class _Evaluation:
    sweep: int
    investigation: InvestigationId
    tries: int = 0
    """Number of processes that died while they ran only this evaluation."""
    reference: Any = None
    """Ray's reference to the reference data that it was started with."""


class EvaluationTasks:
    """Queue of the evaluations of descriptions, in the driver. Evaluations whose process died are repeated.

    If an evaluation fails, the others continue, and `finish` raises the error at the end.

    Args:
        sweeps: The sweeps whose descriptions are evaluated.
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
        limits = WorkerLimits(total=concurrency, per_process=min(concurrency, PER_PROCESS), max_isolated=_ISOLATED)
        self._workers = WorkerPool(limits, sweeps, worker_class)
        self._running: dict[str, _Evaluation] = {}
        self._failed: list[tuple[int, OpenMaiaError]] = []
        self._references: dict[int, Any] = {}
        """Ray's references to the results of `EvaluationWorker.prepare`, by index of the sweep."""

    def submit(self, number: int, investigation: InvestigationId) -> None:
        """Queues the evaluation of the description of a finished investigation of `sweeps[number]`."""
        self._workers.submit(_Evaluation(number, investigation))

    def poll(self, timeout: float = 0.0) -> None:
        """Starts queued evaluations for which workers have room, and handles those that have finished.

        Args:
            timeout: Longest time in seconds to wait for an evaluation to finish.

        Raises:
            OpenMaiaError: If an error concerns all evaluations: the config does not permit them, a server cannot be
                reached, the reference data could not be computed, or the workers cannot run.
        """
        for worker, evaluation in self._workers.assignable():
            self._assign(worker, evaluation)
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

    def wait(self) -> None:
        """Waits for all evaluations that were submitted."""
        while self._running or self._workers.queued:
            self.poll(timeout=1.0)

    def finish(self, numbers: Sequence[int]) -> None:
        """Waits for all evaluations, then computes the scores of the sweeps with these indices.

        The scores of a sweep with a failed evaluation are not computed.

        Raises:
            OpenMaiaError: If an evaluation or the computation of scores failed. Finished evaluations are kept.
        """
        self.wait()
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
        """Ends the worker processes. The pools drop the requests of unfinished evaluations."""
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
            tries = evaluation.tries + (not isinstance(error, RayTaskError) and not finished.died_with_others)
            if tries > self._retries:
                text = f"{unit} could not be evaluated: its process died {tries} times"
                return self._fail(evaluation, ServiceError(text))
            # The process may have died while it computed the reference data.
            if self._references.get(evaluation.sweep) is evaluation.reference:
                del self._references[evaluation.sweep]
            return self._workers.submit(replace(evaluation, tries=tries), is_suspect=finished.is_suspect)
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
