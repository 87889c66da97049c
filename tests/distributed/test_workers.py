"""How many processes a worker pool starts."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from openmaia.distributed.workers import Item, WorkerPool, WorkStep
from tests.helpers.sweeping import planned, short


class Idle:
    def __init__(self, sweeps: Sequence[Any]):
        pass

    def start(self) -> None:
        pass


@pytest.mark.parametrize(
    ("steps", "capacities"),
    [
        ([WorkStep.INVESTIGATE] * 2, [1, 1]),
        ([WorkStep.INVESTIGATE, WorkStep.TEST, WorkStep.INVESTIGATE, WorkStep.TEST, WorkStep.TEST], [1, 1, 1]),
    ],
)
def test_processes_reserve_what_their_investigations_need_and_tests_share_them(
    ray_cluster: None, tmp_path: Path, steps: list[WorkStep], capacities: list[int]
):
    config = short(tmp_path, "ray.memory_mb=1", "ray.cpus_per_investigation=0", "ray.investigations=4")
    [investigation] = planned(config, 1).plan()
    pool = WorkerPool(config, [], Idle)
    try:
        for step in steps:
            pool.submit(Item(0, investigation, step))
            assert not list(pool.assignable(lambda item: False))  # as long as the processes start
        assert [worker.capacity for worker in pool._workers] == capacities
    finally:
        pool.stop()
