"""Backbones behind HTTP, against a server that fails as it is told to: through the real clients, over real sockets."""

import base64
import itertools
import logging
import pickle
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from openmaia.core.errors import OpenMaiaError, ServiceError, UsageError
from openmaia.core.images import EncodedImage
from openmaia.core.messages import AnswerFormat, Chat, Message, Reply, assistant, system, user
from openmaia.core.money import Bill
from openmaia.models.backbones.anthropic_api import AnthropicConfig
from openmaia.models.backbones.anthropic_server import AnthropicBackbone
from openmaia.models.backbones.endpoint import Endpoint
from openmaia.models.backbones.openai_api import OpenAiConfig
from openmaia.models.backbones.openai_server import OpenAiBackbone
from tests.helpers.misbehaving import GOOD, Act, Asked, Server, answer, misbehaving

KEYS = {"openai": "OPENAI_API_KEY", "anthropic": "ANTHROPIC_API_KEY"}
KEY = "sk-very/secret-0123456789abcdef"
Make = Callable[..., Endpoint]


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    for variable in KEYS.values():
        monkeypatch.setenv(variable, KEY)
    with misbehaving() as started:
        yield started


def make(server: Server, kind: str, **settings: Any) -> Endpoint:
    backbone, config, path = {
        "openai": (OpenAiBackbone, OpenAiConfig, "/v1"),
        "anthropic": (AnthropicBackbone, AnthropicConfig, ""),
    }[kind]
    given = {"model": "some-model", "base_url": server.base + path, "tries": 2, "timeout": 20.0, **settings}
    return backbone(config(kind=kind, **given))


@pytest.fixture(params=["openai", "anthropic"])
def kind(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def backbone(server: Server, kind: str) -> Make:
    return lambda **settings: make(server, kind, **settings)


def chat(*messages: Message, seed: int = 7, max_tokens: int = 50) -> Chat:
    said = messages or (system("You experiment."), user("What is it?"))
    return Chat(conversation="layer4=1", messages=said, seed=seed, max_tokens=max_tokens)


def image(value: int = 0, side: int = 224) -> EncodedImage:
    return EncodedImage.of(np.full((side, side, 3), value, np.uint8))


def conversation(turns: int, images: int = 2, side: int = 224) -> list[Message]:
    said = [
        message
        for turn in range(turns)
        for message in (assistant(f"reply {turn}"), user(f"output {turn}", *[image(turn, side)] * images))
    ]
    return [system("You experiment."), user("Your task."), *said]


def refused(text: str, **fields: Any) -> Act:
    return Act(status=400, body={"error": {"message": text, **fields}})


def failing(backbone: Endpoint, *chats: Chat) -> OpenMaiaError:
    with pytest.raises(OpenMaiaError) as caught:
        backbone.reply(chats or [chat()])
    return caught.value


# -- what is tried again -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [408, 409, 429, 500, 503, 529])
def test_busy_server_is_retried(server: Server, backbone: Make, status: int):
    server.then(Act(status=status, body={"error": {"message": "busy"}}))
    assert backbone().reply([chat()])[0].text == "heard: What is it?"
    assert len(server.asked) == 2
    assert server.asked[0].body == server.asked[1].body


def test_dropped_connection_is_retried(server: Server, backbone: Make):
    server.then(Act(drop=True))
    assert backbone().reply([chat()])[0].text == "heard: What is it?"
    assert len(server.asked) == 2


def test_retry_after_is_honoured(server: Server, backbone: Make):
    server.then(Act(status=429, body={"error": {"message": "busy"}}, headers={"retry-after": "1.5"}))
    backbone().reply([chat()])
    # The client's own first wait is at most half a second.
    assert server.asked[1].at - server.asked[0].at >= 1.5


@pytest.mark.parametrize("wait", ["100000", "inf", "Fri, 31 Dec 2999 23:59:59 GMT"])
def test_long_retry_after_is_not_awaited(server: Server, backbone: Make, wait: str):
    server.otherwise = lambda asked: Act(
        status=429, body={"error": {"message": "later"}}, headers={"retry-after": wait}
    )
    began = time.monotonic()
    error = failing(backbone())
    assert time.monotonic() - began < 60
    assert isinstance(error, ServiceError) and "429" in error.message and "later" in error.message


def test_retries_are_limited_and_counted(server: Server, backbone: Make):
    server.otherwise = lambda asked: Act(status=503, body={"error": {"message": "overloaded"}})
    error = failing(backbone(tries=3))
    assert isinstance(error, ServiceError)
    assert "503" in error.message and "overloaded" in error.message and "tries: 3" in error.message
    assert len(server.asked) == 3


def test_timeout_is_retried(server: Server, backbone: Make):
    server.then(Act(delay=4.0))
    assert backbone(timeout=1.5).reply([chat()])[0].text == "heard: What is it?"
    server.then(Act(delay=2.0), Act(delay=2.0))
    error = failing(backbone(timeout=0.3))
    assert isinstance(error, ServiceError) and "0.3 s" in error.message and "tries: 2" in error.message
    assert len(server.asked) == 4


def test_unreachable_server_is_named(server: Server, backbone: Make):
    error = failing(backbone(base_url="http://127.0.0.1:9/v1"))
    assert isinstance(error, ServiceError)
    assert "backbone.base_url=http://127.0.0.1:9/v1" in error.message and "tries: 2" in error.message


# -- what is not --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "expected", "named"),
    [
        (400, ServiceError, "the server's reason"),
        (401, UsageError, "KEY"),
        (402, UsageError, "KEY"),
        (403, UsageError, "KEY"),
        (404, UsageError, "backbone.model='some-model', backbone.base_url=http"),
        (422, ServiceError, "the server's reason"),
    ],
)
def test_refusal_is_not_retried(server: Server, backbone: Make, kind: str, status: int, expected: type, named: str):
    server.then(Act(status=status, body={"error": {"message": "the server's\n  reason"}}))
    error = failing(backbone())
    assert type(error) is expected
    assert (KEYS[kind] if named == "KEY" else named) in error.message
    assert "\n" not in error.message
    assert len(server.asked) == 1


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (500, "image input is not supported - hint: if this is unexpected, you may need to provide the mmproj"),
        (400, "At most 0 image(s) may be provided in one prompt."),
        (400, "this model does not support images"),
        (422, "multimodal input is not supported"),
    ],
)
def test_model_without_eyes_is_named_and_not_asked_again(server: Server, status: int, message: str):
    server.otherwise = lambda asked: Act(status=status, body={"error": {"message": message}})
    error = failing(make(server, "openai"), chat(user("What is it?", image())))
    assert isinstance(error, UsageError) and "backbone.sees=text" in error.message
    assert len(server.asked) == 1


def test_errors_name_the_section_of_the_config_that_the_model_is_from(server: Server):
    server.otherwise = lambda asked: Act(status=400, body={"error": {"message": "this model does not support images"}})
    config = OpenAiConfig(kind="openai", model="some-model", base_url=f"{server.base}/v1", tries=1)
    viewer = pickle.loads(pickle.dumps(OpenAiBackbone(config, "viewer")))
    error = failing(viewer, chat(user("What is it?", image())))
    assert error.message.startswith("viewer.model='some-model'") and "backbone" not in error.message
    with pytest.raises(UsageError, match=r"^evaluate\.writer\.base_url='no'"):
        OpenAiBackbone(replace(config, base_url="no"), "evaluate.writer")


@pytest.mark.parametrize("body", ["<!doctype html><title>Welcome</title>", '{"status": "ok"}', "[]", '{"cut of'])
def test_foreign_api_is_reported(server: Server, backbone: Make, body: str):
    server.then(Act(body=body))
    error = failing(backbone())
    assert isinstance(error, UsageError)
    assert "backbone.base_url=http" in error.message and "/v1" in error.message and body[:9] in error.message


def test_error_with_status_200_is_an_error(server: Server, backbone: Make):
    server.then(Act(body={"error": {"code": 502, "message": "the provider is away"}}), Act(body={"error": "no luck"}))
    assert "502" in failing(backbone()).message
    assert "no luck" in failing(backbone()).message


@pytest.mark.parametrize("text", ["", " \n"])
def test_empty_answer_is_an_error(server: Server, backbone: Make, text: str):
    server.otherwise = lambda asked: Act(body=answer(asked, text))
    error = failing(backbone())
    assert isinstance(error, ServiceError) and "backbone.model='some-model'" in error.message


@pytest.mark.parametrize("ended", ["stop", "length", "max_tokens"])
def test_empty_turn_is_a_reply(server: Server, backbone: Make, ended: str):
    server.otherwise = lambda asked: Act(body=answer(asked, "\n", ended))
    assert backbone().reply([replace(chat(), answer=AnswerFormat())])[0].text == ""


def test_answer_cut_off_while_thinking_names_the_limit(server: Server, kind: str, backbone: Make):
    ended = {"openai": "length", "anthropic": "max_tokens"}[kind]
    server.otherwise = lambda asked: Act(body=answer(asked, "", ended))
    assert "limits.reply_tokens" in failing(backbone()).message


def test_refusal_is_a_reply_only_with_text(server: Server, kind: str, backbone: Make):
    ended = {"openai": "content_filter", "anthropic": "refusal"}[kind]
    server.otherwise = lambda asked: Act(body=answer(asked, "I would rather not.", ended))
    assert backbone().reply([chat()])[0].text == "I would rather not."
    server.otherwise = lambda asked: Act(body=answer(asked, "", ended))
    for asked in (chat(), replace(chat(), answer=AnswerFormat())):
        error = failing(backbone(), asked)
        assert isinstance(error, ServiceError) and "refuses" in error.message


# -- many at once -------------------------------------------------------------------------------------------------------


def test_concurrency_is_limited(server: Server, backbone: Make):
    server.otherwise = lambda asked: Act(delay=0.1)
    asked = backbone(concurrency=3)
    with ThreadPoolExecutor(6) as callers:
        replies = list(callers.map(lambda n: asked.reply([chat(user(f"{n}.{i}")) for i in range(3)]), range(6)))
    assert [[r.text for r in three] for three in replies] == [[f"heard: {n}.{i}" for i in range(3)] for n in range(6)]
    assert server.most_at_once == 3


def test_replies_keep_the_order_of_chats(server: Server, backbone: Make):
    server.otherwise = lambda asked: Act(delay=1.5 - 0.5 * int(asked.texts()[-1]))
    replies = backbone().reply([chat(user(str(n))) for n in range(3)])
    assert [reply.text for reply in replies] == ["heard: 0", "heard: 1", "heard: 2"]
    assert server.most_at_once == 3


def test_no_chats_send_no_request(server: Server, backbone: Make):
    assert backbone().reply([]) == []
    assert server.asked == []


def test_slot_is_released_after_a_failure(server: Server, backbone: Make):
    server.then(*[Act(status=400, body={"error": {"message": "no"}})] * 3)
    asked = backbone(concurrency=1)
    for _ in range(3):
        failing(asked)
    done = threading.Event()
    threading.Thread(target=lambda: (asked.reply([chat()]), done.set()), daemon=True).start()
    assert done.wait(60)


# -- what is sent -------------------------------------------------------------------------------------------------------


def roles(asked: Asked) -> list[str]:
    return [turn["role"] for turn in asked.turns if turn["role"] != "system"]


def test_turns_alternate_without_empty_texts(server: Server, backbone: Make):
    messages = (
        system("You experiment."),
        user("one", "two", image()),
        user("", "three", " \n"),
        assistant("said"),
        assistant("  "),
        assistant("more"),
        user(" "),
        user(image(1), "", "four"),
    )
    backbone().reply([chat(*messages)])
    asked = server.asked[0]
    assert roles(asked) == ["user", "assistant", "user"]
    assert asked.texts()[-4:] == ["one\ntwo", "three", "said\nmore", "four"]
    assert asked.images() == 2


def test_unencodable_text_is_replaced(server: Server, backbone: Make):
    assert backbone().reply([chat(user("half a pair: \ud83d"))])[0].text == "heard: half a pair: ?"


def test_openai_request_has_images_seed_and_sampling(server: Server):
    shown = image(3)
    make(server, "openai", temperature=0.4, top_p=0.9).reply([chat(system("Be."), user("see", shown), seed=2**62 + 5)])
    body = server.asked[0].body
    assert server.asked[0].path == "/v1/chat/completions"
    assert server.asked[0].headers["authorization"] == f"Bearer {KEY}"
    assert body["messages"][0] == {"role": "system", "content": "Be."}
    url = body["messages"][1]["content"][1]["image_url"]["url"]
    assert url.startswith("data:image/png;base64,iVBOR")
    assert {key: body[key] for key in ("temperature", "top_p", "seed", "max_tokens", "model")} == {
        "temperature": 0.4,
        "top_p": 0.9,
        "seed": 5,
        "max_tokens": 50,
        "model": "some-model",
    }
    assert "max_completion_tokens" not in body


def test_anthropic_request_has_images_and_temperature(server: Server):
    make(server, "anthropic", temperature=0.4).reply([chat(system("Be."), user("see", image(3)))])
    body = server.asked[0].body
    assert server.asked[0].path == "/v1/messages"
    assert KEY in " ".join(server.asked[0].headers.values())
    source = body["messages"][0]["content"][1]["source"]
    assert (source["type"], source["media_type"], source["data"][:5]) == ("base64", "image/png", "iVBOR")
    assert body["temperature"] == 0.4 and body["max_tokens"] == 50
    assert not {"top_p", "seed", "top_k"} & body.keys()


def test_webp_image_is_sent_as_png(server: Server, kind: str, backbone: Make):
    kept = image(3, side=40).packed()
    assert kept.data.startswith(b"RIFF")
    backbone().reply([chat(user("see", kept))])
    part = server.asked[0].body["messages"][0]["content"][1]
    sent = part["image_url"]["url"].partition(",")[2] if kind == "openai" else part["source"]["data"]
    assert base64.b64decode(sent).startswith(b"\x89PNG")
    assert EncodedImage(data=base64.b64decode(sent)).digest == kept.digest


def test_openai_usage_is_read(server: Server):
    usage = {"prompt_tokens": 900, "completion_tokens": 20, "prompt_tokens_details": {"cached_tokens": 512}}
    server.otherwise = lambda asked: Act(body=answer(asked, "yes", usage=usage))
    expected = Reply(text="yes", prompt_tokens=900, cached_tokens=512, generated_tokens=20, bill=Bill(unpriced=1))
    assert make(server, "openai").reply([chat()]) == [expected]
    for bare in ({"usage": None}, {"usage": {**usage, "prompt_tokens_details": None}}):
        server.then(Act(body={**answer(server.asked[0], "yes"), **bare}))
        assert make(server, "openai").reply([chat()])[0].cached_tokens == 0


def test_anthropic_usage_includes_the_cache(server: Server):
    usage = {"input_tokens": 10, "output_tokens": 5, "cache_read_input_tokens": 700, "cache_creation_input_tokens": 90}
    server.otherwise = lambda asked: Act(body=answer(asked, "yes", usage=usage))
    counted = {"prompt_tokens": 800, "cached_tokens": 700, "written_tokens": 90, "generated_tokens": 5}
    expected = Reply(text="yes", **counted, bill=Bill(unpriced=1))
    assert make(server, "anthropic").reply([chat()]) == [expected]


def test_thinking_is_removed_from_replies(server: Server):
    thought = {"type": "thinking", "thinking": "hm", "signature": "x"}
    said = {"type": "text", "text": "yes"}
    server.otherwise = lambda asked: Act(body={**answer(asked), "content": [thought, said]})
    assert make(server, "anthropic").reply([chat()])[0].text == "yes"
    choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": [thought, said]}}
    server.otherwise = lambda asked: Act(body={**answer(asked), "choices": [choice]})
    assert make(server, "openai").reply([chat()])[0].text == "yes"


# -- Anthropic's cache --------------------------------------------------------------------------------------------------


def prefixes(asked: Asked) -> tuple[list[str], list[int]]:
    """The prompt's blocks, and after how many of them there is a breakpoint."""
    blocks = [*asked.body.get("system", []), *(block for turn in asked.turns for block in turn["content"])]
    marked = [number for number, block in enumerate(blocks, 1) if "cache_control" in block]
    return [str({k: v for k, v in block.items() if k != "cache_control"}) for block in blocks], marked


@pytest.mark.parametrize("images", [1, 30])
def test_anthropic_turn_reads_the_cache_of_the_previous_one(server: Server, images: int):
    """30 images: more blocks than the API looks back from a breakpoint for earlier entries."""
    asked = make(server, "anthropic", context_tokens=200_000, images_per_prompt=500)
    for turns in range(4):
        asked.reply([chat(*conversation(turns, images))])
    sent = [prefixes(one) for one in server.asked]
    for (before, _), (after, marked) in itertools.pairwise(sent):
        assert after[: len(before)] == before
        assert len(before) in marked
    assert all(1 in marked and len(blocks) in marked and len(marked) <= 4 for blocks, marked in sent)


def test_single_question_is_not_cached(server: Server):
    make(server, "anthropic").reply([chat(user("Describe this.", image()))])
    assert "cache_control" not in str(server.asked[0].body)


# -- parameters that a server does not take -----------------------------------------------------------------------------

NEWER = "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."
FIXED = (
    "Unsupported value: 'temperature' does not support 0.7 with this model. Only the default (1) value is supported."
)


def test_refused_max_tokens_is_renamed(server: Server):
    server.then(refused(NEWER, param="max_tokens", code="unsupported_parameter"))
    asked = make(server, "openai")
    asked.reply([chat()])
    asked.reply([chat()])
    limits = [
        {key: value for key, value in one.body.items() if key in ("max_tokens", "max_completion_tokens")}
        for one in server.asked
    ]
    assert limits == [{"max_tokens": 50}, {"max_completion_tokens": 50}, {"max_completion_tokens": 50}]


def test_refused_parameters_are_omitted(server: Server):
    forbidden = {
        "detail": [{"type": "extra_forbidden", "loc": ["body", "seed"], "msg": "Extra inputs are not permitted"}]
    }
    server.then(refused(NEWER), refused(FIXED, param="temperature"), Act(status=422, body=forbidden))
    asked = make(server, "openai")
    assert asked.reply([chat()])[0].text == "heard: What is it?"
    sampling = {"max_tokens", "max_completion_tokens", "temperature", "top_p", "seed"}
    assert sampling & server.asked[-1].body.keys() == {"max_completion_tokens", "top_p"}
    assert len(server.asked) == 4


def test_anthropic_omits_refused_temperature(server: Server):
    server.then(refused("`temperature` is deprecated for this model."))
    asked = make(server, "anthropic")
    asked.reply([chat()])
    assert ["temperature" in one.body for one in server.asked] == [True, False]


def test_temperature_is_kept_rather_than_top_p(server: Server):
    server.then(refused("`temperature` and `top_p` cannot both be specified for this model."))
    make(server, "openai").reply([chat()])
    assert "temperature" in server.asked[1].body and "top_p" not in server.asked[1].body


def test_refused_parameters_are_shared_by_threads(server: Server):
    def newer(asked: Asked) -> Act:
        return Act(delay=0.05) if "max_tokens" not in asked.body else refused(NEWER, param="max_tokens")

    server.otherwise = newer
    replies = make(server, "openai", concurrency=8).reply([chat(user(str(n))) for n in range(16)])
    assert [reply.text for reply in replies] == [f"heard: {n}" for n in range(16)]


def test_server_that_refuses_everything_is_an_error(server: Server, backbone: Make):
    message = "unsupported: max_tokens, max_completion_tokens, temperature, top_p, seed"
    server.otherwise = lambda asked: refused(message)
    assert message in failing(backbone()).message
    assert len(server.asked) <= 6


def test_value_out_of_range_is_reported(server: Server):
    server.then(refused("max_tokens is too large: 50. This model supports at most 10.", param="max_tokens"))
    assert "at most 10" in failing(make(server, "openai")).message
    assert len(server.asked) == 1


# -- the context --------------------------------------------------------------------------------------------------------

WORDINGS = [
    "This model's maximum context length is 2048 tokens. However, you requested 5000 tokens.",
    "The decoder prompt (length 5000) is longer than the maximum model length of 2048.",
    "the request exceeds the available context size, try increasing it",
    "prompt is too long: 208310 tokens > 200000 maximum",
    "input length and `max_tokens` exceed context limit: 199000 + 4096 > 200000",
    "The input (5000 tokens) is longer than the model's context length (2048 tokens).",
]


@pytest.mark.parametrize("wording", WORDINGS)
def test_overflow_shortens_the_conversation(server: Server, backbone: Make, wording: str):
    server.otherwise = lambda asked: refused(wording) if asked.images() > 6 else GOOD
    reply = backbone().reply([chat(*conversation(7))])[0]
    assert reply.text == "heard: output 6"
    left = server.asked[-1].images()
    assert 0 < left <= 6 and reply.left_out.startswith(f"its oldest {14 - left} images")
    assert [one.images() for one in server.asked] == sorted((one.images() for one in server.asked), reverse=True)


def test_overflow_is_known_by_its_code(server: Server):
    server.otherwise = lambda asked: refused("no", code="context_length_exceeded") if asked.images() > 6 else GOOD
    assert make(server, "openai").reply([chat(*conversation(7))])[0].left_out


def test_status_413_shortens_the_conversation(server: Server, backbone: Make):
    server.otherwise = lambda asked: Act(status=413, body="<h1>Too large</h1>") if asked.images() > 6 else GOOD
    assert backbone().reply([chat(*conversation(7))])[0].left_out


def test_shortening_is_limited(server: Server, backbone: Make):
    server.otherwise = lambda asked: refused("prompt is too long")
    error = failing(backbone(), chat(*conversation(60, images=6)))
    assert isinstance(error, ServiceError)
    assert "backbone.context_tokens=32768" in error.message and "prompt is too long" in error.message
    assert 3 <= len(server.asked) <= 5


def test_minimal_conversation_is_not_shortened(server: Server, backbone: Make):
    server.otherwise = lambda asked: refused(WORDINGS[0])
    assert "backbone.context_tokens=32768" in failing(backbone()).message
    assert len(server.asked) == 1


def test_conversation_is_fitted_before_it_is_sent(server: Server, backbone: Make):
    reply = backbone(images_per_prompt=8).reply([chat(*conversation(9))])[0]
    assert server.asked[0].images() <= 8 and "oldest" in reply.left_out
    # A picture of 300 x 300 pixels is guessed to have 120 tokens.
    backbone(context_tokens=1500).reply([chat(*conversation(9, side=300))])
    assert server.asked[1].images() * 120 < 1450


def test_openai_learns_the_cost_of_images(server: Server):
    def counting(asked: Asked) -> Act:
        tokens = 100 + 500 * asked.images()
        return Act(body=answer(asked, "yes", usage={"prompt_tokens": tokens, "completion_tokens": 1}))

    server.otherwise = counting
    asked = make(server, "openai", context_tokens=10_000)
    for _ in range(3):
        asked.reply([chat(*conversation(15))])
    sent = [one.images() for one in server.asked]
    assert sent[0] == 30
    assert sent[1] == sent[2] and 0 < sent[1] <= 20


# -- keys ---------------------------------------------------------------------------------------------------------------


def everything(error: BaseException | None) -> str:
    """What anybody could write down of an exception."""
    said = "".join(traceback.format_exception(error)) if error else ""
    while error is not None:
        said += f"{error!r} {error} {vars(error)}"
        error = error.__cause__ or error.__context__
    return said


@pytest.mark.parametrize("status", [200, 400, 401, 403, 404, 413, 429, 500])
@pytest.mark.parametrize("shape", ["json", "html"])
def test_key_in_an_answer_is_redacted(
    server: Server, backbone: Make, caplog: pytest.LogCaptureFixture, status: int, shape: str
):
    caplog.set_level(logging.DEBUG)
    said = f"{'x' * 260} Incorrect API key provided: {KEY}."
    body: Any = {"error": {"message": said}} if shape == "json" else f"<p>{said}</p>"
    server.otherwise = lambda asked: Act(status=status, body=body)
    asked = backbone(tries=1)
    error = failing(asked)
    assert KEY in server.asked[0].headers["authorization"]
    for text in (everything(error), everything(pickle.loads(pickle.dumps(error))), caplog.text, repr(asked)):
        assert KEY not in text
        assert KEY[:8] not in text


def test_key_in_a_header_is_redacted(server: Server, backbone: Make, caplog: pytest.LogCaptureFixture):
    """Up to the level that anybody runs at: on DEBUG the clients write down all headers of answers."""
    caplog.set_level(logging.INFO)
    server.then(Act(status=429, body="", headers={"retry-after": KEY}))
    error = failing(backbone(tries=1))
    assert "Retry-After ***" in error.message
    assert KEY not in everything(error) + caplog.text


def test_key_is_not_pickled(server: Server, backbone: Make):
    asked = backbone()
    asked.reply([chat()])
    travelled = pickle.dumps(asked)
    assert KEY.encode() not in travelled
    assert pickle.loads(travelled).reply([chat()])[0].text == "heard: What is it?"


def test_key_is_read_from_its_variable_only(server: Server, backbone: Make, kind: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv(KEYS[kind])
    for other in ("OPENAI_ADMIN_KEY", "ANTHROPIC_AUTH_TOKEN", "OPENAI_ORG"):
        monkeypatch.setenv(other, "another-secret")
    backbone().reply([chat()])
    assert "another-secret" not in str(server.asked[0].headers)
    with pytest.raises(UsageError, match=KEYS[kind]):
        backbone(base_url="")


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"base_url": "localhost:8000/v1"}, "backbone.base_url='localhost:8000/v1'"),
        ({"base_url": "http://host:port/v1"}, "backbone.base_url='http://host:port/v1'"),
    ],
)
def test_bad_address_is_refused(backbone: Make, settings: dict[str, Any], named: str):
    with pytest.raises(UsageError) as caught:
        backbone(**settings)
    assert named in caught.value.message


def test_key_with_line_break_is_refused(backbone: Make, kind: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv(KEYS[kind], f"{KEY}\nANOTHER=1")
    with pytest.raises(UsageError) as caught:
        backbone()
    assert KEYS[kind] in caught.value.message and KEY not in everything(caught.value)


def test_trailing_line_break_of_a_key_is_ignored(
    server: Server, backbone: Make, kind: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv(KEYS[kind], f"{KEY}\n")
    assert backbone().reply([chat()])[0].text == "heard: What is it?"
