"""Evaluates descriptions in a worker process."""

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from openmaia.agent.patience import PatientGenerator
from openmaia.core.messages import Chat, Reply
from openmaia.distributed.worker import SweepContext
from openmaia.evaluation.analysis.overlap import explored
from openmaia.evaluation.claims import read_claim
from openmaia.evaluation.controls import ReferenceData
from openmaia.evaluation.protocol import evaluate_investigation
from openmaia.evaluation.run import measure_run, prepare_run, score_trials, unevaluated_claims
from openmaia.evaluation.services import EvaluationServices
from openmaia.runs.run import TRIALS, InvestigationId

CALLER = "evaluation"
"""The name of evaluations as callers of pools, and in Ray's dashboard."""


@dataclass(slots=True)
class EvaluationWorker:
    """Evaluates descriptions in a worker process. `WorkerPool` makes it a Ray actor."""

    sweeps: Sequence[SweepContext]
    _services: dict[int, EvaluationServices] = field(default_factory=dict[int, EvaluationServices])
    """Built at the first use of a sweep in this process, by its index."""
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _current: threading.local = field(default_factory=threading.local)
    """Its attribute `caller` is the name of the evaluation that runs in the current thread."""

    def __repr__(self) -> str:
        return CALLER

    def start(self) -> None:
        """Does nothing: models may still be loading, so that the services are built at their first use."""

    def prepare(self, number: int) -> ReferenceData:
        """Returns the reference data of a sweep, which is passed to `run` in all workers.

        It also tests descriptions of one random word, and stores these measurements in the run.
        """
        sweep = self.sweeps[number]
        layers = {investigation.unit.layer for investigation in sweep.run.plan()}
        return prepare_run(sweep.run, layers, self._prepared(number), sweep.assembly.design(sweep.config))

    def run(self, number: int, investigation: InvestigationId, reference: ReferenceData, caller: str) -> None:
        """Tests the description of one investigation and stores the trial in the run.

        Args:
            number: The index of the sweep in `sweeps`.
            investigation: The investigation.
            reference: The return value of `prepare` for this sweep.
            caller: The name of this evaluation as a caller of pools.
        """
        sweep = self.sweeps[number]
        services = self._prepared(number)
        self._current.caller = caller
        own = sweep.pools.services(sweep.exemplars, caller)
        minutes = sweep.config.backbone.outage_minutes
        generator = PatientGenerator(generator=sweep.pools.test_generator(caller), minutes=minutes)
        services = replace(services, generator=generator, target=own.target)
        design = sweep.assembly.design(sweep.config)
        drawn = explored(sweep.run.drawn_prompts(investigation))
        trial = evaluate_investigation(read_claim(sweep.run, investigation), services, design, reference, drawn)
        sweep.run.write_artifact(TRIALS, investigation, trial)

    def score(self, number: int) -> None:
        """Computes and stores what needs the trials of all descriptions of a sweep: scores, and measures of the run."""
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
                    _BackboneOfThread(sweep, self._current),
                    store=sweep.exemplars,
                    dataset=dataset,
                )
                if services.judge is not None and services.model is None:
                    services = replace(services, judge=_Serial(services.judge))
                self._services[number] = services
            return self._services[number]


@dataclass(frozen=True, slots=True)
class _BackboneOfThread:
    """Calls a backbone in the name of the evaluation that runs in the current thread."""

    # The driver tells the pools by this name that an evaluation has left, also if its process died.

    sweep: SweepContext
    current: threading.local

    def reply(self, chats: Sequence[Chat]) -> list[Reply]:
        caller = getattr(self.current, "caller", CALLER)
        return self.sweep.pools.services(self.sweep.exemplars, caller).backbone.reply(chats)


class _Serial:
    """Wraps a judge, so that its methods run one at a time: a model in this process is not thread-safe."""

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
