"""How many processes a worker pool starts."""

import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from openmaia.distributed.worker_limits import WorkerLimits
from openmaia.distributed.workers import WorkerPool


class Idle:
    def __init__(self, sweeps: Sequence[Any]):
        pass

    def start(self) -> None:
        pass

    def process(self) -> int:
        return os.getpid()


@contextmanager
def workers(limits: WorkerLimits) -> Iterator[WorkerPool]:
    pool = WorkerPool(limits, [], Idle)
    try:
        yield pool
    finally:
        pool.stop()


def one_by_one(pool: WorkerPool, count: int) -> list[int]:
    """The capacities of the processes after so many pieces of work came, each while the earlier ones wait."""
    for number in range(count):
        pool.submit(number)
        assert not list(pool.assignable())  # as long as the processes start
    return [worker.capacity for worker in pool._workers]


def test_work_that_reserves_nothing_shares_processes_although_it_comes_one_by_one(ray_cluster: None):
    with workers(WorkerLimits(total=40, per_process=32)) as pool:
        assert one_by_one(pool, 33) == [32, 8]


def test_processes_reserve_no_more_than_their_work_needs(ray_cluster: None):
    with workers(WorkerLimits(total=40, per_process=32, memory_mb=1)) as pool:
        assert one_by_one(pool, 2) == [1, 1]


def test_call_is_repeated_if_the_worker_had_died_idle(ray_cluster: None):
    with workers(WorkerLimits(total=1, per_process=1)) as pool:
        first = pool.call("process")
        os.kill(first, signal.SIGKILL)
        assert pool.call("process") != first
