"""What a sweep would take: simulated on its pools, with intervals from a bootstrap over the units that were recorded."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from openmaia.costs.sample import Numbers, Range, Sample
from openmaia.costs.simulation import Pool, Simulated, Trace, bounds, latency, simulate
from openmaia.costs.workload import Workload
from openmaia.errors import UsageError

STEADY = 4000
"""At most so many investigations are simulated, or four times as many as are under way at once where that is more;
what the second half of them took is what further ones take."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """Of a service, evaluation included. hours: of replicas at work. gpu_hours: those times the GPUs of a replica.
    reserved: GPU hours of all its replicas until the sweep ends. utilisation: share of that time at work."""

    pool: Pool
    requests: float
    hours: Range
    gpu_hours: Range
    reserved: float
    utilisation: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """Seconds. evaluation: the part of the duration in which descriptions are tested. serial: the same on as many GPUs
    where each holds all the models and runs one investigation after the other; None without GPUs. bottleneck: the
    service that the others wait for; "" where all services wait for investigations."""

    units: int
    at_once: int
    duration: Range
    evaluation: float
    serial: float | None
    bottleneck: str
    services: Mapping[str, Use]
    tokens: tuple[Range, Range, Range]
    """(prompt, cached of these, generated)."""

    @property
    def gpus(self) -> float:
        return sum(use.pool.replicas * use.pool.gpus for use in self.services.values())

    @property
    def gpu_hours(self) -> float:
        return sum(use.gpu_hours.value for use in self.services.values())

    @property
    def reserved(self) -> float:
        return sum(use.reserved for use in self.services.values())


def predict(workload: Workload, pools: Mapping[str, Pool], *, units: int, at_once: int, tested: int) -> Prediction:
    """tested: pairs of images per description (evaluate.n); 0 without evaluation.

    Investigations are drawn from the workload's and simulated, then their evaluations, as in a run. For the interval,
    records are drawn with replacement, and from those the units; the lower bound of each draw is raised by as much as
    the simulation was above its own (to simulate every draw would take minutes). Left out: loading models, exemplars,
    failures. Raises UsageError where there is nothing to predict.
    """
    if units < 1 or at_once < 1:
        raise UsageError(f"an estimate for {units} units, {at_once} at once: both are 1 or more")
    random = np.random.default_rng(0)
    chosen = random.integers(len(workload.traces), size=min(units, max(STEADY, 4 * at_once)))
    drawn = [workload.traces[n] for n in chosen]
    found, investigating = _simulated(drawn, pools, units, at_once)
    asked = {"generator": 2 * tested, "target": 4 * tested}
    test: Trace = [(service, asked[service]) for service in asked if service in pools and tested]
    tests, testing = _simulated([test] * len(drawn), pools, units, at_once)
    sample = Sample.of(workload, pools, at_once)
    scale = units / len(drawn)
    counts: Numbers = np.bincount(chosen, minlength=len(workload.traces)).astype(np.float64) * scale
    least = sample.bound(counts)
    above = investigating / least if least else 1.0
    draws = sample.draws(units, random) if workload.seconds is not None else []
    total = investigating + testing
    gpus = sum(pool.replicas * pool.gpus for pool in pools.values())
    parts = bounds(drawn, pools, at_once)

    def use(service: str, pool: Pool) -> Use:
        busy, tested_for = found.busy[service] * scale, tests.busy[service] * scale
        work = sample.work(service, counts)
        ratio = busy / work if work else 0.0
        hours = Range.of(busy + tested_for, [sample.work(service, d) * ratio + tested_for for d in draws]).times(
            1 / 3600
        )
        return Use(
            pool=pool,
            requests=(found.requests[service] + tests.requests[service]) * scale,
            hours=hours,
            gpu_hours=hours.times(pool.gpus),
            reserved=total / 3600 * pool.replicas * pool.gpus,
            utilisation=(busy + tested_for) / (total * pool.replicas) if total else 0.0,
        )

    return Prediction(
        units=units,
        at_once=at_once,
        duration=Range.of(total, [above * sample.bound(draw) + testing for draw in draws]),
        evaluation=testing,
        serial=_serial(drawn, test, pools) * units / gpus if gpus else None,
        bottleneck=max(parts, key=lambda part: parts[part]),
        services={service: use(service, pool) for service, pool in pools.items()},
        tokens=sample.tokens(counts, draws),
    )


def at_once_for(workload: Workload, pools: Mapping[str, Pool], units: int) -> int:
    """Investigations that keep every replica at work with as much again waiting: two for each call that fits into a
    batch of each replica."""
    calls = 0.0
    for service, pool in pools.items():
        sizes = [amount for trace in workload.traces for name, amount in trace if name == service]
        calls += pool.replicas * max(1.0, pool.max_batch / float(np.mean(sizes))) if sizes else 0.0
    return max(1, min(units, math.ceil(2 * calls)))


def demand(workload: Workload, tested: int) -> tuple[dict[str, float], dict[str, float]]:
    """Requests per unit by service: of its investigation, and of its evaluation."""
    asked: dict[str, float] = {}
    for trace in workload.traces:
        for service, amount in trace:
            if service:
                asked[service] = asked.get(service, 0.0) + amount / len(workload.traces)
    return asked, {"generator": 2.0 * tested, "target": 4.0 * tested}


def _simulated(traces: Sequence[Trace], pools: Mapping[str, Pool], units: int, at_once: int) -> tuple[Simulated, float]:
    """The simulation of the traces, and seconds for so many units."""
    found = simulate(traces, pools, at_once)
    if units <= len(traces):
        return found, found.makespan
    half = len(traces) // 2
    each = (found.makespan - simulate(traces[:half], pools, at_once).makespan) / (len(traces) - half)
    return found, found.makespan + (units - len(traces)) * each


def _serial(traces: Sequence[Trace], test: Trace, pools: Mapping[str, Pool]) -> float:
    """Seconds of one investigation and its evaluation on a GPU that holds all models: nothing overlaps, and a batch is
    what one call asks for."""
    alone = {
        service: Pool(replicas=1, max_batch=pool.max_batch, fixed=pool.fixed, per_item=pool.per_item)
        for service, pool in pools.items()
    }
    return float(np.mean([latency(trace, alone) for trace in traces])) + latency(test, alone)
