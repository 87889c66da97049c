"""How many replicas each service gets of a number of GPUs."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from openmaia.costs.simulation import Pool
from openmaia.errors import UsageError

SLACK = 1e-9
"""Of GPUs: parts of one, such as ten tenths, do not add up exactly."""

Counts = dict[str, int]


def balanced(stages: Sequence[Mapping[str, float]], pools: Mapping[str, Pool], gpus: float) -> dict[str, Pool]:
    """The pools with the numbers of replicas that minimise the time of two stages, one after the other: of each, the
    work of its busiest service over its replicas.

    stages: requests per unit by service, of one stage or of two (investigations, then evaluation). Services without GPUs
    keep their replicas, those that nobody asks get one; GPUs that would shorten nothing are not given away. Raises
    UsageError where one replica of each does not fit.

    Giving the next replica to the busiest service until its replica no longer fits is optimal for one stage: its time
    only falls by more replicas of that service. The same from each intermediate state on, with the work of the second
    stage, is optimal for the sum: one of those states has what the best solution needs for the first stage, and no more.
    """
    counts = {service: 1 if pool.gpus else pool.replicas for service, pool in pools.items()}
    left = gpus - sum(pool.gpus for pool in pools.values())
    if left < -SLACK:
        needed = ", ".join(f"{service} {pool.gpus:g}" for service, pool in pools.items() if pool.gpus)
        raise UsageError(
            f"{gpus:g} GPUs do not hold one replica of each service ({needed}); give more of them, or smaller parts as "
            "pools.<service>.num_gpus"
        )
    first, second = ([_work(stage, pools) for stage in stages] + [{}, {}])[:2]
    best = min(
        (_last(_raised(second, pools, *state)) for state in _raised(first, pools, counts, left)),
        key=lambda counts: _time(first, counts) + _time(second, counts),
    )
    return {service: replace(pool, replicas=best[service]) for service, pool in pools.items()}


def _work(stage: Mapping[str, float], pools: Mapping[str, Pool]) -> dict[str, float]:
    """Replica-seconds per unit of the services that are asked at all."""
    return {service: stage[service] * pool.per_request for service, pool in pools.items() if stage.get(service)}


def _raised(
    work: Mapping[str, float], pools: Mapping[str, Pool], counts: Counts, left: float
) -> Iterator[tuple[Counts, float]]:
    """The counts given, then with one replica more of the busiest service each time, and the GPUs that are left."""
    yield counts, left
    while work:
        busiest = max(work, key=lambda service: work[service] / counts[service])
        if not pools[busiest].gpus or pools[busiest].gpus > left + SLACK:
            return
        counts = counts | {busiest: counts[busiest] + 1}
        left -= pools[busiest].gpus
        yield counts, left


def _last(states: Iterator[tuple[Counts, float]]) -> Counts:
    found: Counts = {}
    for counts, _ in states:
        found = counts
    return found


def _time(work: Mapping[str, float], counts: Counts) -> float:
    """Seconds per unit."""
    return max((work[service] / counts[service] for service in work), default=0.0)
