"""Requests to a server that limits their rate: how many at once, when again, and that nothing fails."""

import math
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from openmaia.agent.metering import metered
from openmaia.agent.patience import PatientBackbone
from openmaia.core.errors import ServiceUnavailable
from openmaia.core.messages import Chat, user
from openmaia.core.services import UsageLedger
from openmaia.models.backbones.failures import Failure
from openmaia.models.backbones.openai_api import OpenAiConfig
from openmaia.models.backbones.openai_server import OpenAiBackbone
from openmaia.models.pace import Pace
from openmaia.models.throttle import Throttle
from tests.helpers.misbehaving import Server, misbehaving
from tests.helpers.rationing import Ration

CHAT = Chat(conversation="", messages=(user("?"),), seed=1, max_tokens=50)


@pytest.fixture
def server() -> Iterator[Server]:
    with misbehaving() as started:
        yield started


def backbone(server: Server, **settings: int) -> OpenAiBackbone:
    return OpenAiBackbone(OpenAiConfig(kind="openai", model="m", base_url=f"{server.base}/v1", **settings))


def limited(wait: float | None = 0.0) -> Failure:
    return Failure(status=429, body="slow down", wait_seconds=wait)


def test_a_server_may_refuse_as_often_as_it_likes():
    throttle, now = Throttle(), 0.0
    for _ in range(3000):
        while isinstance(number := throttle.enter(now), float):
            now += number + 0.001
        throttle.refused(number, now, None)
    assert 0 < throttle.estimate < math.inf


@pytest.mark.parametrize("late", [0.1, 10.0, 300.0])
def test_a_refusal_that_arrives_late_does_not_make_the_server_slow(late: float):
    throttle = Throttle()
    numbers = [throttle.enter(0.0) for _ in range(8)]
    assert all(isinstance(number, int) for number in numbers)
    for number in numbers:
        throttle.refused(int(number), late, 1.0)
    assert throttle.estimate == 2.0, "the server took none of a burst, which says nothing about its rate"


@pytest.mark.parametrize("late", [5.0, 20.0, 60.0])
def test_a_late_refusal_among_answers_does_not_make_the_server_fast(late: float):
    throttle = Throttle()
    first = throttle.enter(0.0)
    for place in range(1, int(15 * late)):
        number = throttle.enter(place / 15)
        assert isinstance(first, int) and isinstance(number, int)
        throttle.answered(number, place / 15)
    throttle.refused(int(first), late, None)
    assert 15 <= throttle.estimate < 20


@pytest.mark.parametrize("says", ["seconds", "date"])
def test_all_requests_wait_until_the_time_that_a_refusal_names(server: Server, says: str):
    ration = Ration(per_second=100, holds=100, says=says, closed_until=time.monotonic() + 2.5)
    server.otherwise = ration.act
    asked = backbone(server)
    with ThreadPoolExecutor(8) as threads:
        assert len(list(threads.map(lambda _: asked.reply([CHAT]), range(8)))) == 8
    assert ration.refused <= 9, "the first burst, and one more at most where the date is rounded"
    assert ration.answered[0] >= ration.closed_until


def test_ten_minutes_of_refusals_fail_nothing(server: Server):
    """By a clock that runs a hundred times as fast: a call waits for 0.6 s, an investigation asks again after 0.05 s."""
    ration = Ration(per_second=100, holds=100, says="", closed_until=time.monotonic() + 6.0)
    server.otherwise = ration.act
    asked = backbone(server)
    asked._pace = Pace("here", call_seconds=0.6)
    patient = PatientBackbone(backbone=asked, minutes=30 / 100, pause=5 / 100)
    with pytest.raises(ServiceUnavailable, match="429"):
        asked.reply([CHAT])
    with ThreadPoolExecutor(8) as threads:
        assert len(list(threads.map(lambda _: patient.reply([CHAT]), range(8)))) == 8
    assert ration.refused < 40, "it is not asked all the time"


def test_the_wait_is_no_work_of_the_model(server: Server):
    ration = Ration(per_second=100, closed_until=time.monotonic() + 1.5)
    server.otherwise = ration.act
    ledger = UsageLedger()
    began = time.monotonic()
    metered(backbone(server), "backbone", ledger, 0.0).reply([CHAT])
    assert time.monotonic() - began - ledger.spent()["backbone"].seconds > 1.0


def test_a_server_that_allows_four_requests_a_second_is_used(server: Server):
    ration = Ration(per_second=4, holds=4)
    server.otherwise = ration.act
    asked, until = backbone(server, concurrency=16), time.monotonic() + 6

    def converse(number: int) -> None:
        while time.monotonic() < until:
            asked.reply([CHAT])

    with ThreadPoolExecutor(16) as threads:
        list(threads.map(converse, range(16)))
    # A busy machine loses some of six seconds; test_throttle.py has the true share.
    assert sum(at < until for at in ration.answered) >= 0.6 * 4 * 6


def test_two_models_of_one_server_share_its_pace(server: Server):
    assert backbone(server)._pace is backbone(server)._pace
