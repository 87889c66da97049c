"""Drives a plan: bounded submission of investigations as Ray tasks, failed ones again while they have tries left."""

from collections import Counter, deque
from collections.abc import Iterator, Sequence
from typing import Any

import ray
from ray.exceptions import RayError

from openmaia import build
from openmaia.agent.attempt import Result, attempt
from openmaia.remote.services import Pools
from openmaia.schema import Config
from openmaia.services import Exemplars
from openmaia.store.run import Owed, Run
from openmaia.tasks.task import load


def _investigate(owed: Owed, caller: str, shared: tuple[Config, Pools, Exemplars, Run]) -> Result:
    config, pools, exemplars, run = shared
    services = pools.services(exemplars, caller)
    return attempt(owed, load(config.task.name), services, build.options(config), run)


_remote_investigate: Any = ray.remote(_investigate)


def drive(config: Config, run: Run, owed: Sequence[Owed], pools: Pools, exemplars: Exemplars) -> Iterator[Result]:
    """Yields the final result of every unit, in the order in which they end."""
    waiting = deque(owed)
    tries: Counter[Owed] = Counter()
    under_way: dict[Any, tuple[Owed, str]] = {}
    task = _remote_investigate.options(
        num_cpus=config.ray.cpus_per_investigation, memory=config.ray.memory_mb * 2**20, max_retries=0
    )
    shared = ray.put((config, pools, exemplars, run))
    while waiting or under_way:
        while waiting and len(under_way) < config.ray.investigations:
            next_up = waiting.popleft()
            caller = f"{next_up.unit}/{next_up.replicate}/{tries[next_up]}"
            under_way[task.remote(next_up, caller, shared)] = next_up, caller
        done, _ = ray.wait(list(under_way), num_returns=1, timeout=5)
        for reference in done:
            unit, caller = under_way.pop(reference)
            result = _result(reference, unit, run)
            pools.leave(caller)
            tries[unit] += 1
            if result.summary is None and tries[unit] <= config.retries:
                waiting.append(unit)
            else:
                yield result


def _result(reference: Any, owed: Owed, run: Run) -> Result:
    """What a dead worker leaves is a failed unit, too."""
    try:
        return ray.get(reference)
    except RayError as error:
        cause = f"{type(error).__name__}: the investigating process died"
        run.fail(owed, cause)
        return Result(owed=owed, summary=None, cause=cause)
