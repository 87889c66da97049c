"""Each request of a call settles by itself: what was answered is not asked, or paid, again because something else failed."""

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest
import ray

from openmaia.config.machine import PoolConfig
from openmaia.core.errors import ServiceError, ServiceUnavailable
from openmaia.core.messages import Chat, Reply, user
from openmaia.core.money import Bill
from openmaia.core.services import GeneratedImage, Generation
from openmaia.distributed.pools.dispatch.cache import CacheSpec
from openmaia.distributed.pools.handles import PooledBackbone, PooledGenerator
from openmaia.models.settling import settle
from tests.helpers.sleeping import SleepingPool, drawn, pool

pytestmark = pytest.mark.slow

PRICE = Bill(0.5)


@dataclass(frozen=True)
class Server:
    """Models at a price. A request with "away" fails the first time, one with "broken" always, one with "slow" takes a second;
    `log` has all."""

    log: Path

    def reply(self, chats: Sequence[Chat]) -> list[Reply]:
        return [self._answer(chat.messages[0].text) for chat in chats]

    def generate(self, requests: Sequence[Generation]) -> list[GeneratedImage]:
        with ThreadPoolExecutor(4) as threads:
            return settle([threads.submit(self._draw, request) for request in requests])

    def _answer(self, text: str) -> Reply:
        before = asked(self.log)
        with self.log.open("a") as log:
            log.write(f"{text}\n")
        time.sleep(1.0 if "slow" in text else 0.0)
        if "away" in text and text not in before:
            raise ServiceUnavailable("away")
        if "broken" in text:
            raise ServiceError("broken").billed(Bill(unpriced=1))
        return Reply(text=f"heard: {text}", bill=PRICE)

    def _draw(self, request: Generation) -> GeneratedImage:
        image = drawn(request.seed)
        return GeneratedImage(image=image.image, bill=self._answer(request.prompt).bill)


def asked(log: Path) -> list[str]:
    return log.read_text().split("\n")[:-1] if log.exists() else []


@pytest.fixture(scope="module")
def served(ray_cluster: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[SleepingPool, Path]]:
    log = tmp_path_factory.mktemp("server") / "log"
    with pool(Server(log), PoolConfig(), concurrency=4) as made:
        yield made, log


def chat(text: str) -> Chat:
    return Chat(conversation="", messages=[user(text)], seed=3, max_tokens=1)


def test_replies_of_a_call_are_kept_if_another_chat_fails(served: tuple[SleepingPool, Path]):
    made, log = served
    texts = ["kept 1", "kept away", "kept slow", "kept 2"]
    backbone = PooledBackbone(made.address, "one")
    with pytest.raises(ServiceUnavailable):
        backbone.reply([chat(text) for text in texts])
    assert backbone.ledger.spent()["backbone"].dollars == 3 * PRICE.dollars
    # The second attempt at the unit asks the same in another name.
    again = PooledBackbone(made.address, "two")
    assert [reply.text for reply in again.reply([chat(text) for text in texts])] == [f"heard: {text}" for text in texts]
    assert again.ledger.spent()["backbone"].dollars == PRICE.dollars
    assert sorted(one for one in asked(log) if "kept" in one) == sorted([*texts, "kept away"])
    # What was delivered is asked again.
    again.reply([chat("kept 1")])
    assert asked(log).count("kept 1") == 2


def test_replies_for_a_caller_that_died_go_to_the_next_attempt(served: tuple[SleepingPool, Path]):
    made, log = served
    questions = [chat("gone 1"), chat("gone slow")]
    with ThreadPoolExecutor(2) as threads:
        gone = threads.submit(PooledBackbone(made.address, "gone").reply, questions)
        made.wait_for(lambda now: now.under_way == 1 and {"gone 1", "gone slow"} <= set(asked(log)))
        ray.get(made.manager.dispatcher.leave.remote(["gone"]), timeout=60)
        with pytest.raises(ServiceError, match="gone has left"):
            gone.result(timeout=60)
        during = PooledBackbone(made.address, "next")
        assert [reply.text for reply in during.reply(questions)] == ["heard: gone 1", "heard: gone slow"]
    assert sorted(one for one in asked(log) if "gone" in one) == ["gone 1", "gone slow"]
    assert during.ledger.spent()["backbone"].dollars == 2 * PRICE.dollars


@pytest.mark.parametrize("has_cache", [True, False])
def test_images_of_a_batch_are_kept_if_another_one_fails(ray_cluster: None, tmp_path: Path, has_cache: bool):
    log = tmp_path / "log"
    cache = CacheSpec(identity="server", memory_bytes=2**20, disk_bytes=0, folder="") if has_cache else None
    prompts = ["a", "b away", "c slow"]
    with pool(Server(log), PoolConfig(max_batch=4), cache=cache) as made:
        generator = PooledGenerator(made.address, "one")
        with pytest.raises(ServiceUnavailable):
            generator.generate([Generation(prompt=prompt, seed=1) for prompt in prompts])
        assert generator.ledger.spent()["generator"].dollars == 2 * PRICE.dollars
        generator.generate([Generation(prompt=prompt, seed=1) for prompt in prompts])
        assert generator.ledger.spent()["generator"].dollars == 3 * PRICE.dollars
        assert sorted(asked(log)) == ["a", "b away", "b away", "c slow"]
        generator.generate([Generation(prompt="a", seed=1)])
        assert asked(log).count("a") == (1 if has_cache else 2), "what was delivered is not kept"
        # Both are asked in a batch, unless one fails before the other begins, and again alone: each call of unknown cost counts once.
        with pytest.raises(ServiceError, match="broken"):
            generator.generate([Generation(prompt="broken", seed=seed) for seed in range(2)])
        assert generator.ledger.spent()["generator"].unpriced == asked(log).count("broken") >= 3
