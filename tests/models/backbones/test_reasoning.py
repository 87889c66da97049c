"""Reasoning in replies of servers: it is kept apart, ends no stream and makes no call."""

from dataclasses import replace

import pytest

from openmaia.core.messages import AnswerFormat, Chat, user
from openmaia.models.backbones.openai_api import OpenAiConfig
from openmaia.models.backbones.openai_server import OpenAiBackbone
from tests.helpers.misbehaving import Act, Server, answer, misbehaving

CODE = "[CODE]:\n```python\nprint(system.call_neuron(tools.text2image(['a dog'])))\n```\n"
DRAFT = "Maybe\n```python\nprint(system.call_neuron(tools.text2image(['WRONG'])))\n```\nno.\n"
HARMONY = ("<|channel|>analysis<|message|>", "<|end|><|start|>assistant<|channel|>final<|message|>")
CHAT = Chat(conversation="c", messages=(user("What is it?"),), seed=1, max_tokens=500, answer=AnswerFormat())


def asked(server: Server, *replies: str, protocol: str = "text") -> list[str]:
    """The replies to as many requests by one client, whose server streams in pieces of 7 characters."""
    pieces = [tuple(reply[n : n + 7] for n in range(0, len(reply), 7)) for reply in replies]
    server.then(*[Act(pieces=each, pause=0.002) for each in pieces])
    config = OpenAiConfig(kind="openai", model="m", base_url=f"{server.base}/v1", protocol=protocol)
    backbone = OpenAiBackbone(config)
    return [backbone.reply([CHAT])[0].text for _ in replies]


@pytest.mark.parametrize(("start", "end"), [("<think>\n", "</think>\n"), ("", "</think>\n"), HARMONY])
def test_draft_in_reasoning_does_not_end_the_stream(start: str, end: str):
    text = f"{start}{DRAFT}{end}{CODE}"
    with misbehaving() as server:
        assert asked(server, text, text) == [CODE, CODE]


def test_stream_of_a_model_that_reasons_still_ends_after_the_experiment():
    text = f"{DRAFT}</think>\n{CODE}"
    with misbehaving() as server:
        assert asked(server, text, text + "".join(f"Then it is dog {n * n}. " for n in range(300))) == [CODE, CODE]
        assert server.streamed < 400, "the server was not told to stop"


def test_reasoning_that_reaches_the_limit_is_no_reply():
    """The prompt holds the first mark, which the client knows from an earlier reply."""
    with misbehaving() as server:
        server.otherwise = lambda request: Act(body=answer(request, DRAFT, "length"))
        config = OpenAiConfig(kind="openai", model="m", base_url=f"{server.base}/v1")
        backbone = OpenAiBackbone(config)
        server.then(Act(pieces=(f"Dogs.</think>{CODE}",)))
        backbone.reply([CHAT])
        (reply,) = backbone.reply([CHAT])
    assert (reply.text, reply.reasoning) == ("", DRAFT.strip())


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning", "thinking"])
def test_reasoning_in_its_own_field_is_kept(name: str):
    with misbehaving() as server:
        body = {"choices": [{"message": {"content": CODE, name: DRAFT}, "finish_reason": "stop"}]}
        server.otherwise = lambda request: Act(body=body)
        backbone = OpenAiBackbone(OpenAiConfig(kind="openai", model="m", base_url=f"{server.base}/v1"))
        (reply,) = backbone.reply([CHAT])
        assert (reply.text, reply.reasoning) == (CODE, DRAFT)
        assert backbone.reply([replace(CHAT, answer=None)])[0].text == CODE


def test_call_that_is_drafted_in_reasoning_is_not_made():
    draft, call = (f'{{"name": "run_experiment", "arguments": {{"code": "{code}"}}}}' for code in ("WRONG", "print(1)"))
    with misbehaving() as server:
        (text,) = asked(server, f"<think>{draft}" + "\n" * 20 + f"</think>{call}" + "\n" * 4000, protocol="tools")
        assert server.streamed < 300, "empty lines after a call end the stream"
    assert "print(1)" in text and "WRONG" not in text
