"""Pools of real actors: a request that kills its replica fails alone, everybody else is answered."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import ray

from openmaia.assembly import targets
from openmaia.config.loading import load
from openmaia.config.machine import PoolConfig
from openmaia.config.schema import Config
from openmaia.core.errors import ServiceError, UsageError
from openmaia.core.images import EncodedImage
from openmaia.core.messages import Chat, Reply, user
from openmaia.core.services import Probe
from openmaia.core.units import Unit
from openmaia.distributed.pools.handles import PooledBackbone, Pools
from tests.conftest import REPOSITORY
from tests.helpers.run_pools import target_pool
from tests.helpers.sleeping import pool

pytestmark = pytest.mark.slow

UNIT = Unit(target="deadly", layer="conv", index=1)


def config(*overrides: str) -> Config:
    return load(
        [
            str(REPOSITORY / "configs/closed-form.yaml"),
            "target.kind=network",
            "target.name=deadly",
            "target.network=tests.helpers.networks:deadly",
            "target.layers=[conv]",
            "pools.target.min_replicas=2",
            *overrides,
        ]
    )


@pytest.fixture(scope="module")
def served(ray_cluster: None) -> Iterator[Pools]:
    with target_pool(config()) as made:
        yield made


@pytest.fixture(scope="module")
def expected() -> list[float]:
    """The answers to GREYS."""
    return [answer.value for answer in targets.target(config()).probe(GREYS)]


def plain(red: int, green: int, blue: int) -> Probe:
    return Probe(unit=UNIT, image=EncodedImage.of(np.full((64, 64, 3), (red, green, blue), dtype=np.uint8)))


GREYS = [plain(level, level, level) for level in range(10, 250, 8)]
RED, GREEN, BLUE = plain(255, 0, 0), plain(0, 255, 0), plain(0, 0, 255)


def test_a_request_that_kills_its_replica_fails_alone(served: Pools, expected: list[float]):
    with ThreadPoolExecutor(8) as callers:
        answers = [callers.submit(served.target("test").probe, [probe]) for probe in GREYS]
        deadly = callers.submit(served.target("test").probe, [RED])
        more = callers.submit(served.target("test").probe, GREYS)
        with pytest.raises(ServiceError, match="died twice over this request"):
            deadly.result(timeout=180)
        assert [answer.result(timeout=180)[0].value for answer in answers] == expected
        assert [answer.value for answer in more.result(timeout=180)] == expected
    assert served.statistics()["target"].failures == {"died": 1}


def test_an_exception_in_the_host_is_the_callers_alone(served: Pools):
    with ThreadPoolExecutor(4) as callers:
        failing = callers.submit(served.target("test").probe, [BLUE])
        others = [callers.submit(served.target("test").probe, GREYS[:4]) for _ in range(3)]
        with pytest.raises(ServiceError, match="no blue pictures, please"):
            failing.result(timeout=180)
        assert all(len(other.result(timeout=180)) == 4 for other in others)


def test_a_dispatcher_that_is_killed_comes_back_and_everybody_is_answered(served: Pools, expected: list[float]):
    target = served.target("test")
    target.info()
    with ThreadPoolExecutor(8) as callers:
        answers = [callers.submit(target.probe, GREYS) for _ in range(24)]
        answers[0].result(timeout=180)
        ray.kill(served.addresses["target"].dispatcher, no_restart=False)
        assert [[a.value for a in answer.result(timeout=180)] for answer in answers] == [expected] * 24


def test_answers_come_in_the_order_of_the_requests(served: Pools, expected: list[float]):
    assert len(set(expected)) > 20
    assert [answer.value for answer in served.target("test").probe(GREYS)] == expected


@pytest.mark.nightly
def test_a_replica_that_hangs_is_replaced_and_what_hung_it_fails_alone(ray_cluster: None, expected: list[float]):
    with target_pool(config("pools.target.deadline=12", "pools.target.min_replicas=1")) as made:
        target = made.target("test")
        target.info()
        with ThreadPoolExecutor(3) as callers:
            hanging = callers.submit(target.probe, [GREEN])
            others = callers.submit(made.target("another").probe, GREYS)
            with pytest.raises(ServiceError, match="gave no answer within 12 s twice"):
                hanging.result(timeout=180)
            assert [answer.value for answer in others.result(timeout=180)] == expected
        assert made.statistics()["target"].deaths == 2


def test_a_service_that_cannot_be_built_names_the_users_mistake(ray_cluster: None):
    with (
        target_pool(config("target.layers=[nonesuch]")) as made,
        pytest.raises(UsageError, match="unknown layer 'nonesuch'"),
    ):
        made.target("test").info()


class Seeing:
    """A language model that tells the sizes of the images that it sees, in their order."""

    def reply(self, chats: Sequence[Chat]) -> list[Reply]:
        return [Reply(text=seen(chat)) for chat in chats]


def seen(chat: Chat) -> str:
    return " ".join(str(image.pixels.shape[0]) for message in chat.messages for image in message.images)


def test_images_of_a_conversation_arrive_in_every_chat(ray_cluster: None):
    images = [EncodedImage.of(np.full((8 + side, 8, 3), side, dtype=np.uint8)) for side in range(6)]
    chats = [
        Chat(conversation=name, messages=[user("look", *images[:count]), user(images[0])], seed=0, max_tokens=1)
        for count in (1, 3, 6)
        for name in ("a", "b", "")
    ]
    with pool(Seeing(), PoolConfig(min_replicas=2), concurrency=2) as made:
        backbone = PooledBackbone(made.address, "caller")
        assert [backbone.reply([chat])[0].text for chat in chats] == [seen(chat) for chat in chats]
        assert [reply.text for reply in backbone.reply(chats)] == [seen(chat) for chat in chats], "several in one call"
