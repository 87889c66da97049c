"""How much of what a server allows is used, by a clock that is moved by hand."""

from collections.abc import Callable

import pytest

from openmaia.models.throttle import Throttle
from tests.helpers.throttled import WAY, Allowance, Bucket, Sliding, Slots, Window, play

TEN_MINUTES = 600


@pytest.mark.parametrize("says", [False, True], ids=["unsaid", "said"])
@pytest.mark.parametrize("latency", [0.2, 2, 20])
@pytest.mark.parametrize(
    ("made", "saved"),
    [
        (lambda: Bucket(1), 1),
        (lambda: Bucket(1, holds=10), 10),
        (lambda: Bucket(1, holds=60), 60),
        (lambda: Window(60), 0),
        (lambda: Sliding(60), 0),
    ],
    ids=["one token", "ten tokens", "sixty tokens", "by the minute", "in any minute"],
)
def test_sixty_requests_a_minute_are_used(made: Callable[[], Allowance], saved: int, latency: float, says: bool):
    played = play(made(), TEN_MINUTES, clients=32, latency=latency, says=says)
    assert played.answered >= 0.85 * (TEN_MINUTES + saved)
    assert played.refused <= 0.7 * played.answered


@pytest.mark.parametrize("says", [False, True], ids=["unsaid", "said"])
@pytest.mark.parametrize("latency", [0.2, 2, 20])
def test_a_request_in_ten_seconds_is_used(latency: float, says: bool):
    played = play(Bucket(0.1), TEN_MINUTES, latency=latency, says=says)
    assert played.answered >= 0.85 * (TEN_MINUTES / 10 + 1)
    assert played.refused <= played.answered


@pytest.mark.parametrize("says", [False, True], ids=["unsaid", "said"])
@pytest.mark.parametrize("latency", [2, 20])
@pytest.mark.parametrize("most", [1, 2, 8])
def test_the_places_of_a_server_are_used(most: int, latency: float, says: bool):
    played = play(Slots(most), TEN_MINUTES, latency=latency, says=says)
    assert played.answered >= 0.85 * most * TEN_MINUTES / (latency + 2 * WAY)
    assert played.throttle.places.count in (most, most + 1)  # one more, if it was free by chance when it was tried


@pytest.mark.parametrize(("before", "then"), [(2, 8), (8, 2)])
def test_places_follow_the_server(before: int, then: int):
    server = Slots(before)
    change = (TEN_MINUTES, lambda: setattr(server, "most", then))
    played = play(server, 2 * TEN_MINUTES, latency=2, change=change)
    assert played.answered >= 0.85 * (before + then) * TEN_MINUTES / (2 + 2 * WAY)
    assert played.throttle.places.count in (then, then + 1)


def test_a_server_with_places_that_is_closed_is_spaced_and_then_used_again():
    played = play(Slots(2), 2 * TEN_MINUTES, latency=2, closed=(100, 700))
    assert played.answered >= 0.85 * 2 * TEN_MINUTES / (2 + 2 * WAY)
    assert played.refused < 300


@pytest.mark.parametrize("latency", [0.2, 2, 20])
def test_a_server_that_limits_the_rate_is_not_taken_to_have_places(latency: float):
    assert play(Bucket(1), TEN_MINUTES, clients=32, latency=latency).throttle.places.count == 0


@pytest.mark.parametrize("says", [False, True], ids=["unsaid", "said"])
def test_ten_minutes_of_refusals_are_no_rate(says: bool):
    played = play(Bucket(5, holds=5), 2 * TEN_MINUTES, latency=1, closed=(100, 700), says=says)
    assert played.answered >= 0.85 * 5 * TEN_MINUTES
    assert played.refused < 600


def test_a_demand_below_the_allowance_is_not_held_up():
    played = play(Bucket(1, holds=10), TEN_MINUTES, latency=1, think=lambda dice: dice.uniform(0, 80))
    assert played.answered >= 0.9 * TEN_MINUTES * 24 / 41


@pytest.mark.parametrize(("before", "then"), [(4, 1), (1, 4)])
def test_the_pace_follows_the_allowance(before: float, then: float):
    bucket = Bucket(before, holds=4)
    played = play(bucket, 2 * TEN_MINUTES, latency=1, change=(TEN_MINUTES, lambda: setattr(bucket, "rate", then)))
    assert played.answered >= 0.85 * (before + then) * TEN_MINUTES
    assert played.throttle.estimate == pytest.approx(then, rel=0.2)
    assert played.refused <= 0.5 * played.answered


def test_a_refusal_counts_once_for_all_that_were_sent_before_it():
    throttle = Throttle()
    sent = [throttle.enter(0.0) for _ in range(8)]
    news = [throttle.refused(int(number), 0.1, None) for number in sent]
    assert news == [True, *[False] * 7]
    assert throttle.level == 4


def test_refusals_that_come_after_the_places_of_a_server_are_forgotten_leave_a_rate():
    """A gateway holds requests for a while before it says 429."""
    throttle = Throttle()

    def send(now: float) -> int:
        number = throttle.enter(now)
        assert isinstance(number, int)
        return number

    throttle.answered(send(0.0), 2.0)
    sent = [send(3.0 + 2 * each) for each in range(6)]
    throttle.answered(sent[0], 14.0)
    for number in sent[3:]:
        throttle.refused(number, 15.0, None)
    for number in sent[1:3]:
        throttle.refused(number, 15.5, None)
    assert 0 < throttle.rate < 10
    assert isinstance(throttle.enter(1000.0), int)
