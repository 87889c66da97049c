"""What servers refuse of a request is changed, at the next request and at all later ones; nothing else is lost."""

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from email.utils import formatdate
from typing import Any

import httpx2
import numpy as np
import pytest

from openmaia.agent.patience import PatientBackbone
from openmaia.core.errors import OpenMaiaError, ServiceError, ServiceUnavailable, UsageError
from openmaia.core.images import EncodedImage
from openmaia.core.messages import AnswerFormat, Chat, Message, assistant, system, user
from openmaia.models.backbones.anthropic_api import AnthropicConfig
from openmaia.models.backbones.anthropic_server import AnthropicBackbone
from openmaia.models.backbones.failures import response_failure, stated_failure
from openmaia.models.backbones.openai_api import OpenAiConfig
from openmaia.models.backbones.openai_server import OpenAiBackbone
from tests.helpers.misbehaving import GOOD, Act, Asked, Server, misbehaving

SYSTEM = "You experiment."
EXPERIMENT = "[CODE]:\n```python\nprint(1)\n```\n"
Refuse = Callable[[Asked], Act]


@pytest.fixture
def server() -> Iterator[Server]:
    with misbehaving() as started:
        yield started


def backbone(server: Server, section: str = "backbone", **settings: Any) -> OpenAiBackbone:
    given = {"model": "m", "base_url": f"{server.base}/v1", "tries": 2, **settings}
    return OpenAiBackbone(OpenAiConfig(kind="openai", **given), section)


def chat(*messages: Message, conversation: str = "t/l/0/0", is_turn: bool = False) -> Chat:
    said = messages or (system(SYSTEM), user("What is it?"))
    answer = AnswerFormat() if is_turn else None
    return Chat(conversation=conversation, messages=said, seed=7, max_tokens=50, answer=answer)


def turns(count: int, images: int = 0, words: int = 0) -> list[Message]:
    image = EncodedImage.of(np.zeros((64, 64, 3), np.uint8))
    outputs = [user(f"output {turn}" + " word" * words, *[image] * images) for turn in range(count)]
    return [system(SYSTEM), user("Your task."), *(each for one in outputs for each in (assistant(EXPERIMENT), one))]


def refused(message: str, status: int = 400, **fields: Any) -> Act:
    return Act(status=status, body={"error": {"message": message, **fields}})


def failing(asked: OpenAiBackbone | AnthropicBackbone, one: Chat | None = None) -> OpenMaiaError:
    with pytest.raises(OpenMaiaError) as caught:
        asked.reply([one or chat()])
    return caught.value


def roles(asked: Asked) -> list[str]:
    return [message["role"] for message in asked.turns]


# -- roles --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("status", "section"), [(400, "backbone"), (500, "viewer")])
def test_a_refused_system_role_moves_into_the_first_turn_from_then_on(server: Server, status: int, section: str):
    server.otherwise = lambda asked: (
        refused("System role not supported", status) if roles(asked)[0] == "system" else GOOD
    )
    asked = backbone(server, section)
    for _ in range(2):
        asked.reply([chat(*turns(2))])
    assert [roles(each)[0] for each in server.asked] == ["system", "user", "user"]
    assert server.asked[-1].turns[0]["content"] == f"{SYSTEM}\nYour task."


def test_a_refused_system_role_is_no_obstacle_to_functions(server: Server):
    server.otherwise = lambda asked: refused("System role not supported") if "system" in roles(asked) else GOOD
    backbone(server, protocol="tools").reply([chat(*turns(1), is_turn=True)])
    assert "run_experiment" in server.asked[-1].turns[0]["content"] and SYSTEM in server.asked[-1].turns[0]["content"]


def test_calls_have_ids_that_mistral_takes_and_that_stay(server: Server):
    asked = backbone(server, protocol="tools")
    for count in (2, 3):
        asked.reply([chat(*turns(count), is_turn=True)])
    first, second = (
        [each["tool_calls"][0]["id"] for each in one.turns if "tool_calls" in each] for one in server.asked
    )
    assert second[:2] == first and len(set(second)) == 3
    assert all(len(each) == 9 and each.isascii() and each.isalnum() for each in second)


def mistral(asked: Asked) -> Act:
    """Refuses as Mistral's server does, whose rules ship with vLLM. The earlier rule about roles is added."""
    request = pytest.importorskip("mistral_common.protocol.instruct.request")
    validator = pytest.importorskip("mistral_common.protocol.instruct.validator")
    given = request.ChatCompletionRequest.from_openai(messages=asked.turns, tools=asked.body["tools"])
    validator.MistralRequestValidatorV3().validate_request(given)
    pairs = zip(roles(asked), roles(asked)[1:], strict=False)
    wrong = ("tool", "user") in pairs
    return refused("Unexpected role 'user' after role 'tool'", code="3230") if wrong else GOOD


def test_mistral_takes_the_turns_of_an_agent_that_calls_functions(server: Server):
    server.otherwise = mistral
    asked = backbone(server, protocol="tools")
    for count in (2, 3):
        asked.reply([chat(*turns(count), is_turn=True)])
    assert len(server.asked) == 3
    assert roles(server.asked[-1])[:6] == ["system", "user", "assistant", "tool", "assistant", "user"]


def test_roles_that_are_refused_in_every_form_name_the_key(server: Server):
    server.otherwise = lambda asked: refused("roles must alternate in another way")
    assert "backbone.protocol=text" in failing(backbone(server, protocol="tools"), chat(is_turn=True)).message
    assert len(server.asked) == 3


# -- images and length --------------------------------------------------------------------------------------------------


def test_a_limit_of_images_in_a_refusal_is_kept_from_then_on(server: Server, caplog: pytest.LogCaptureFixture):
    server.otherwise = lambda asked: (
        refused("At most 4 image(s) may be provided in one prompt.") if asked.images() > 4 else GOOD
    )
    asked = backbone(server)
    replies = [asked.reply([chat(*turns(2, images=3))])[0] for _ in range(2)]
    assert [each.images() for each in server.asked] == [6, 4, 4]
    assert all("images" in reply.left_out for reply in replies)
    assert sum("backbone.images_per_prompt=64" in record.getMessage() for record in caplog.records) == 1


def test_images_are_halved_if_no_limit_is_named(server: Server):
    server.otherwise = lambda asked: refused("too many images") if asked.images() > 2 else GOOD
    backbone(server).reply([chat(*turns(1, images=8))])
    assert [each.images() for each in server.asked] == [8, 4, 2]


def test_images_that_are_refused_one_by_one_name_the_key(server: Server):
    server.otherwise = lambda asked: refused("too many images")
    assert "backbone.images_per_prompt=64" in failing(backbone(server), chat(*turns(1, images=3))).message


def test_a_context_that_is_far_smaller_than_configured_takes_one_more_request(server: Server):
    def small(asked: Asked) -> Act:
        tokens = len(json.dumps(asked.turns)) // 4
        wrong = f"This model's maximum context length is 2048 tokens. However, you requested {tokens} tokens."
        return refused(wrong) if tokens > 2048 else GOOD

    server.otherwise = small
    asked = backbone(server)
    for _ in range(2):
        assert asked.reply([chat(*turns(20, words=400))])[0].left_out
    assert len(server.asked) == 3


def test_too_long_a_reply_is_no_reason_to_shorten_the_conversation(server: Server):
    server.otherwise = lambda asked: refused("max_tokens is too large: 50. This model supports at most 10 tokens.")
    error = failing(backbone(server), chat(*turns(9, words=90)))
    assert isinstance(error, UsageError) and "limits.reply_tokens" in error.message
    assert len(server.asked) == 1


# -- parameters ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("message", "fields"),
    [
        ("Your organization must be verified to stream this model.", {"param": "stream"}),
        ("Streaming is not supported for this model.", {}),
    ],
)
def test_a_model_that_may_not_be_streamed_answers_as_a_whole(server: Server, message: str, fields: dict[str, Any]):
    server.otherwise = lambda asked: (
        refused(message, **fields) if {"stream", "stream_options"} & asked.body.keys() else GOOD
    )
    asked = backbone(server)
    for _ in range(2):
        assert asked.reply([chat()])[0].text == "heard: What is it?"
    assert len(server.asked) == 3


def test_a_parameter_that_is_left_out_is_said_once_with_its_key(server: Server, caplog: pytest.LogCaptureFixture):
    server.otherwise = lambda asked: (
        refused("temperature is not supported") if "temperature" in asked.body else Act(delay=0.05)
    )
    backbone(server, "evaluate.writer").reply([chat(user(str(number))) for number in range(6)])
    said = [record.getMessage() for record in caplog.records if "temperature" in record.getMessage()]
    assert len(said) == 1 and "evaluate.writer.temperature" in said[0]


@pytest.mark.parametrize(
    ("protocol", "message"),
    [
        ("tools", "m does not support tools"),
        ("grammar", "Unrecognized request arguments supplied: grammar, structured_outputs"),
    ],
)
def test_a_protocol_that_a_server_refuses_is_a_mistake_of_the_config(server: Server, protocol: str, message: str):
    server.otherwise = lambda asked: refused(message) if {"tools", "grammar"} & asked.body.keys() else GOOD
    error = failing(backbone(server, protocol=protocol), chat(is_turn=True))
    assert isinstance(error, UsageError)
    assert f"backbone.protocol={protocol}" in error.message and "backbone.protocol=text" in error.message


def test_a_refusal_in_unknown_words_is_quoted_with_the_key(server: Server):
    server.otherwise = lambda asked: refused("temperature: the moon is wrong")
    error = failing(backbone(server, "viewer"))
    assert "the moon is wrong" in error.message and "viewer.temperature" in error.message


# -- waiting ------------------------------------------------------------------------------------------------------------

LIMITED = Act(status=429, body={"error": {"message": "slow down"}})


def test_a_rate_limit_is_waited_for_within_the_call_and_is_no_try(server: Server):
    server.then(*[LIMITED] * 3)
    assert backbone(server, tries=2).reply([chat()])[0].text == "heard: What is it?"
    assert len(server.asked) == 4


@pytest.mark.parametrize(
    ("headers", "message"),
    [
        (lambda: {"retry-after": "120"}, "later"),
        (lambda: {"retry-after": formatdate(time.time() + 900, usegmt=True)}, "later"),
        (dict, "Rate limit reached. Please try again in 2m0s."),
    ],
)
def test_a_server_is_not_asked_before_the_time_that_it_names(
    server: Server, headers: Callable[[], dict[str, str]], message: str
):
    given = headers()  # now, because tests are collected long before they run
    server.otherwise = lambda asked: Act(status=429, body={"error": {"message": message}}, headers=given)
    asked = backbone(server, tries=6)
    asked._outage.probe_seconds = 0.0
    for _ in range(3):
        assert isinstance(failing(asked), ServiceUnavailable)
    assert len(server.asked) == 1
    with pytest.raises(ServiceUnavailable):
        asked._outage.check()


def test_a_date_to_wait_for_is_read_by_the_clock_of_the_server():
    dates = {"date": "Wed, 01 Jan 2020 10:00:00 GMT", "retry-after": "Wed, 01 Jan 2020 10:02:00 GMT"}
    assert response_failure(httpx2.Response(429, headers=dates)).wait_seconds == 120


@pytest.mark.parametrize("status", [502, 503, 504, 520, 521, 522, 523, 524, 529, 530])
def test_statuses_of_proxies_are_outages(status: int):
    assert response_failure(httpx2.Response(status, text="<h1>no</h1>")).is_outage


@pytest.mark.parametrize(
    ("error", "is_outage"),
    [
        ({"code": 429, "message": "x"}, True),
        ({"code": "503", "message": "x"}, True),
        ({"type": "overloaded_error", "message": "x"}, True),
        ({"code": 400, "message": "x"}, False),
        ("x", False),
    ],
)
def test_an_error_with_status_200_is_an_outage_by_its_own_code(error: Any, is_outage: bool):
    assert stated_failure(error, json.dumps({"error": error})).is_outage is is_outage


def test_no_credit_is_a_mistake_at_the_first_request_and_an_outage_later(server: Server):
    empty = refused("You exceeded your current quota, please check your plan and billing details.", 429)
    server.then(empty, GOOD, empty)
    asked = backbone(server)
    assert isinstance(failing(asked), UsageError)
    asked.reply([chat()])
    assert isinstance(failing(asked), ServiceUnavailable)


# -- access -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [403, 404])
def test_access_that_is_refused_in_passing_is_no_mistake(server: Server, status: int):
    asked = backbone(server, tries=1)
    server.then(GOOD, refused("gone", status), GOOD)
    asked._outage.probe_seconds = 0.05
    patient = PatientBackbone(backbone=asked, minutes=1, pause=0.1)
    assert [patient.reply([chat()])[0].text for _ in range(2)] == ["heard: What is it?"] * 2
    assert len(server.asked) == 3


@pytest.mark.parametrize("status", [401, 403, 404])
def test_access_that_is_refused_at_first_is_a_mistake(server: Server, status: int):
    server.otherwise = lambda asked: refused("no", status)
    assert isinstance(failing(backbone(server)), UsageError)
    assert len(server.asked) == 1


def test_a_conversation_that_alone_is_refused_fails_alone(server: Server):
    server.otherwise = lambda asked: refused("no", 403) if "bad" in asked.texts() else GOOD
    asked = backbone(server, tries=1)
    asked._outage.probe_seconds = 0.0
    bad, good = chat(user("bad"), conversation="a"), chat(user("good"), conversation="b")
    asked.reply([good])
    assert isinstance(failing(asked, bad), ServiceUnavailable)
    asked.reply([good])
    error = failing(asked, bad)
    assert isinstance(error, ServiceError) and not isinstance(error, ServiceUnavailable)
    asked.reply([good])


@pytest.mark.parametrize(("status", "is_first"), [(403, True), (403, False), (400, False)])
def test_a_moderated_conversation_fails_alone_with_its_text(server: Server, status: int, is_first: bool):
    asked = backbone(server)
    if not is_first:
        asked.reply([chat()])
    server.then(refused("Your input was flagged for violence", status))
    error = failing(asked)
    assert type(error) is ServiceError and "flagged for violence" in error.message
    asked.reply([chat()])


def test_anthropics_client_knows_the_same_refusals(server: Server, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("ANTHROPIC_API_KEY", "x")
    config = AnthropicConfig(kind="anthropic", model="m", base_url=server.base, tries=6)
    asked = AnthropicBackbone(config)
    too_many = refused("messages: too many images and documents: 6 + 0 > 4")
    server.otherwise = lambda asked: too_many if asked.images() > 4 else GOOD
    asked.reply([chat(*turns(2, images=3))])
    server.then(replace(LIMITED, headers={"retry-after": "120"}))
    assert isinstance(failing(asked), ServiceUnavailable) and isinstance(failing(asked), ServiceUnavailable)
    assert [each.images() for each in server.asked] == [6, 4, 0]


def test_images_that_a_server_took_before_are_no_mistake_of_the_config(server: Server):
    asked, one = backbone(server), chat(*turns(1, images=1))
    asked.reply([one])
    server.then(refused("No endpoints found that support image input", 404))
    assert not isinstance(failing(asked, one), UsageError)


def test_a_body_that_is_too_large_loses_images_first(server: Server):
    server.otherwise = lambda asked: (
        Act(status=413, body="<h1>Request Entity Too Large</h1>") if asked.images() > 2 else GOOD
    )
    backbone(server).reply([chat(*turns(1, images=8))])
    assert [each.images() for each in server.asked] == [8, 4, 2]
