"""Investigations and evaluations that ask the services for what `rates.yaml` says, and hosts that sleep instead of answering.

The run's name ends with `-` and the factor by which all times are divided.
"""

import itertools
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from measure.benchmarks.sweep import IMAGE_BYTES, Sleeper, chat
from openmaia.agent.loop import InvestigationResult
from openmaia.analysis.costs.rates import find_rates
from openmaia.analysis.costs.workload import Workload, from_rates
from openmaia.config.loading import load
from openmaia.config.schema import Config
from openmaia.core.images import EncodedImage
from openmaia.core.services import Edit, GeneratedImage, Generation, Probe, Services
from openmaia.distributed.worker import SweepContext, UnitWorker
from openmaia.runs.run import InvestigationId
from tests.helpers.sweeping import LAYERS

TESTED = 7
"""Pairs of images that test each description."""

IMAGE = EncodedImage(data=bytes(IMAGE_BYTES))


TOOLS = ("generator", "editor", "target", "backbone")
"""The services of tools in the assumed order of their calls: images are generated, edited, measured, and described."""

Trace = Sequence[tuple[str, float]]
"""The steps of an investigation in order: (service, requests) for a call, ("", seconds) for work without a service."""


LENGTHS = (4, 5, 6, 7, 8, 9, 10, 12, 14)
WEIGHTS = np.array([0.08, 0.14, 0.2, 0.22, 0.17, 0.1, 0.05, 0.03, 0.01])
"""Assumed shares of investigations by their number of turns, whose mean is about that of the rates."""


@cache
def config() -> Config:
    """The models whose times were measured."""
    models = ["resnet152", "gemma3-27b", "flux-dev", "kontext-dev", "eight-gpus"]
    return load([*models, "name=traced"])


@cache
def workload() -> Workload:
    return from_rates(config())


@cache
def traces() -> Sequence[Trace]:
    """2,000 investigations that are drawn from the rates."""
    per_turn = find_rates(config()).per_turn
    random = np.random.default_rng(0)
    lengths = random.choice(LENGTHS, size=2000, p=WEIGHTS / WEIGHTS.sum())

    def drawn(turns: int) -> Trace:
        steps: list[tuple[str, float]] = []
        for _ in range(turns):
            steps += [("backbone", 1), ("", per_turn["sandbox_seconds"])]
            calls = [(service, per_turn["calls"][service]) for service in TOOLS]
            steps += [(service, call["requests"]) for service, call in calls if random.random() < call["share"]]
        return steps

    return [drawn(length) for length in lengths]


def trace(investigation: InvestigationId) -> Trace:
    """The steps of one investigation, the same in every process."""
    first = dict(zip(LAYERS, itertools.accumulate(LAYERS.values(), initial=0), strict=False))
    number = sum(LAYERS.values()) * investigation.replicate + first[investigation.unit.layer] + investigation.unit.index
    return traces()[number % len(traces())]


class ScaledSleeper(Sleeper):
    """All services in one, editor included."""

    def edit(self, requests: Sequence[Edit]) -> list[GeneratedImage]:
        self._sleep(len(requests))
        return [GeneratedImage(image=IMAGE) for _ in requests]


class TracedWorker(UnitWorker):
    """Asks for what the trace says, instead of what an agent would, and for the images of one description, which it shows
    with another unit's to the target."""

    def start(self) -> None:
        traces()

    def investigate(self, number: int, investigation: InvestigationId, caller: str) -> InvestigationResult:
        sweep = self.sweeps[number]
        services = sweep.pools.services(sweep.exemplars, caller)
        for service, amount in trace(investigation):
            if service:
                _ask(services, service, int(amount), investigation, caller)
            else:
                time.sleep(amount / _factor(sweep))
        return InvestigationResult(investigation=investigation, summary={})

    def test(
        self, number: int, investigation: InvestigationId, examiner: Any, material: Sequence[Any], caller: str
    ) -> None:
        sweep = self.sweeps[number]
        services = sweep.pools.services(sweep.exemplars, caller)
        for service, amount in tests_of_a_unit().items():
            _ask(services, service, amount, investigation, caller)


@dataclass
class IdleExaminer:
    """Has nothing that tests share, and compares no claims."""

    def prepare(self, sweep: SweepContext) -> None:
        pass

    def compare(self, sweep: SweepContext) -> None:
        pass


def tests_of_a_unit() -> dict[str, int]:
    """What the test of one description asks of the services."""
    return {"generator": 2 * TESTED, "target": 4 * TESTED}


def _factor(sweep: SweepContext) -> float:
    return float(sweep.config.name.partition("-")[2])


def _ask(services: Services, service: str, count: int, investigation: InvestigationId, caller: str) -> None:
    match service:
        case "backbone":
            services.backbone.reply([chat(caller if count == 1 else "", 0) for _ in range(count)])
        case "generator":
            services.generator.generate([Generation(prompt="", seed=0) for _ in range(count)])
        case "editor":
            services.editor.edit([Edit(image=IMAGE, instruction="", seed=0) for _ in range(count)])
        case _:
            services.target.probe([Probe(unit=investigation.unit, image=IMAGE) for _ in range(count)])
