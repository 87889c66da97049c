"""Pools of real actors: a request that kills its replica fails alone, everybody else is answered."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from openmaia import build
from openmaia.config import load
from openmaia.errors import ServiceError, UsageError
from openmaia.images import Picture
from openmaia.remote.services import Pools, pools
from openmaia.schema import Config
from openmaia.services import Probe
from openmaia.units import Unit
from tests.conftest import REPOSITORY

UNIT = Unit(target="deadly", layer="conv", index=1)


def config(*overrides: str) -> Config:
    return load(
        [
            str(REPOSITORY / "configs/closed-form.yaml"),
            "target.kind=network",
            "target.name=deadly",
            "target.network=tests.networks:deadly",
            "target.layers=[conv]",
            "pools.target.replicas=2",
            *overrides,
        ]
    )


@pytest.fixture
def served(ray_cluster: None) -> Iterator[Pools]:
    with pools(config()) as made:
        yield made


def plain(red: int, green: int, blue: int) -> Probe:
    return Probe(unit=UNIT, picture=Picture.of(np.full((64, 64, 3), (red, green, blue), dtype=np.uint8)))


GREYS = [plain(level, level, level) for level in range(10, 250, 8)]
RED, BLUE = plain(255, 0, 0), plain(0, 0, 255)


def test_a_request_that_kills_its_replica_fails_alone(served: Pools):
    expected = build.target(config()).probe(GREYS)
    with ThreadPoolExecutor(8) as callers:
        answers = [callers.submit(served.target.probe, [probe]) for probe in GREYS]
        deadly = callers.submit(served.target.probe, [RED])
        more = callers.submit(served.target.probe, GREYS)
        with pytest.raises(ServiceError, match="died twice over this request"):
            deadly.result(timeout=180)
        assert [answer.result(timeout=180)[0].value for answer in answers] == [a.value for a in expected]
        assert [answer.value for answer in more.result(timeout=180)] == [a.value for a in expected]


def test_an_exception_in_the_host_is_the_callers_alone(served: Pools):
    with ThreadPoolExecutor(4) as callers:
        failing = callers.submit(served.target.probe, [BLUE])
        others = [callers.submit(served.target.probe, GREYS[:4]) for _ in range(3)]
        with pytest.raises(ServiceError, match="no blue pictures, please"):
            failing.result(timeout=180)
        assert all(len(other.result(timeout=180)) == 4 for other in others)


def test_a_service_that_cannot_be_built_names_the_users_mistake(ray_cluster: None):
    with pools(config("target.layers=[nonesuch]")) as made, pytest.raises(UsageError, match="unknown layer 'nonesuch'"):
        made.target.info()


def test_answers_come_in_the_order_of_the_requests(served: Pools):
    expected = [answer.value for answer in build.target(config()).probe(GREYS)]
    assert len(set(expected)) > 20
    assert [answer.value for answer in served.target.probe(GREYS)] == expected
