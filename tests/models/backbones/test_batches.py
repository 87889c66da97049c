"""Chats in batches: every one is answered or fails by itself, and none is paid twice."""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from openmaia.core.errors import ServiceError, ServiceUnavailable, UsageError
from openmaia.core.messages import Chat, Reply, system, user
from openmaia.models.backbones.anthropic_api import AnthropicConfig
from openmaia.models.backbones.anthropic_server import AnthropicBackbone
from openmaia.models.backbones.batches import BatchedBackbone, request_id
from openmaia.models.backbones.openai_api import OpenAiConfig
from openmaia.models.backbones.openai_server import OpenAiBackbone
from openmaia.runs.files import Files
from tests.helpers.batching import PAGE, BatchingServer, SentBatch, batching

PRICES: dict[str, Any] = {"input_price": 10.0, "output_price": 100.0}
SINGLE = (11 * 10 + 3 * 100) / 1e6
"""Dollars of a request without a batch."""


@pytest.fixture(params=["openai", "anthropic"])
def kind(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[BatchingServer]:
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "none")
    with batching() as started:
        yield started


def backbone(server: BatchingServer, kind: str, folder: Path, tries: int = 1, **more: Any) -> BatchedBackbone:
    if kind == "openai":
        client = OpenAiBackbone(
            OpenAiConfig(
                kind="openai", model="m", base_url=f"{server.base}/v1", batch=True, tries=tries, **PRICES, **more
            )
        )
    else:
        client = AnthropicBackbone(
            AnthropicConfig(
                kind="anthropic", model="m", base_url=server.base, batch=True, tries=tries, **PRICES, **more
            )
        )
    return BatchedBackbone(client, Files(str(folder)), linger=0.1, poll=0.1)


def chat(text: str) -> Chat:
    return Chat(conversation="", messages=(system("Be short."), user(text)), seed=1, max_tokens=50)


def ask(asked: BatchedBackbone, count: int, first: int = 0) -> list[Reply]:
    """Each from a thread of its own."""
    with ThreadPoolExecutor(count) as threads:
        return list(threads.map(lambda n: asked.reply([chat(str(n))])[0], range(first, first + count)))


def test_chats_of_many_threads_are_one_batch_at_half_the_price(server: BatchingServer, kind: str, tmp_path: Path):
    asked = backbone(server, kind, tmp_path)
    replies = ask(asked, 8)
    assert [reply.text for reply in replies] == [f"heard: {n}" for n in range(8)]
    assert len(server.singly) == 1, "one request goes ahead"
    (batch,) = server.batches.values()
    assert len(batch.requests) == 7 and all("stream" not in body for body in batch.requests.values())
    assert sum(reply.bill.dollars for reply in replies) == pytest.approx(SINGLE * (1 + 7 / 2))
    assert all(reply.waited > 0 for reply in replies)
    again = ask(asked, 8)
    assert len(set(server.sent)) == len(server.sent), "no request was sent in two batches"
    assert [reply.text for reply in again] == [reply.text for reply in replies]


@pytest.mark.parametrize("fate", ["expired", "refused", "lost"])
def test_what_a_batch_leaves_unanswered_is_asked_again(server: BatchingServer, kind: str, tmp_path: Path, fate: str):
    def plan(batch: SentBatch) -> None:
        if batch.id == "batch_0":
            batch.fates = dict.fromkeys(list(batch.requests)[::2], fate)
            batch.ends = "expired" if fate == "expired" else "completed"

    server.plan = plan
    assert [reply.text for reply in ask(backbone(server, kind, tmp_path), 7)] == [f"heard: {n}" for n in range(7)]
    if fate == "expired":
        assert [len(batch.requests) for batch in server.batches.values()] == [6, 3]
    else:
        assert len(server.batches) == 1 and len(server.singly) == 1 + 3


def test_a_cancelled_batch_fails_what_it_leaves_and_is_sent_anew_by_the_next_call(
    server: BatchingServer, kind: str, tmp_path: Path
):
    def plan(batch: SentBatch) -> None:
        batch.ends, batch.fates = "cancelled", dict.fromkeys(list(batch.requests)[1:], "cancelled")

    server.plan = plan
    with pytest.raises(ServiceError, match="batch_0 was cancelled"):
        ask(backbone(server, kind, tmp_path), 4)
    server.plan = lambda batch: None
    assert len(ask(backbone(server, kind, tmp_path), 4)) == 4
    answered, left = server.batches.values()
    assert len(answered.requests) == 3 and len(left.requests) <= 2, "the answered one is not sent again"


def test_a_batch_that_is_not_taken_says_why(server: BatchingServer, tmp_path: Path):
    server.plan = lambda batch: setattr(batch, "ends", "failed")
    with pytest.raises(ServiceError, match="no such model"):
        ask(backbone(server, "openai", tmp_path), 3)


def test_another_process_goes_on_with_a_batch_under_way(server: BatchingServer, kind: str, tmp_path: Path):
    server.plan = lambda batch: setattr(batch, "ends", "in_progress")
    first = backbone(server, kind, tmp_path)
    chats = [chat(str(n)) for n in range(4)]
    with ThreadPoolExecutor(8) as threads:
        waiting = [threads.submit(first.reply, [each]) for each in chats]
        try:
            until(lambda: any(b'"batch_0"' in (tmp_path / name).read_bytes() for name in stored(tmp_path)))
            second = backbone(server, kind, tmp_path)
            in_batch = [each for each in chats if request_id(each, first._server.batch_model) in server.sent]
            waiting += [threads.submit(second.reply, [each]) for each in in_batch]
        finally:
            server.plan = lambda batch: None
            for batch in server.batches.values():
                batch.ends = "completed"
        texts = {each.result()[0].text for each in waiting}
    assert in_batch and texts == {f"heard: {n}" for n in range(4)}
    before = len(server.sent)
    again = [reply for each in in_batch for reply in backbone(server, kind, tmp_path).reply([each])]
    assert not any(reply.bill for reply in again), "an earlier process has paid them"
    assert before == len(server.sent) == len(set(server.sent)), "and no request was sent in two batches"


def until(condition: Callable[[], bool]) -> None:
    limit = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < limit
        time.sleep(0.02)


def stored(folder: Path) -> list[str]:
    return Files(str(folder)).names("batches")


def test_a_batch_whose_id_was_lost_is_found(server: BatchingServer, kind: str, tmp_path: Path):
    asked = backbone(server, kind, tmp_path)
    ask(asked, 1)  # it goes ahead

    def plan(batch: SentBatch) -> None:
        server.is_open = False

    server.plan = plan
    with pytest.raises((ServiceUnavailable, UsageError)):
        ask(asked, 3, first=10)
    assert len(server.sent) == 3, "the server has taken it"
    server.is_open, server.plan = True, lambda batch: None
    for n in range(2 * PAGE):  # others of the same account
        server.begin({f"other-{n}-{m}": {} for m in range(4)}, {}, is_anthropic=kind == "anthropic")
    replies = ask(backbone(server, kind, tmp_path), 3, first=10)
    assert [reply.text for reply in replies] == [f"heard: {n}" for n in range(10, 13)]
    assert len([each for each in server.sent if not each.startswith("other")]) == 3


def test_a_damaged_file_of_a_batch_is_said(server: BatchingServer, tmp_path: Path):
    (tmp_path / "batches").mkdir()
    (tmp_path / "batches" / "a.json").write_text('{"id": 3}')
    with pytest.raises(ServiceError, match="a.json is damaged"):
        backbone(server, "openai", tmp_path)


def test_a_batch_that_was_taken_without_an_answer_is_not_sent_twice(server: BatchingServer, kind: str, tmp_path: Path):
    asked = backbone(server, kind, tmp_path, tries=6)
    ask(asked, 1)  # it goes ahead

    def plan(batch: SentBatch) -> None:
        server.is_open = len(server.batches) > 0  # the answer to the first one is lost

    server.plan = plan
    with pytest.raises((ServiceUnavailable, UsageError)):
        ask(asked, 3, first=10)
    server.is_open = True
    assert [reply.text for reply in ask(asked, 3, first=10)] == [f"heard: {n}" for n in range(10, 13)]
    assert len(server.sent) == 3


def test_a_chat_that_is_too_long_fails_alone(server: BatchingServer, kind: str, tmp_path: Path):
    asked = backbone(server, kind, tmp_path, context_tokens=2000)
    ask(asked, 1)
    with ThreadPoolExecutor(3) as threads:
        waiting = [threads.submit(asked.reply, [chat(text)]) for text in ("a", "long " * 20_000, "b")]
    assert isinstance(waiting[1].exception(), ServiceError)
    assert [waiting[n].result()[0].text for n in (0, 2)] == ["heard: a", "heard: b"]


def test_a_request_that_went_ahead_is_not_paid_again(server: BatchingServer, kind: str, tmp_path: Path):
    (first,) = ask(backbone(server, kind, tmp_path), 1)
    (again,) = ask(backbone(server, kind, tmp_path), 1)
    assert again.text == first.text and first.bill and not again.bill and len(server.singly) == 1
