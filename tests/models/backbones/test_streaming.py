"""Streamed replies: how events are read, where they end, what breaks them off, and how long a server may be silent."""

import json
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from openmaia.core.errors import ServiceError, ServiceUnavailable, UsageError
from openmaia.core.messages import AnswerFormat, Chat, Cut, user
from openmaia.models.backbones.openai_api import OpenAiConfig
from openmaia.models.backbones.openai_server import OpenAiBackbone
from openmaia.models.backbones.streaming import StreamBroken, Unreadable, read_stream
from openmaia.models.backbones.tool_calls import convert_to_text
from tests.helpers.misbehaving import Act, Server, misbehaving

CHAT = Chat(conversation="c", messages=(user("What is it?"),), seed=1, max_tokens=500, answer=AnswerFormat())
EXPERIMENT = "[CODE]:\n```python\nprint(system.call_neuron(['a dog']))\n```\n"


@pytest.fixture
def server() -> Iterator[Server]:
    with misbehaving() as started:
        yield started


def backbone(server: Server, **settings: float) -> OpenAiBackbone:
    given = {"tries": 2, "timeout": 5.0, **settings}
    return OpenAiBackbone(OpenAiConfig(kind="openai", model="m", base_url=f"{server.base}/v1", **given))  # type: ignore[arg-type]


def test_streamed_reply_is_read_with_its_tokens(server: Server):
    server.then(Act(pieces=("It is ", "a dog.")))
    (reply,) = backbone(server).reply([CHAT])
    assert (reply.text, reply.prompt_tokens, reply.generated_tokens, reply.cut) == ("It is a dog.", 11, 22, Cut.NONE)
    assert server.asked[0].body["stream"] is True


def test_turn_is_not_read_beyond_its_experiment(server: Server):
    server.then(Act(pieces=(EXPERIMENT, *[f"Output {n}: dogs excite it.\n" for n in range(400)]), pause=0.05))
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
    assert backbone(server, timeout=2.0).reply([CHAT])[0].text.endswith("word14 ")


def event(delta: dict[str, Any] | None, finish: str | None = None, **more: Any) -> str:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return f"data: {json.dumps({'choices': [choice], **more}, ensure_ascii=False)}\n\n"


def read(body: str | bytes, size: int = 1) -> dict[str, Any]:
    """The reply in a body that arrives in chunks of a number of bytes."""
    data = body if isinstance(body, bytes) else body.encode()
    return json.loads(read_stream([data[n : n + size] for n in range(0, len(data), size)], CHAT, ()))


def text_of(answer: dict[str, Any]) -> str:
    return answer["choices"][0]["message"]["content"]


DONE = "data: [DONE]\n\n"
STRANGE = "a\u2028b\u2029c\x85d\x0be\x0cf\x1cg\x1dh\x1ei 🐕 é"


@pytest.mark.parametrize("size", [1, 2, 3, 7, 10_000])
@pytest.mark.parametrize("end", ["\n", "\r", "\r\n"])
def test_line_ends_with_lf_cr_or_crlf_alone(end: str, size: int):
    body = "\ufeff: hello\n\n" + event({"content": STRANGE.replace("\x0b", "").replace("\x0c", "").replace("\x1c", "")})
    body += event({"content": STRANGE}) + DONE
    raw = json.dumps({"choices": [{"delta": {"content": "x"}}]})
    body = body.replace("\n", end) + f"data:{raw}{end}{end}"
    assert text_of(read(body, size)).endswith(STRANGE)


@pytest.mark.parametrize(
    "body",
    [
        event({"content": "dogs"}) + DONE,
        event({"content": "dogs"}) + "data: [DONE]",
        event({"content": "dogs"}, "stop"),
        event({"content": "dogs"}).strip() + "\n" + DONE,
        event({"content": "dogs"}, "stop").strip(),
        event({"content": "do"}, "null") + event({"content": "gs"}, "") + DONE,
        'data: {"choices": [{"delta":\ndata:{"content": "dogs"}}]}\n\n' + DONE,
        "event: ping\ndata: alive\n\ndata:\n\nretry: 5\nid: 7\n\n: alive\n" + event({"content": "dogs"}) + DONE,
        event(None) + event({"content": None}) + event({"content": "dogs"}) + DONE,
        'data: {"choices": [], "usage": null}\n\ndata: null\n\n' + event({"content": "dogs"}) + DONE,
        event({"content": "dogs"}) + 'data: {"usage": {"prompt_tokens": 3}}\n\n' + DONE,
        event({"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "cats"}]}]})
        + event({"content": [{"type": "text", "text": "dogs"}]}) + DONE,
        'data: {"choices": [{"message": {"content": "dogs"}, "finish_reason": "stop"}]}\n\n',
        '{"choices": [{"message": {"content": "dogs"}}]}',
        '\r\n {\n"choices":\n\n[{"message": {"content": "dogs"}}]}',
    ],
    ids=[
        "done", "done without line end", "finish", "no empty line", "finish without line end", "null as text", "two lines",
        "other events", "null", "no choices", "usage alone", "parts", "whole reply as event", "JSON", "JSON of several lines",
    ],
)  # fmt: skip
def test_reply_is_read(body: str):
    assert text_of(read(body)) == "dogs"


@pytest.mark.parametrize(
    "body",
    [
        'event: error\ndata: {"message": "no memory"}\n\n',
        'event: error\ndata: {"error": {"message": "no memory"}}\n\n',
        "event: error\ndata: no memory\n\n",
        'data: {"error": {"message": "no memory", "code": 400}}\n\n' + DONE,
        'data: {"error": "no memory"}\n\n',
        'data: {"object": "error", "message": "no memory", "code": 400}\n\n' + DONE,
        'error: {"message": "no memory"}\n\n',
        'data: {"choices": [{"delta": {"content": ""}, "finish_reason": "error"}], "error": {"message": "no memory"}}\n\n',
    ],
)
@pytest.mark.parametrize("before", ["", event({"content": "It is"})])
def test_error_event_is_an_error_with_its_text(server: Server, before: str, body: str):
    assert "no memory" in json.dumps(read(before + body)["error"])
    server.then(Act(body=before + body))
    with pytest.raises(ServiceError, match="no memory") as caught:
        backbone(server).reply([CHAT])
    assert not isinstance(caught.value, ServiceUnavailable) and len(server.asked) == 1


def test_error_with_status_200_and_no_field_error_is_an_error(server: Server):
    server.then(Act(body={"object": "error", "message": "no memory", "code": 400}))
    with pytest.raises(ServiceError, match="no memory"):
        backbone(server).reply([CHAT])


@pytest.mark.parametrize(
    "body", ["", ": alive\n\n", event({"content": "do"}), event({"content": "do"}) + 'data: {"cho']
)
def test_stream_without_an_end_is_broken(body: str):
    with pytest.raises((StreamBroken, Unreadable) if "cho" in body[-4:] else StreamBroken):
        read(body or ":\n")


@pytest.mark.parametrize("body", ["data: dogs\n\n", event({"content": 3}), 'data: {"choices": [3]}\n\n'])
def test_unreadable_reply_is_no_outage(server: Server, body: str):
    server.otherwise = lambda asked: Act(body=body)
    with pytest.raises(ServiceError, match="backbone.model='m' .*gave a reply that cannot be read") as caught:
        backbone(server, tries=6).reply([CHAT])
    assert not isinstance(caught.value, ServiceUnavailable) and len(server.asked) == 2


@pytest.mark.parametrize(
    "body", [{"choices": []}, {"choices": [{"message": None}]}, {"choices": [{"message": {"content": 3}}]}]
)
def test_unreadable_whole_reply_is_named(server: Server, body: dict[str, Any]):
    server.otherwise = lambda asked: Act(body=body)
    with pytest.raises(ServiceError, match="gave a reply that cannot be read"):
        backbone(server).reply([CHAT])


def test_stream_of_another_api_is_named(server: Server):
    server.then(Act(body='data: {"message": {"content": "dogs"}, "done": true}\n\n'))
    with pytest.raises(UsageError, match="answers, but not as this API"):
        backbone(server).reply([CHAT])


def piece(
    arguments: Any = None, index: int | None = 0, id: str | None = None, name: str | None = None
) -> dict[str, Any]:
    given = {"index": index, "id": id, "function": {"name": name, "arguments": arguments}}
    return {key: value for key, value in given.items() if value is not None}


FIRST, SECOND = ('{"code": "print(1)"}', '{"code": "print(2)"}')
EXPERIMENT_NAME = "run_experiment"


@pytest.mark.parametrize(
    "pieces",
    [
        [piece(FIRST, 0, "a", EXPERIMENT_NAME), piece(SECOND, 0, "b", EXPERIMENT_NAME)],
        [piece(FIRST, 0, "a", EXPERIMENT_NAME), piece(SECOND, 1, "b", EXPERIMENT_NAME)],
        [piece(FIRST, 0, None, EXPERIMENT_NAME), piece(SECOND, 0, None, EXPERIMENT_NAME)],
        [piece(FIRST, None, None, EXPERIMENT_NAME), piece(SECOND, None, None, EXPERIMENT_NAME)],
        [piece(FIRST, None, "a", EXPERIMENT_NAME), piece(SECOND, None, "b", EXPERIMENT_NAME)],
        [piece(FIRST, 0, "", EXPERIMENT_NAME), piece(SECOND, 0, "", EXPERIMENT_NAME)],
        [piece(json.loads(FIRST), 0, "a", EXPERIMENT_NAME), piece(json.loads(SECOND), 0, "b", EXPERIMENT_NAME)],
        [piece(FIRST[:9], 0, "a", EXPERIMENT_NAME), piece(FIRST[9:], None), piece(SECOND, 0, "b", EXPERIMENT_NAME)],
        [piece(FIRST[:9], 0, "a", EXPERIMENT_NAME), piece(FIRST[9:], 0, "a", EXPERIMENT_NAME)],
        [piece(FIRST[:9], 1, "a", EXPERIMENT_NAME), piece(FIRST[9:], 1), piece(SECOND, 2, "b", EXPERIMENT_NAME)],
        [piece("", 0, "a", EXPERIMENT_NAME), piece("", 0, "b", EXPERIMENT_NAME), piece(SECOND, 0)],
        [piece(FIRST[:9], 0, "a", "run_"), piece("", 0, None, "experiment"), piece(FIRST[9:], 0)],
        [piece(FIRST[:9], 0, "a", EXPERIMENT_NAME), piece(SECOND, 1, "b", EXPERIMENT_NAME), piece(FIRST[9:], 0)],
    ],
)
@pytest.mark.parametrize("together", [True, False])
def test_first_of_several_calls_is_the_turn(pieces: list[dict[str, Any]], together: bool):
    deltas = [{"tool_calls": pieces}] if together else [{"content": None, "tool_calls": [one]} for one in pieces]
    answer = read("".join(event(delta) for delta in deltas) + event({}, "tool_calls") + DONE, 10_000)
    (call,) = answer["choices"][0]["message"]["tool_calls"]
    assert call["function"]["name"] == EXPERIMENT_NAME
    assert call["function"]["arguments"] in ("", FIRST)


def test_arguments_of_a_whole_reply_may_be_an_object():
    call = {"function": {"name": EXPERIMENT_NAME, "arguments": json.loads(FIRST)}}
    assert "print(1)" in convert_to_text([call], AnswerFormat())


def read_events(*events: Any) -> Any:
    data = "".join(f"data: {event if isinstance(event, str) else json.dumps(event)}\n\n" for event in events)
    return json.loads(read_stream([data.encode()], CHAT, CHAT.messages))


def one_piece(finish: str | None = None, **delta: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


@pytest.mark.parametrize("end", [{"choices": [], "usage": {"prompt_tokens": 5}}, "event: done\ndata: {}"])
def test_other_signs_of_the_end_end_a_reply(end: Any):
    events = [one_piece(content="dogs"), end]
    data = "".join(f"{e}\n\n" if isinstance(e, str) else f"data: {json.dumps(e)}\n\n" for e in events)
    answer = json.loads(read_stream([data.encode()], CHAT, CHAT.messages))
    assert answer["choices"][0]["message"]["content"] == "dogs"


def test_error_after_the_end_costs_no_reply():
    assert "error" not in read_events(one_piece("stop", content="dogs"), {"error": {"message": "late"}}, "[DONE]")


@pytest.mark.parametrize(
    "event", [{"detail": "quota of moons"}, {"choices": None, "base_resp": {"x": "quota of moons"}}]
)
def test_reason_in_the_middle_of_a_reply_is_no_end(event: Any):
    with pytest.raises(Unreadable, match="quota of moons"):
        read_events(one_piece(content="do"), event, "[DONE]")


def test_error_of_a_choice_keeps_its_text():
    failed = {
        "choices": [{"index": 0, "delta": {}, "finish_reason": "error", "error": {"message": "moons", "code": 502}}]
    }
    assert read_events(one_piece(content="do"), failed, "[DONE]")["error"]["message"] == "moons"


def test_accident_of_a_server_in_a_stream_is_repeated(server: Server):
    failed = Act(body={"error": {"message": "Sorry about that!", "type": "server_error"}})
    server.then(failed, Act(pieces=("It is a dog.",)))
    assert backbone(server).reply([CHAT])[0].text == "It is a dog."


GIVEN = json.dumps({"hypotheses": ["dogs"], "code": "print('dog')"})


@pytest.mark.parametrize(
    "pieces",
    [
        [("a", "run_experiment", GIVEN[:9]), ("b", None, GIVEN[9:])],
        [("a", "run_experiment", GIVEN[:9]), ("b", "answer", "{"), ("a", None, GIVEN[9:]), ("b", None, "}")],
        [("a", "run_experiment", "{}"), (None, None, GIVEN)],
        [("a", "run_experiment", json.dumps(GIVEN))],
        [(0, "run_experiment", GIVEN), (1, "answer", "{}")],
    ],
    ids=["another id each", "interleaved", "empty object first", "encoded twice", "number as id"],
)
def test_pieces_of_calls_in_other_forms_are_one_turn(pieces: list[Any]):
    events = [
        one_piece(tool_calls=[{"index": 0, "id": id, "function": {"name": name, "arguments": given}}])
        for id, name, given in pieces
    ]
    message = read_events(*events, one_piece("tool_calls"))["choices"][0]["message"]
    assert "print('dog')" in convert_to_text(message["tool_calls"], AnswerFormat())
