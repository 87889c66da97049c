"""A sweep of 1,000 investigations on pools whose replicas sleep: what the scheduler makes of the hardware.

The investigations are sampled from a stated distribution and go the way that real ones go: the driver, the investigating
processes, the dispatchers and the replicas are the product's, and images of a realistic size travel. Only the models are
replaced, by sleeping as long as they would take, scaled down. The clock starts when all processes are up.

of_bound: the least time that the bottleneck needs (all of its requests in full batches, over its replicas), over the time
that the sweep took. over_published: the time of the published way on as many GPUs, one process per GPU that holds all
models and works through its units one after the other with batches of one tool call, over ours. It follows from the same
table. most_over_published: what it would be if every GPU of ours were busy with full batches until the end; models that
gain nothing from batches, as diffusion models at high resolution do, bound it.
"""

import random
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import ray

from openmaia.agent.loop import InvestigationResult
from openmaia.assembly import ConfigAssembly
from openmaia.config.machine import PoolConfig
from openmaia.config.schema import pools_by_role
from openmaia.core.images import EncodedImage
from openmaia.core.messages import Chat, Reply
from openmaia.core.services import GeneratedImage, Generation, Probe, UnitActivation
from openmaia.core.units import TargetInfo
from openmaia.distributed.pools.handles import PoolAddress, Pools
from openmaia.distributed.pools.manager import PoolManager, manage
from openmaia.distributed.pools.replica import PoolSpec
from openmaia.distributed.scheduler import Scheduler
from openmaia.distributed.worker import SweepContext, UnitWorker
from openmaia.exemplars.store import ExemplarStore
from openmaia.runs.run import InvestigationId
from tests.helpers.sweeping import planned, short


@dataclass(frozen=True)
class Cost:
    """Seconds: a batch of n takes fixed + n * each. batch: the largest. replicas: of one GPU each."""

    fixed: float
    each: float
    batch: int
    replicas: int

    def seconds(self, count: int) -> float:
        return self.fixed + self.each * count

    def at_full_batches(self, count: float) -> float:
        return count * self.seconds(self.batch) / self.batch


COSTS = {
    "backbone": Cost(9.0, 0.5, 32, 2),
    "generator": Cost(0.3, 1.0, 8, 8),
    "target": Cost(0.02, 0.006, 128, 4),
}
"""Arithmetic from data sheets of GPUs of 80 GB, older than the measured rates: a 27B backbone, a FLUX.1-dev for all images, a
ResNet-152. Each of the four targets has one replica."""

TURNS = {4: 8, 5: 14, 6: 20, 7: 22, 8: 17, 9: 10, 10: 5, 12: 3, 14: 1}
"""Turns of an investigation and how frequent they are; the mean is about 7, as published for Gemma 3."""

IMAGES = ((0.7, 8), (0.3, 6))
"""Tool calls that make images: in which share of the turns, and how many. All images of a turn are shown to the target."""

ASKED = (0.15, 4)
"""The same for questions of tools to the backbone."""

SANDBOX = 1.0
"""Seconds of each turn in which no service is needed."""

SCALE = 1 / 40
"""Of all times, so that full batches of images take 0.2 s."""

AT_ONCE = 128
IMAGE_BYTES = 50_000
TARGETS = 4


@dataclass(frozen=True)
class Turn:
    images: tuple[int, ...]
    asked: int


def trace(index: int) -> list[Turn]:
    """What an investigation asks for, turn by turn; the last turn answers."""
    dice = random.Random(index)
    turns = dice.choices(list(TURNS), list(TURNS.values()))[0]
    return [
        Turn(
            images=tuple(count for share, count in IMAGES if dice.random() < share),
            asked=ASKED[1] if dice.random() < ASKED[0] else 0,
        )
        for _ in range(turns - 1)
    ] + [Turn((), 0)]


class Sleeper:
    """All services in one: each takes the time that the table says."""

    def __init__(self, cost: Cost, scale: float):
        self._cost, self._scale = cost, scale
        self._lock, self._under_way = threading.Lock(), 0

    def info(self) -> TargetInfo:
        return TargetInfo(name="t", layers={"l": 1}, digest="", input_size=(224, 224))

    def generate(self, requests: Sequence[Generation]) -> list[GeneratedImage]:
        self._sleep(len(requests))
        return [
            GeneratedImage(image=EncodedImage(data=request.seed.to_bytes(8, "big") * (IMAGE_BYTES // 8)))
            for request in requests
        ]

    def probe(self, probes: Sequence[Probe]) -> list[UnitActivation]:
        self._sleep(len(probes))
        return [UnitActivation(value=1.0, box=(0, 0, 1, 1)) for _ in probes]

    def reply(self, chats: Sequence[Chat]) -> list[Reply]:
        """An engine that batches by itself: the more are under way, the longer each takes."""
        with self._lock:
            self._under_way += len(chats)
        self._sleep(self._under_way)
        with self._lock:
            self._under_way -= len(chats)
        return [Reply(text="") for _ in chats]

    def _sleep(self, count: int) -> None:
        time.sleep(self._scale * self._cost.seconds(count))


class Tracer(UnitWorker):
    """Asks for what the trace says, instead of what an agent would."""

    def start(self) -> None:
        pass

    def investigate(self, number: int, investigation: InvestigationId, caller: str) -> InvestigationResult:
        job = self.sweeps[number]
        services = job.pools.services(job.exemplars, caller)
        seeds = iter(range(investigation.unit.index << 16, investigation.unit.index + 1 << 16))
        for turn in trace(TARGETS * investigation.unit.index + number):
            services.backbone.reply([chat(caller, next(seeds))])
            time.sleep(SANDBOX * SCALE)
            for count in turn.images:
                drawn = services.generator.generate([Generation(prompt="", seed=next(seeds)) for _ in range(count)])
                services.target.probe([Probe(unit=investigation.unit, image=one.image) for one in drawn])
            if turn.asked:
                services.backbone.reply([chat("", next(seeds)) for _ in range(turn.asked)])
        return InvestigationResult(investigation=investigation, summary={})


def chat(conversation: str, seed: int) -> Chat:
    return Chat(conversation=conversation, messages=(), seed=seed, max_tokens=1)


def measure(smoke: bool) -> dict[str, Any]:
    per_target = 3 if smoke else 250
    work = [trace(index) for index in range(TARGETS * per_target)]
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder, _jobs(Path(folder), per_target, 8 if smoke else AT_ONCE) as jobs:
        took, startup = _swept(jobs, began)
    bound, published, most = bounds(work)
    gpus = sum(cost.replicas for cost in COSTS.values())
    return {
        "of_bound": bound * SCALE / took,
        "over_published": published / gpus * SCALE / took,
        "most_over_published": most,
        "startup_s": round(startup, 1),
        "took_scaled_s": round(took, 1),
        "investigations": len(work),
        "turns": round(sum(map(len, work)) / len(work), 2),
        "images": sum(sum(turn.images) for one in work for turn in one),
        "costs": {role: asdict(cost) for role, cost in COSTS.items()},
    }


def _swept(jobs: Sequence[SweepContext], began: float) -> tuple[float, float]:
    """Seconds of the sweep, from the moment when all investigators are up, and those before it."""
    width = jobs[0].config.ray.investigations
    started = 0.0

    def look(running: Sequence[Any]) -> None:
        nonlocal started
        if not started and len(running) == width:
            started = time.monotonic()

    first = 0.0
    for number, (_, result) in enumerate(Scheduler(jobs[0].config, jobs, look, worker_class=Tracer).results()):
        assert result.summary is not None, result.cause
        if number == 0:
            first = time.monotonic()
    started = min(started or first, first)
    return time.monotonic() - started, started - began


def bounds(work: Sequence[Sequence[Turn]]) -> tuple[float, float, float]:
    """Unscaled seconds: (the bottleneck's at full batches, all of the published way's on one GPU, how much more that is
    than all of ours at full batches)."""
    images = sum(sum(turn.images) for one in work for turn in one)
    replies = sum(1 + turn.asked for one in work for turn in one)
    ours = {
        "backbone": COSTS["backbone"].at_full_batches(replies),
        "generator": COSTS["generator"].at_full_batches(images),
        "target": COSTS["target"].at_full_batches(images),
    }
    published = sum(_alone(turn) for one in work for turn in one)
    return max(ours[role] / COSTS[role].replicas for role in ours), published, published / sum(ours.values())


def _alone(turn: Turn) -> float:
    """Seconds of one turn in a process that holds all models."""
    asked = COSTS["backbone"].seconds(turn.asked) if turn.asked else 0.0
    shown = sum(COSTS["generator"].seconds(count) + COSTS["target"].seconds(count) for count in turn.images)
    return COSTS["backbone"].seconds(1) + SANDBOX + shown + asked


@contextmanager
def _jobs(folder: Path, per_target: int, at_once: int) -> Iterator[list[SweepContext]]:
    from openmaia.distributed.cluster.connection import cluster

    overrides = ["ray.num_cpus=64", f"ray.investigations={at_once}", "ray.investigations_per_process=16"]
    configs = [
        short(folder, f"name=sweep-{n}", f"target.name=target-{n}", "ray.memory_mb=1", *overrides)
        for n in range(TARGETS)
    ]
    with cluster(configs[0]):
        common = {role: _manager(role, COSTS[role].replicas) for role in ("generator", "backbone")}
        targets = [_manager("target", 1) for _ in range(TARGETS)]
        with manage([*common.values(), *targets]):
            for manager in (*common.values(), *targets):
                _wait_for(manager)
            shared = {role: PoolAddress(dispatcher=manager.dispatcher) for role, manager in common.items()}
            yield [
                SweepContext(
                    config=config,
                    run=planned(config, per_target),
                    pools=Pools(
                        {"target": PoolAddress(dispatcher=target.dispatcher), **shared},
                        pools_by_role(config) | {"editor": "generator"},
                    ),
                    exemplars=ExemplarStore.at(config.paths.exemplars, config.target.name, "none"),
                    assembly=ConfigAssembly(),
                )
                for config, target in zip(configs, targets, strict=True)
            ]


def _manager(role: str, replicas: int) -> PoolManager:
    cost = COSTS[role]
    config = PoolConfig(min_replicas=replicas, max_batch=cost.batch)
    concurrency = cost.batch if role == "backbone" else 0
    return PoolManager(
        spec=PoolSpec(role=role, make=partial(Sleeper, cost, SCALE), config=config, concurrency=concurrency)
    )


def _wait_for(manager: PoolManager) -> None:
    while ray.get(manager.dispatcher.statistics.remote(), timeout=300).replicas < manager.spec.config.min_replicas:
        time.sleep(0.1)
