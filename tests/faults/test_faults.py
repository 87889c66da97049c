"""The campaign itself: what it calls a repeated turn, and one trial."""

import pytest

from tests.faults.campaign import over_repeated, trial, undisturbed
from tests.faults.disturbances import DISTURBANCES


@pytest.mark.parametrize(
    ("counts", "is_wrong"),
    [
        ({"mono/0 0": 1, "mono/0 1": 2, "mono/1 2": 2}, False),
        ({"mono/0 0": 3}, True),
        ({"mono/0 0": 2, "mono/0 1": 2}, True),
    ],
)
def test_more_than_the_turn_in_progress_is_too_much(counts: dict[str, int], is_wrong: bool):
    assert bool(over_repeated(counts)) == is_wrong


@pytest.mark.slow
@pytest.mark.nightly
def test_a_killed_worker_costs_the_turn_in_progress():
    done = trial("worker killed", DISTURBANCES["worker killed"], 0, undisturbed())
    assert done.was_there and not done.problem, done
