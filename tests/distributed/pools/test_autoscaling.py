"""When a pool grows and shrinks."""

from openmaia.distributed.pools.autoscaling import DOWN_AFTER, DOWN_AFTER_IF_WANTED, UP_AFTER, ScalingPolicy


def after(policy: ScalingPolicy, count: int, demand: float, seconds: float, *, others_wait: bool = False) -> int:
    """The decision after the demand has been the same for so long, looked at twice a second."""
    wanted = count
    for step in range(int(seconds * 2) + 1):
        wanted = policy.desired(count, demand, 100 + step / 2, others_wait=others_wait)
        if wanted != count:
            return wanted
    return wanted


def test_scaling_starts_with_the_minimum():
    assert ScalingPolicy(3, 5).desired(0, 0.0, 1.0) == 3


def test_scaling_up_needs_lasting_demand():
    assert after(ScalingPolicy(1, 4), 1, 3.0, UP_AFTER - 1) == 1
    assert after(ScalingPolicy(1, 4), 1, 3.0, UP_AFTER + 1) == 2


def test_scaling_up_doubles_at_most_and_stays_below_the_maximum():
    assert after(ScalingPolicy(1, 16), 4, 50.0, UP_AFTER + 1) == 8
    assert after(ScalingPolicy(1, 6), 4, 50.0, UP_AFTER + 1) == 6
    assert after(ScalingPolicy(2, 2), 2, 50.0, UP_AFTER + 60) == 2


def test_scaling_down_goes_by_one_after_a_lasting_lull():
    assert after(ScalingPolicy(1, 4), 4, 1.0, DOWN_AFTER - 1) == 4
    assert after(ScalingPolicy(1, 4), 4, 1.0, DOWN_AFTER + 1) == 3
    assert after(ScalingPolicy(4, 4), 4, 0.0, DOWN_AFTER + 60) == 4


def test_scaling_down_is_quicker_if_another_pool_waits():
    assert after(ScalingPolicy(1, 4), 4, 1.0, DOWN_AFTER_IF_WANTED + 1, others_wait=True) == 3


def test_scaling_rests_where_demand_meets_supply():
    assert after(ScalingPolicy(1, 4), 2, 1.8, 10 * DOWN_AFTER) == 2
    assert after(ScalingPolicy(1, 4), 2, 1.1, 10 * DOWN_AFTER) == 2, "one replica would be too few"
    assert after(ScalingPolicy(1, 4), 2, 0.9, DOWN_AFTER + 1) == 1


def test_scaling_of_a_pool_that_may_not_grow_keeps_its_minimum():
    assert after(ScalingPolicy(2, 0), 2, 9.0, UP_AFTER + 60) == 2


def test_scaling_of_a_released_pool_ends_all_idle_replicas_together():
    assert after(ScalingPolicy(3, 4, is_released=True), 4, 0.0, DOWN_AFTER_IF_WANTED - 1) == 4
    assert after(ScalingPolicy(3, 4, is_released=True), 4, 0.0, DOWN_AFTER_IF_WANTED + 1) == 0
    assert after(ScalingPolicy(3, 4, is_released=True), 4, 1.5, DOWN_AFTER_IF_WANTED + 1) == 2


def test_scaling_of_a_released_pool_keeps_or_starts_a_replica_for_a_request_that_waits():
    assert after(ScalingPolicy(1, 0, is_released=True), 1, 0.1, 10 * DOWN_AFTER) == 1
    assert ScalingPolicy(1, 0, is_released=True).desired(0, 0.1, 1.0) == 1
    assert ScalingPolicy(1, 0, is_released=True).desired(0, 0.0, 1.0) == 0
