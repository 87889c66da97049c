"""Streamed replies: where they end, what breaks them off, and how long a server may be silent."""

import time
from collections.abc import Iterator
from dataclasses import replace

import pytest

from openmaia.config.models import BackboneConfig
from openmaia.core.errors import ServiceError
from openmaia.core.messages import AnswerFormat, Chat, Cut, user
from openmaia.models.backbones.openai_server import OpenAiBackbone
from tests.helpers.misbehaving import Act, Server, misbehaving

CHAT = Chat(conversation="c", messages=(user("What is it?"),), seed=1, max_tokens=500, answer=AnswerFormat())
EXPERIMENT = "[CODE]:\n```python\nprint(system.call_neuron(['a dog']))\n```\n"


@pytest.fixture
def server() -> Iterator[Server]:
    with misbehaving() as started:
        yield started


def backbone(server: Server, **settings: float) -> OpenAiBackbone:
    given = {"tries": 2, "timeout": 5.0, **settings}
    return OpenAiBackbone(BackboneConfig(kind="openai", model="m", base_url=f"{server.base}/v1", **given))  # type: ignore[arg-type]


def test_streamed_reply_is_read_with_its_tokens(server: Server):
    server.then(Act(pieces=("It is ", "a dog.")))
    (reply,) = backbone(server).reply([CHAT])
    assert (reply.text, reply.prompt_tokens, reply.generated_tokens, reply.cut) == ("It is a dog.", 11, 22, Cut.NONE)
    assert server.asked[0].body["stream"] is True


def test_turn_is_not_read_beyond_its_experiment(server: Server):
    server.then(Act(pieces=(EXPERIMENT, *[f"Output {n}: dogs excite it.\n" for n in range(400)]), pause=0.005))
    (reply,) = backbone(server).reply([CHAT])
    assert reply.text == EXPERIMENT
    assert reply.generated_tokens > 0
    time.sleep(0.2)
    assert server.streamed < 200, "the server was not told to stop"


def test_other_chats_are_read_to_their_end(server: Server):
    server.then(Act(pieces=(EXPERIMENT, "More.")))
    (reply,) = backbone(server).reply([replace(CHAT, answer=None)])
    assert reply.text == EXPERIMENT + "More."


def test_repetition_ends_the_stream(server: Server):
    server.then(Act(pieces=("I see.\n", *["The unit responds to dogs.\n"] * 2000)))
    (reply,) = backbone(server).reply([CHAT])
    assert reply.cut is Cut.REPETITION and len(reply.text) < 200
    assert server.streamed < 2000


@pytest.mark.parametrize("is_torn", [False, True])
def test_broken_stream_is_asked_for_again(server: Server, is_torn: bool):
    server.then(Act(pieces=("It is ",), ends=False, is_torn=is_torn), Act(pieces=("It is ", "a dog.")))
    assert backbone(server).reply([CHAT])[0].text == "It is a dog."
    assert len(server.asked) == 2


def test_stream_that_always_breaks_is_an_error(server: Server):
    server.otherwise = lambda asked: Act(pieces=("It is ",), ends=False)
    with pytest.raises(ServiceError, match=r"broke off in the middle of the reply \(tries: 2\)"):
        backbone(server).reply([CHAT])


def test_timeout_counts_silence_and_not_length(server: Server):
    server.then(Act(pieces=tuple(f"word{n} " for n in range(15)), pause=0.2))
    assert backbone(server, timeout=1.0).reply([CHAT])[0].text.endswith("word14 ")
