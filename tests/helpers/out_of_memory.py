"""`python -m tests.helpers.out_of_memory`: a pool whose replica takes more memory than Ray's monitor allows, over one request.
Prints what became of it and of the next.

The limit lies a little above what this machine uses now, so that little has to be taken.
"""

import os

import psutil

TAKEN = 3 * 2**30

used = psutil.virtual_memory()
threshold = (used.total - used.available + TAKEN / 2) / used.total
os.environ |= {"RAY_memory_usage_threshold": f"{threshold:.3f}", "RAY_memory_monitor_refresh_ms": "100"}
os.environ.setdefault("RAY_raylet_start_wait_time_s", "120")  # for busy machines

import openmaia.distributed  # noqa: E402, F401, I001  settles how Ray starts
import asyncio  # noqa: E402
import json  # noqa: E402
import time  # noqa: E402
from collections.abc import Sequence  # noqa: E402
from dataclasses import dataclass, field  # noqa: E402
from typing import Any  # noqa: E402

import ray  # noqa: E402

from openmaia.core.errors import ServiceError  # noqa: E402
from openmaia.distributed.pools.dispatch.dispatcher import Dispatcher  # noqa: E402
from openmaia.distributed.pools.replica import PoolSpec, Replica  # noqa: E402
from openmaia.config.machine import PoolConfig  # noqa: E402


@dataclass
class Devouring:
    taken: list[bytes] = field(default_factory=list[bytes])

    def double(self, numbers: Sequence[int]) -> list[int]:
        if -1 in numbers:
            for _ in range(TAKEN // 2**26):
                self.taken.append(os.urandom(2**10) * 2**16)
                time.sleep(0.02)
            time.sleep(60)
        return [2 * number for number in numbers]


async def main() -> None:
    """The dispatcher runs in this process: of several workers Ray's monitor would choose one whose work can be retried."""
    ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False)
    core = Dispatcher(PoolSpec(role="target", make=Devouring, config=PoolConfig(deadline=600.0)))
    replica = ray.remote(Replica).options(num_cpus=0, max_restarts=-1, max_concurrency=2).remote("target-0", Devouring)
    core.update({0: replica})

    async def answers(numbers: list[int]) -> list[int]:
        none = [""] * len(numbers)
        return (await core.submit("a", "double", [ray.put(numbers)], none, none, 0))[0]

    said: dict[str, Any] = {"before": await answers([1])}
    try:
        await answers([-1])
    except ServiceError as error:
        said["deadly"] = error.message
    said |= {"after": await answers([2]), "deaths": core.statistics().deaths}
    print(json.dumps(said))
    ray.shutdown()


if __name__ == "__main__":
    asyncio.run(main())
