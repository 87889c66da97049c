"""An outage of the model server: one request tries it, the others wait, and no investigation fails."""

import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import numpy as np
import pytest

from openmaia.agent.metering import metered
from openmaia.agent.patience import PatientBackbone, PatientEditor, PatientGenerator
from openmaia.core.errors import ServiceError, ServiceUnavailable
from openmaia.core.images import EncodedImage
from openmaia.core.messages import Chat, Reply, user
from openmaia.core.money import Bill
from openmaia.core.services import GeneratedImage, Generation, UsageLedger
from openmaia.models.backbones.openai_api import OpenAiConfig
from openmaia.models.backbones.openai_server import OpenAiBackbone
from openmaia.models.backbones.outage import PROBE_SECONDS, Outage
from openmaia.models.backbones.viewer import BackboneWithViewer
from openmaia.models.settling import settle
from tests.helpers.misbehaving import GOOD, Act, Server, misbehaving

CHAT = Chat(conversation="c", messages=(user("What is it?"),), seed=1, max_tokens=50)
EMPTY = {"choices": [{"message": {"content": ""}, "finish_reason": "stop"}]}
AWAY = Act(status=503, body={"error": {"message": "loading the model"}})


@pytest.fixture
def server() -> Iterator[Server]:
    with misbehaving() as started:
        yield started


def backbone(server: Server) -> OpenAiBackbone:
    return OpenAiBackbone(OpenAiConfig(kind="openai", model="m", base_url=f"{server.base}/v1", tries=1))


def test_only_one_request_tries_a_server_that_is_away(server: Server):
    server.otherwise = lambda asked: AWAY
    asked = backbone(server)
    for _ in range(20):
        with pytest.raises(ServiceUnavailable, match="loading the model"):
            asked.reply([CHAT])
    assert len(server.asked) == 1


def test_server_that_is_back_is_used_again(server: Server):
    server.then(AWAY)
    asked = backbone(server)  # tries the server again after ten seconds
    answers: list[str] = []
    patient = PatientBackbone(backbone=asked, minutes=1, pause=0.05)
    threads = [threading.Thread(target=lambda: answers.append(patient.reply([CHAT])[0].text)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert answers == ["heard: What is it?"] * 8


def test_outage_is_waited_for_no_longer_than_asked(server: Server):
    server.otherwise = lambda asked: AWAY
    began = time.monotonic()
    with pytest.raises(ServiceUnavailable):
        PatientBackbone(backbone=backbone(server), minutes=0.02, pause=0.2).reply([CHAT])
    assert 0.5 < time.monotonic() - began < 60


@dataclass
class PartlyAway:
    """Each reply costs half a dollar. The first request for "b" finds the server away."""

    asked: list[str]

    def reply(self, chats: Sequence[Chat]) -> list[Reply]:
        with ThreadPoolExecutor(1) as threads:
            return settle([threads.submit(self._answer, chat.messages[0].text) for chat in chats])

    def _answer(self, text: str) -> Reply:
        self.asked.append(text)
        if self.asked.count("b") == 1 and text == "b":
            raise ServiceUnavailable("away")
        return Reply(text=text.upper(), bill=Bill(0.5))


def test_requests_of_a_call_that_were_answered_are_not_repeated():
    """They may have been paid. Also behind a viewer, and those before and after the one that met the outage."""
    image = EncodedImage.of(np.zeros((8, 8, 3), dtype=np.uint8))
    viewer, agent, ledger = PartlyAway([]), PartlyAway([]), UsageLedger()
    served = metered(BackboneWithViewer(agent, viewer), "backbone", ledger, 0.0)
    patient = PatientBackbone(backbone=served, minutes=1, pause=0.01)
    shown = {"a": True, "x": False, "b": True, "c": True}
    chats = [replace(CHAT, messages=(user(text, *[image] * seen),)) for text, seen in shown.items()]
    assert [reply.text for reply in patient.reply(chats)] == ["A", "X", "B", "C"]
    assert (sorted(viewer.asked), agent.asked) == (["a", "b", "b", "c"], ["x"])
    assert (ledger.spent()["backbone"].requests, ledger.spent()["backbone"].dollars) == (4, 2.0)


def test_an_images_api_is_waited_for_as_well():
    @dataclass
    class Away:
        left: int

        def generate(self, requests: Sequence[Generation]) -> list[GeneratedImage]:
            self.left -= 1
            if self.left >= 0:
                raise ServiceUnavailable("away")
            return []

        edit = generate

    assert PatientGenerator(generator=Away(2), minutes=1, pause=0.01).generate([]) == []
    assert PatientEditor(editor=Away(2), minutes=1, pause=0.01).edit([]) == []
    with pytest.raises(ServiceUnavailable):
        PatientGenerator(generator=Away(2), minutes=0, pause=0.01).generate([])


@pytest.mark.parametrize("status", [400, 401, 404])
def test_other_failures_are_no_outage(server: Server, status: int):
    server.then(Act(status=status, body={"error": {"message": "wrong"}}), GOOD)
    asked = backbone(server)
    with pytest.raises(ValueError if status > 400 else ServiceError) as caught:
        asked.reply([CHAT])
    assert not isinstance(caught.value, ServiceUnavailable)
    assert asked.reply([CHAT])[0].text == "heard: What is it?"


@pytest.mark.slow
@pytest.mark.parametrize("act", [Act(status=400, body={"error": {"message": "wrong"}}), Act(body=EMPTY)])
def test_an_unusable_answer_ends_an_outage(server: Server, act: Act):
    server.then(AWAY, act)
    asked = backbone(server)
    with pytest.raises(ServiceUnavailable):
        asked.reply([CHAT])
    time.sleep(PROBE_SECONDS + 0.5)
    with pytest.raises(ServiceError) as caught:
        asked.reply([CHAT])
    assert not isinstance(caught.value, ServiceUnavailable)
    assert asked.reply([CHAT])[0].text == "heard: What is it?"


def test_outage_is_said_once_and_so_is_its_end(caplog: pytest.LogCaptureFixture):
    outage = Outage("http://server")
    for _ in range(3):
        outage.begin("http://server is away")
    outage.end()
    outage.end()
    texts = [record.getMessage() for record in caplog.records]
    assert len(texts) == 2 and "outage_minutes" in texts[0] and "answers again" in texts[1]
