"""Predicts the duration of a sweep (all investigations of a run) and of its evaluation by simulating its services.

The interval of the prediction comes from the spread of the investigations in the records of an earlier run.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from openmaia.config.schema import Config
from openmaia.core.components import of_config
from openmaia.core.errors import UsageError
from openmaia.evaluation.services import look_sizes
from openmaia.reporting.costs.simulation import SimulatedPool, SimulatedPools, Trace, simulate
from openmaia.reporting.costs.workload import Workload

STEADY = 4000
"""Maximum number of simulated investigations; four times the number of concurrent ones if that is more. In a larger
sweep, the other investigations are assumed to end at the mean rate of the middle half of the simulated ones."""

SLACK = 1e-9
"""Tolerance in sums of GPUs, because fractions of a GPU do not add up exactly."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictedUse:
    """The predicted use of one service, such as the image generator, in a sweep and its evaluation.

    A sweep consists of all investigations of a run.
    """

    pool: SimulatedPool
    """The replicas of the service."""
    requests: float
    """Number of requests."""
    hours: float
    """Replica-hours that are spent on requests."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """The predicted duration and costs of a sweep (all investigations of a run) and of its evaluation."""

    units: int
    """Number of investigations."""
    at_once: int
    """Number of concurrent investigations."""
    seconds: float
    """Duration of the investigations and of their evaluation."""
    interval: tuple[float, float]
    """95 % interval of `seconds` (normal approximation). Both ends equal `seconds` if the prediction does not come from
    at least two records."""
    evaluation: float
    """The part of `seconds` in which descriptions are evaluated."""
    serial: float | None
    """Duration with evaluation if each of the GPUs holds all models and runs one investigation at a time; None without
    GPUs."""
    bottleneck: str
    """The service that limits the throughput; empty if the number of concurrent investigations limits it."""
    services: Mapping[str, PredictedUse]
    """The predicted use of each service, by its name."""
    tokens: Sequence[float]
    """Total numbers of prompt tokens (including cached ones), of cached prompt tokens, and of generated tokens."""

    @property
    def gpus(self) -> int:
        """The number of GPUs that the replicas (model processes) of all services occupy. Replicas can share a GPU."""
        return _whole_gpus([(use.pool.replicas, use.pool.gpus) for use in self.services.values()])


def predict(work: Workload, pools: SimulatedPools, *, units: int, at_once: int, tested: int) -> Prediction:
    """Predicts a sweep (all investigations of a run) by simulating it.

    The evaluation of the descriptions is assumed to follow the investigations, in full batches. Loading models,
    computing exemplars and failures are not included.

    The bottleneck is the busiest service, or the limit of `at_once` concurrent investigations. The 95 % interval of the
    duration assumes that the duration is proportional to the mean time that an investigation needs at the bottleneck.
    This mean is uncertain for two reasons: it is estimated from the sample `work`, and the investigations of the sweep
    vary.

    Args:
        work: The sample from which investigations are drawn, and what they ask of each service.
        pools: The replicas of each service.
        units: The number of investigations in the sweep.
        at_once: The number of concurrent investigations.
        tested: The number of images of each kind on which a description is tested at its last look. Positive images
            show what the description names, and neutral images do not.
    """
    chosen = np.random.default_rng(0).integers(len(work.traces), size=min(units, max(STEADY, 4 * at_once)))
    ends, queues = simulate([work.traces[int(index)] for index in chosen], pools, at_once)
    scale, quarter, seconds = units / len(chosen), len(chosen) // 4, ends[-1]
    if units > len(chosen):
        seconds += (units - len(chosen)) * (ends[-quarter] - ends[quarter]) / (len(chosen) - 2 * quarter)
    tests = _tests(pools, tested)
    testing = units * max((n * pools[s].per_request / pools[s].replicas for s, n in tests.items()), default=0.0)
    load = _load(work, pools) | {"": _alone(work.traces, pools) / at_once}
    bottleneck = max(load, key=lambda part: load[part][chosen].sum())
    each, spread = load[bottleneck], 0.0
    if work.seconds and len(each) > 1:
        spread = float(1.96 * each.std(ddof=1) / each.mean() * math.sqrt(1 / len(each) + 1 / units))
    gpus = _whole_gpus([(pool.replicas, pool.gpus) for pool in pools.values()])
    single = {service: replace(pool, replicas=1) for service, pool in pools.items()}
    serial = _alone(work.traces, single).mean() + _alone([list(tests.items())], single)[0]
    return Prediction(
        units=units,
        at_once=at_once,
        seconds=seconds + testing,
        interval=(seconds * max(1 - spread, 0.0) + testing, seconds * (1 + spread) + testing),
        evaluation=testing,
        serial=float(serial) * units / gpus if gpus else None,
        bottleneck=bottleneck,
        services={
            service: PredictedUse(
                pool=pool,
                requests=queues[service].requests * scale + tests.get(service, 0) * units,
                hours=(queues[service].busy * scale + tests.get(service, 0) * units * pool.per_request) / 3600,
            )
            for service, pool in pools.items()
        },
        tokens=list(work.tokens[chosen].sum(axis=0) * scale),
    )


def _whole_gpus(replicas: Sequence[tuple[int, float]]) -> int:
    """Returns the number of GPUs of all replicas, given as pairs of a number of replicas and the share of a GPU of each.

    Some may share a GPU, but not two whose shares are above one half.
    """
    large = sum(count * math.ceil(share) for count, share in replicas if share > 0.5)
    return max(large, math.ceil(sum(count * share for count, share in replicas) - SLACK))


def _tests(pools: SimulatedPools, tested: int) -> dict[str, float]:
    """Returns the number of requests to each service in the evaluation of one description.

    Its positive and neutral images are generated once, and measured twice: for the unit and as controls of another
    unit.

    Args:
        pools: The services of the sweep.
        tested: The number of positive images, and of neutral images.
    """
    return {service: n for service, n in (("generator", 2.0 * tested), ("target", 4.0 * tested)) if service in pools}


def _load(work: Workload, pools: SimulatedPools) -> dict[str, npt.NDArray[np.float64]]:
    """Returns for each service the replica-seconds of each investigation divided by the number of replicas, (n,).

    Replica-seconds are the recorded ones, or those of full batches if none are recorded.
    """
    asked = {s: np.array([sum(amount for name, amount in trace if name == s) for trace in work.traces]) for s in pools}
    spent = {s: np.array(work.seconds[s]) if work.seconds else asked[s] * pools[s].per_request for s in pools}
    return {service: spent[service] / pool.replicas for service, pool in pools.items()}


def _alone(traces: Sequence[Trace], pools: SimulatedPools) -> npt.NDArray[np.float64]:
    """Returns the duration of each investigation if it is the only one, (n,), in seconds."""
    return np.diff(simulate(traces, pools, at_once=1)[0], prepend=0.0)


def enough_at_once(work: Workload, pools: SimulatedPools, units: int) -> int:
    """Returns how many investigations to run concurrently so that the replicas of all services are busy.

    It is twice the number of calls that fill one batch of every replica, but at most `units`, the number of all
    investigations.
    """
    calls = 0.0
    for service, pool in pools.items():
        sizes = [amount for trace in work.traces for name, amount in trace if name == service]
        calls += pool.replicas * max(1.0, pool.max_batch / np.mean(sizes)) if sizes else 0.0
    return max(1, min(units, math.ceil(2 * calls)))


def estimate(config: Config, work: Workload, units: int, gpus: int | None) -> Prediction:
    """Predicts a sweep (all investigations of a run) with the numbers of replicas that make it fastest.

    Args:
        config: The config of the sweep.
        work: The sample from which investigations are drawn, and what they ask of each service.
        units: The number of investigations.
        gpus: The number of GPUs. If it is given, the config limits neither the replicas of services that use GPUs nor
            the number of concurrent investigations. If it is None, the config sets all limits: `min_replicas` and
            `max_replicas` of each service, the GPUs of its job, and the number of concurrent investigations.

    Raises:
        UsageError: The GPUs do not suffice even for the smallest permitted numbers of replicas.
    """
    pools: dict[str, SimulatedPool] = {}
    most: dict[str, float] = {}
    agent = of_config(config.backbone)
    for role, timed in work.timed.items():
        settings, served = getattr(config.pools, role), role == "backbone" and agent.reads_prompts
        batch = agent.concurrency(config.backbone) if served else settings.max_batch
        pools[role] = replace(timed, replicas=settings.min_replicas, max_batch=batch, gpus=settings.num_gpus)
        most[role] = max(settings.min_replicas, settings.max_replicas)
        if gpus is not None and (timed.gpus or settings.num_gpus):
            pools[role] = replace(pools[role], replicas=1) if settings.num_gpus else timed
            most[role] = math.inf
    available = (config.job.nodes * config.job.gpus or math.inf) if gpus is None else gpus
    asked = {service: float(load.mean()) for service, load in _load(work, pools).items()}
    investigating = {service: seconds * pools[service].replicas for service, seconds in asked.items() if seconds}
    tested = tested_images(config)[-1]
    testing = {service: n * pools[service].per_request for service, n in _tests(pools, tested).items()}
    pools = balanced(investigating, testing, pools, most, available)
    at_once = max(1, min(units, config.ray.investigations)) if gpus is None else enough_at_once(work, pools, units)
    return predict(work, pools, units=units, at_once=at_once, tested=tested)


def tested_images(config: Config) -> tuple[int, ...]:
    """Returns the number of images of each kind on which a description is tested up to each look."""
    return look_sizes(config.evaluate.preset, config.evaluate.n, config.evaluate.looks)


def balanced(
    first: Mapping[str, float],
    second: Mapping[str, float],
    pools: SimulatedPools,
    most: Mapping[str, float],
    gpus: float,
) -> dict[str, SimulatedPool]:
    """Adds replicas to pools so that the total time of two stages is minimal: the investigations and their evaluation.

    Both stages use the same replicas, one stage after the other. The time of a stage is that of its busiest service:
    the maximum over services of replica-seconds divided by the number of replicas.

    A greedy rule is optimal for one stage: add a replica to the busiest service until the GPUs or the limit of this
    service do not permit another one. For two stages, the function tries every k = 0, 1, 2, … that is possible. It
    adds k replicas by the rule for the first stage, and then as many as possible by the rule for the second stage. It
    returns the pools with the smallest total time.

    Args:
        first: The replica-seconds of each service in the first stage.
        second: The same for the second stage.
        pools: The smallest permitted pools, from which the search starts.
        most: The maximum number of replicas of each service.
        gpus: The number of GPUs.

    Returns:
        The pools with added replicas.

    Raises:
        UsageError: The GPUs do not suffice for `pools`.
    """

    def fits(counts: Mapping[str, int]) -> bool:
        return _whole_gpus([(counts[service], pool.gpus) for service, pool in pools.items()]) <= gpus

    start = {service: pool.replicas for service, pool in pools.items()}
    if not fits(start):
        needed = ", ".join(f"{service} {pool.replicas} x {pool.gpus:g}" for service, pool in pools.items() if pool.gpus)
        raise UsageError(f"{gpus:g} GPUs do not hold {needed}; give more, or a smaller pools.<service>.num_gpus")

    def path(work: Mapping[str, float], counts: dict[str, int]) -> Iterator[dict[str, int]]:
        yield counts
        while work:
            busiest = max(work, key=lambda service: work[service] / counts[service])
            more = counts | {busiest: counts[busiest] + 1}
            if more[busiest] > most[busiest] or not fits(more):
                return
            counts = more
            yield counts

    def seconds(counts: Mapping[str, int]) -> float:
        return sum(max((work[service] / counts[service] for service in work), default=0.0) for work in (first, second))

    best = min((list(path(second, counts))[-1] for counts in path(first, start)), key=seconds)
    return {service: replace(pool, replicas=best[service]) for service, pool in pools.items()}
