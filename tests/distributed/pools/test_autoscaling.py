"""When a pool grows and shrinks, and how pools share what does not suffice for all."""

from dataclasses import replace
from typing import Any

import pytest

from openmaia.distributed.pools.autoscaling import (
    DOWN_AFTER,
    UP_AFTER,
    WINDOW,
    OfferedLoad,
    PoolClaim,
    ScalingPolicy,
    fair_shares,
    shares_if_short,
)
from openmaia.distributed.pools.statistics import PoolStatistics


def after(policy: ScalingPolicy, count: int, demand: float, seconds: float, **others: Any) -> int:
    """The decision after the demand has been the same for so long, looked at twice a second."""
    wanted = count
    for step in range(int(seconds * 2) + 1):
        wanted = policy.desired(count, demand, 100 + step / 2, **others)
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


def test_scaling_rests_where_demand_meets_supply():
    assert after(ScalingPolicy(1, 4), 2, 1.8, 10 * DOWN_AFTER) == 2
    assert after(ScalingPolicy(1, 4), 2, 1.1, 10 * DOWN_AFTER) == 2, "one replica would be too few"
    assert after(ScalingPolicy(1, 4), 2, 0.9, DOWN_AFTER + 1) == 1


def test_scaling_of_a_pool_that_may_not_grow_keeps_its_minimum():
    assert after(ScalingPolicy(2, 0), 2, 9.0, UP_AFTER + 60) == 2


def test_scaling_of_a_released_pool_ends_all_idle_replicas_together_and_soon():
    assert after(ScalingPolicy(3, 4, is_released=True), 4, 0.0, UP_AFTER - 1) == 4
    assert after(ScalingPolicy(3, 4, is_released=True), 4, 0.0, UP_AFTER + 1) == 0
    assert after(ScalingPolicy(3, 4, is_released=True), 4, 1.5, UP_AFTER + 1) == 2


def test_scaling_of_a_released_pool_keeps_or_starts_a_replica_for_a_request_that_waits():
    assert after(ScalingPolicy(1, 0, is_released=True), 1, 0.1, 10 * DOWN_AFTER) == 1
    assert ScalingPolicy(1, 0, is_released=True).desired(0, 0.1, 1.0) == 1
    assert ScalingPolicy(1, 0, is_released=True).desired(0, 0.0, 1.0) == 0


def test_scaling_down_of_a_large_pool_goes_by_an_eighth_but_not_below_its_demand():
    assert after(ScalingPolicy(1, 64), 32, 1.0, DOWN_AFTER + 1) == 28
    assert after(ScalingPolicy(1, 64), 32, 30.5, DOWN_AFTER + 1) == 31


# -- shared resources ------------------------------------------------------------------------------------------------


def test_scaling_up_waits_for_replicas_that_have_not_started():
    assert after(ScalingPolicy(1, 16), 4, 50.0, UP_AFTER + 60, room=0) == 4


def test_scaling_up_asks_for_what_there_is():
    assert after(ScalingPolicy(1, 16), 4, 50.0, UP_AFTER + 1, room=3) == 7
    assert after(ScalingPolicy(1, 16), 4, 50.0, UP_AFTER + 1, room=9) == 8


def test_a_pool_grows_to_its_share_while_another_lacks_replicas():
    assert after(ScalingPolicy(1, 16), 4, 50.0, UP_AFTER + 1, share=5) == 5
    assert after(ScalingPolicy(1, 16), 5, 50.0, UP_AFTER + 60, share=5) == 5
    assert after(ScalingPolicy(1, 16), 4, 50.0, UP_AFTER + 1) == 8, "no other has less than its share"


def test_a_busy_pool_gives_what_it_has_above_its_share():
    assert after(ScalingPolicy(1, 32), 9, 50.0, DOWN_AFTER - 1, share=5) == 9
    assert after(ScalingPolicy(1, 32), 9, 50.0, DOWN_AFTER + 1, share=5) == 8
    assert after(ScalingPolicy(1, 32), 32, 50.0, DOWN_AFTER + 1, share=5) == 28
    assert after(ScalingPolicy(9, 32), 9, 50.0, DOWN_AFTER + 60, share=5) == 9, "its minimum"
    assert after(ScalingPolicy(0, 32), 1, 50.0, DOWN_AFTER + 60, share=0) == 1, "its last"


def test_a_released_pool_keeps_a_replica_for_its_last_requests_while_another_waits():
    policy = ScalingPolicy(3, 4, is_released=True)
    assert after(policy, 4, 9.0, DOWN_AFTER + 1, share=0) == 3
    assert after(policy, 1, 0.2, DOWN_AFTER + 60, share=0) == 1


def claim(
    load: float | None, placed: int = 1, smallest: int = 1, largest: int = 99, *, waits: bool = False
) -> PoolClaim:
    return PoolClaim(load=load, placed=placed, smallest=smallest, largest=largest, waits=waits)


def test_shares_make_the_most_loaded_replica_as_little_loaded_as_possible():
    """56, 14.6 and 3.4 on 7 GPUs: 5 and 1 would be 14.6 for the second pool, 4 and 2 are 14 for the first."""
    assert fair_shares([claim(56), claim(14.6), claim(3.4)], free=4) == [4, 2, 1]
    assert fair_shares([claim(3.0, 10), claim(1.0, 0, 0), claim(0.0)]) == [7, 3, 1]


def test_shares_do_not_depend_on_who_has_what():
    loads, held = (5.0, 2.0, 0.1), ((14, 1, 1), (1, 14, 1))
    shares = [fair_shares([claim(load, n) for load, n in zip(loads, placed, strict=True)]) for placed in held]
    assert shares == [[11, 4, 1]] * 2


def test_a_pool_whose_load_is_unknown_keeps_what_it_has():
    assert fair_shares([claim(4.0, 2), claim(None, 5)], free=1) == [3, 5]
    assert fair_shares([claim(None, 2), claim(None, 5)], free=3) == [2, 5]


def test_shares_keep_to_the_smallest_and_largest_numbers_of_replicas():
    assert fair_shares([claim(9.0, 4, 4), claim(1.0, 4, 4)]) == [4, 4]
    assert fair_shares([claim(9.0, 4, 1), claim(0.1, 4, 3)]) == [5, 3]
    assert fair_shares([claim(6.0, 2, 1, 2), claim(4.0, 7), claim(2.0, 7)]) == [2, 9, 5]
    assert fair_shares([claim(6.0, 2, 1, 2), claim(4.0, 2, 1, 2)], free=9) == [2, 2], "more than all can use"


def test_pools_share_only_if_one_of_them_lacks_replicas():
    having, lacking = claim(1.0, 7), claim(1.0, 1, waits=True)
    assert shares_if_short([having, lacking]) == [4, None]
    assert shares_if_short([having, lacking], free=2) == [5, None]
    assert shares_if_short([having, replace(lacking, waits=False)]) == [None, None]
    assert shares_if_short([replace(having, waits=True), replace(lacking, waits=False)]) == [None, None], (
        "it has enough"
    )
    assert shares_if_short([having, lacking, lacking]) == [3, 3, 3]


# -- the offered load ------------------------------------------------------------------------------------------------


def offered(load: OfferedLoad, rate: float, seconds: int, start: float, before: PoolStatistics) -> PoolStatistics:
    """So many requests arrive per second, of which each takes 2 replica-seconds; half of them are answered."""
    now = before
    for second in range(seconds + 1):
        arrived = before.batched + before.waiting + round(rate * second)
        now = replace(before, batched=arrived // 2, waiting=arrived - arrived // 2, service_seconds=arrived // 2 * 2.0)
        load.update(now, start + second)
    return now


def test_offered_load_is_what_arrives_and_not_what_is_answered():
    load = OfferedLoad()
    assert load.value is None
    before = offered(load, 4, 60, 100.0, PoolStatistics())
    assert load.value == pytest.approx(8.0, rel=0.05)
    offered(load, 1, int(10 * WINDOW), 160.0, before)
    assert load.value == pytest.approx(2.0, rel=0.05)


def test_offered_load_is_unknown_until_something_was_answered():
    load = OfferedLoad()
    for second in range(11):
        load.update(PoolStatistics(batched=8 * second, under_way=8 * second, waiting=2 * second), 100.0 + second)
    assert load.value is None
    load.update(PoolStatistics(batched=88, under_way=80, waiting=22, service_seconds=10.0), 111.0)
    assert load.value == pytest.approx(10 * 10 / 8, rel=0.03), "all that arrived since the start"


def test_offered_load_of_a_pool_that_is_used_late_is_not_thinned_by_the_time_before():
    load = OfferedLoad()
    for minute in range(60):
        load.update(PoolStatistics(), 60.0 * minute)
    offered(load, 4, 60, 3600.0, PoolStatistics())
    assert load.value == pytest.approx(8.0, rel=0.05)


def test_offered_load_survives_a_dispatcher_that_begins_anew():
    load = OfferedLoad()
    load.update(PoolStatistics(), 100.0)
    load.update(PoolStatistics(batched=50, service_seconds=50.0), 110.0)
    load.update(PoolStatistics(batched=1, service_seconds=1.0), 111.0)
    load.update(PoolStatistics(batched=6, service_seconds=6.0), 112.0)
    assert load.value == pytest.approx(55 / 12, rel=0.03)
