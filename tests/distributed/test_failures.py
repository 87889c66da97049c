"""What Ray raises if a process has died."""

import time

import pytest
import ray

from openmaia.distributed.failures import DEAD

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("ray_cluster")]


class Computing:
    def slow(self) -> int:
        time.sleep(60)
        return 1

    def use(self, value: int) -> int:
        return value


def test_call_that_waits_for_the_result_of_a_dead_process_fails_as_if_its_own_had_died():
    """So that an evaluation is repeated if the process dies that computes its reference data."""
    actor = ray.remote(num_cpus=0)(Computing)
    first, second = actor.remote(), actor.remote()
    waiting = second.use.remote(first.slow.remote())
    ray.kill(first)
    with pytest.raises(DEAD) as caught:
        ray.get(waiting, timeout=60)
    assert isinstance(caught.value, ray.exceptions.RayTaskError)
