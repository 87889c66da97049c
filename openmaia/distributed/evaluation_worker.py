"""Evaluates descriptions of units in a worker process."""

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
    _current: threading.local = field(default_factory=threading.local)
    """Its attribute `caller` is the name of the evaluation that runs in the current thread."""

    def __repr__(self) -> str:
        return CALLER

    def start(self) -> None:
        """Does nothing. `WorkerPool` requires this method and calls it when the process has started.

        The services are built at their first use instead, because models may still be loading now.
        """

    def prepare(self, number: int) -> ReferenceData:
        """Returns the reference data of a sweep: control images and the responses of the sweep's layers to them.

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
        """Computes and stores the results of a sweep that need the measurements of all its descriptions.

        The scores of a description compare its unit with other units of the layer. `measure_run` computes measures of
        the whole run: how far repeated investigations of a unit agree, and how well the labels (short texts) in
        descriptions match what the units are known to respond to.

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
    """Calls a backbone in the name of the evaluation that runs in the current thread.

    If its process dies, the driver tells the pool that the evaluation has left, which frees the replicas that it used.
    """

    sweep: SweepContext
    current: threading.local

    def reply(self, chats: Sequence[Chat]) -> list[Reply]:
        """Returns one reply for each chat."""
        caller = getattr(self.current, "caller", CALLER)
        return self.sweep.pools.services(self.sweep.exemplars, caller).backbone.reply(chats)


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
