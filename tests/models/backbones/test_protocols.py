"""The forms of a turn: as a grammar that constrains the model, and as calls of functions."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from openmaia.agent.tasks.grammar import parse
from openmaia.config.loading import load
from openmaia.core.errors import UsageError
from openmaia.core.messages import AnswerFormat, Chat, Message, TurnKind, assistant, system, user
from openmaia.models.backbones.chat_format import temperature
from openmaia.models.backbones.openai_api import OpenAiConfig
from openmaia.models.backbones.openai_server import OpenAiBackbone
from openmaia.models.backbones.streaming import read_stream
from openmaia.models.backbones.tool_calls import convert_to_calls, convert_to_text, find_calls, functions
from openmaia.models.backbones.turn_grammar import turn_grammar
from tests.helpers.misbehaving import Act, Server, answer, misbehaving

CHOICES = AnswerFormat(text="REASONING", decided_by="LABEL", choices=("SELECTIVE", "SPURIOUS"))
FORMATS = [AnswerFormat(), AnswerFormat(text="BIAS", decided_by="BIAS"), CHOICES]
EXPERIMENT = "[HYPOTHESIS LIST]:\n1. H1: dogs\n2. H2: grass\n\n[CODE]:\n```python\nprint(1)\n\nprint(`2`)\n```\n"
MEASUREMENT = """[HYPOTHESIS LIST]:
1. H1: dogs
2. H2: cats

[CODE]:
```python
prompts = ["a dog, it's brown", "a cat"]
activations, images = system.call_neuron(tools.text2image(prompts))
for prompt, activation in zip(prompts, activations):
    print(prompt, activation)
```
"""
TURNS = [EXPERIMENT, "[DESCRIPTION]: dogs on grass\n[LABEL 1]: dog\n[LABEL 2]: grass"]


@pytest.fixture
def server() -> Iterator[Server]:
    with misbehaving() as started:
        yield started


def sent(server: Server, protocol: str, *messages: Message) -> dict[str, Any]:
    config = OpenAiConfig(kind="openai", model="m", base_url=f"{server.base}/v1", protocol=protocol)
    chat = Chat(conversation="c", messages=messages, seed=1, max_tokens=50, answer=AnswerFormat())
    OpenAiBackbone(config).reply([chat])
    return server.asked[-1].body


def is_accepted(grammar: str, text: str) -> bool:
    """Matched byte by byte with xgrammar, as vLLM does while it generates."""
    xgrammar = pytest.importorskip("xgrammar")
    vocabulary = [bytes([byte]) for byte in range(256)] + [b"</s>"]
    info = xgrammar.TokenizerInfo(vocabulary, stop_token_ids=[256])
    matcher = xgrammar.GrammarMatcher(xgrammar.GrammarCompiler(info).compile_grammar(grammar))
    return all(matcher.accept_token(byte) for byte in text.encode()) and matcher.accept_token(256)


@pytest.mark.parametrize("answer", FORMATS)
@pytest.mark.parametrize("expected", TurnKind)
def test_grammar_is_accepted_by_the_compiler_of_vllm(answer: AnswerFormat, expected: TurnKind):
    xgrammar = pytest.importorskip("xgrammar")
    xgrammar.Grammar.from_ebnf(turn_grammar(answer, expected))


@pytest.mark.parametrize(
    ("expected", "accepted"),
    [
        ("any", [True, True, True]),
        ("experiment", [True, False, True]),
        ("measurement", [False, False, True]),
        ("answer", [False, True, False]),
    ],
)
def test_grammar_and_functions_admit_what_is_expected_alone(expected: str, accepted: list[bool]):
    texts = ("[CODE]:\n```python\nprint(1)\n```\n", "[DESCRIPTION]: dogs\n[LABEL 1]: dog\n", MEASUREMENT)
    assert [is_accepted(turn_grammar(AnswerFormat(), TurnKind(expected)), text) for text in texts] == accepted
    names = {each["function"]["name"] for each in functions(AnswerFormat(), TurnKind(expected))}
    assert [name in names for name in ("run_experiment", "answer")] == [accepted[2], accepted[1]]


@pytest.mark.parametrize(
    ("text", "is_turn"),
    [
        ("[HYPOTHESIS LIST]:\n1. dogs\n\n[CODE]:\n```python\nprint(1)\n\n  print('[LABEL 1]')\n```\n", True),
        ("[CODE]:\n```python\nprint(1)\n```\n", True),
        ("[DESCRIPTION]: dogs on grass\n[LABEL 1]: dog\n[LABEL 2]: grass\n", True),
        ("[DESCRIPTION]: NONE\n", True),
        ("[DESCRIPTION]: a dog [LABEL 1]: dog [LABEL 2]: cat\n", False),
        ("[DESCRIPTION]: " + "dog, " * 119 + "dog\n", True),
        ("[DESCRIPTION]: " + "狗" * 90 + "\n", False),
        ("[DESCRIPTION]: " + "dog, " * 120 + "dog\n", False),
        ("[DESCRIPTION]: dogs\n[LABEL 1]: " + "dog, " * 8 + "dog\n", False),
        ("[HYPOTHESIS LIST]:\n" + "1. dogs\n" * 7 + "\n[CODE]:\n```python\nprint(1)\n```\n", False),
        ("[HYPOTHESIS LIST]:\n1. H1: dogs [most likely]. Not cats\n\n[DESCRIPTION]: dogs\n", True),
        ("[DESCRIPTION]: Dogs. On grass. In the sun.\n[LABEL 1]: St. Bernard\n", True),
        ("[DESCRIPTION]: 8.7 falls to 0.3, 1.2 and 4.5. So it is red.\n", True),
        ("[DESCRIPTION]: dogs\n" + "[LABEL 1]: dog\n" * 6, True),
        ("[DESCRIPTION]: dogs\n" + "[LABEL 1]: dog\n" * 7, False),
        ("[DESCRIPTION]: It is. It may be. It can be. It was.\n", False),
        ("[DESCRIPTION]: dogs\n[LABEL 1]: None. It responds. To dogs\n", False),
        ("[CODE]:\n```python\nprint(1)\n```\n[DESCRIPTION]: dogs\n", False),
        ("The unit responds to dogs.\n", False),
        ("[DESCRIPTION]: [LABEL 1]: dog\n", False),
    ],
)
def test_grammar_admits_turns_alone(text: str, is_turn: bool):
    assert is_accepted(turn_grammar(AnswerFormat()), text) is is_turn


def test_grammar_is_sent_to_the_server(server: Server):
    body = sent(server, "grammar", user("q"))
    assert body["grammar"] == body["structured_outputs"]["grammar"] == turn_grammar(AnswerFormat())
    assert "grammar" not in sent(server, "text", user("q"))


@pytest.mark.parametrize(
    ("protocol", "repetitions", "expected"),
    [("text", 0, 0.7), ("text", 1, 1.0), ("tools", 2, 1.0), ("grammar", 2, 1.3), ("grammar", 9, 1.5)],
)
def test_temperature_rises_while_the_model_repeats_its_turns(
    server: Server, protocol: str, repetitions: int, expected: float
):
    config = OpenAiConfig(kind="openai", model="m", base_url=f"{server.base}/v1", temperature=0.7, protocol=protocol)
    OpenAiBackbone(config).reply(
        [Chat(conversation="c", messages=[user("q")], seed=1, max_tokens=5, repetitions=repetitions)]
    )
    assert server.asked[-1].body["temperature"] == pytest.approx(expected)


def test_configured_temperature_is_never_lowered():
    chat = Chat(conversation="c", messages=(), seed=1, max_tokens=5, repetitions=2)
    assert temperature(1.8, chat, 1.5) == 1.8


def test_turns_are_sent_as_calls(server: Server):
    body = sent(server, "tools", system("You are."), user("q"), assistant(EXPERIMENT), user("1\n2"))
    roles = [message["role"] for message in body["messages"]]
    assert roles == ["system", "user", "assistant", "tool", "user"]
    assert body["messages"][2]["tool_calls"][0]["id"] == body["messages"][3]["tool_call_id"]
    assert [tool["function"]["name"] for tool in body["tools"]] == ["run_experiment", "answer"]
    assert "run_experiment" in body["messages"][0]["content"]


@pytest.mark.parametrize("text", TURNS)
def test_turn_survives_the_way_through_a_call(text: str):
    answer = AnswerFormat()
    calling, _ = convert_to_calls([assistant(text)], answer, lambda message: {"content": message.text})
    again = parse(convert_to_text(calling["tool_calls"], answer), answer)
    expected = parse(text, answer)
    assert (again.code, again.hypotheses, again.description, again.labels) == (
        expected.code, expected.hypotheses, expected.description, expected.labels,
    )  # fmt: skip


def test_choice_survives_the_way_through_a_call():
    (_, function) = functions(CHOICES)
    assert function["function"]["parameters"]["properties"]["labels"]["items"]["enum"] == ["SELECTIVE", "SPURIOUS"]
    arguments = json.dumps({"reasoning": "snow", "labels": ["SPURIOUS"]})
    text = convert_to_text([{"function": {"name": "answer", "arguments": arguments}}], CHOICES)
    assert parse(text, CHOICES).labels == ("SPURIOUS",)


@pytest.mark.parametrize(
    "form",
    ["{}\n```\n\n\n", "```json\n{}\n```", "<tool_call>\n{}\n</tool_call>", "I look at {{it}} first.\n{}", "[{}]"],
)
@pytest.mark.parametrize("key", ["arguments", "parameters"])
def test_call_that_is_written_as_text_is_a_call(server: Server, form: str, key: str):
    """As Qwen2.5-Coder writes them, which llama.cpp does not recognise."""
    written = json.dumps(
        {"name": "run_experiment", key: {"hypotheses": ["red"], "code": "for x in (1, 2):\n    print(x)"}}
    )
    server.otherwise = lambda asked: Act(body=answer(asked, form.format(written)))
    config = OpenAiConfig(kind="openai", model="m", base_url=f"{server.base}/v1", protocol="tools")
    chat = Chat(conversation="c", messages=[user("q")], seed=1, max_tokens=50, answer=AnswerFormat())
    text = OpenAiBackbone(config).reply([chat])[0].text
    assert parse(text, AnswerFormat()).code == "for x in (1, 2):\n    print(x)"
    assert parse(text, AnswerFormat()).hypotheses == ("red",)


@pytest.mark.parametrize(
    "written",
    [
        '{"name": "run_experiment", "code": "print(1)", "hypotheses": []}',
        '{"name": "run_experiment", "arguments": {"code": "print(1)\n"}}',
        '{"name": "run_experiment", "arguments": "{\\"code\\": \\"print(1)\\"}"}',
    ],
    ids=["flat", "line break", "text"],
)
def test_loosely_written_call_is_understood(written: str):
    assert (
        parse(convert_to_text(find_calls(written, AnswerFormat()), AnswerFormat()), AnswerFormat()).code == "print(1)"
    )


@pytest.mark.parametrize(
    "text",
    [
        *("{" * 100_000, '{"a":' * 100_000, '{"a":' + "[" * 100_000, "{}", '{"name": ["answer"], "code": 1}'),
        '{"name": "other", "arguments": {"code": "1"}}',
        'I call {"name": "answer"} now. [DESCRIPTION]: red circles',
        json.dumps(functions(AnswerFormat())[1]["function"]),
    ],
    ids=["braces", "objects", "lists", "empty", "list as name", "other", "name alone", "definition"],
)
def test_text_without_a_call_stays_text(text: str):
    assert find_calls(text, AnswerFormat()) == []


def test_streamed_call_is_put_together():
    pieces = [{"name": "run_experiment", "arguments": ""}, {"arguments": '{"code": "pr'}, {"arguments": 'int(1)"}'}]
    events = [{"choices": [{"delta": {"tool_calls": [{"index": 0, "function": piece}]}}]} for piece in pieces]
    events.append({"choices": [{"delta": {}, "finish_reason": "tool_calls"}]})
    chat = Chat(conversation="c", messages=(), seed=1, max_tokens=50, answer=AnswerFormat())
    body = json.loads(read_stream([f"data: {json.dumps(event)}\n\n".encode() for event in events], chat, ()))
    assert parse(convert_to_text(body["choices"][0]["message"]["tool_calls"], AnswerFormat())).code == "print(1)"


@pytest.mark.parametrize(
    "arguments", ["", "{", "[" * 100_000, "[1]", "null", '{"code": null}', '{"code": 1, "hypotheses": "x"}']
)
def test_malformed_call_is_no_error(arguments: str):
    parse(convert_to_text([{"function": {"name": "run_experiment", "arguments": arguments}}], AnswerFormat()))


@pytest.mark.parametrize(("kind", "protocol"), [("anthropic", "grammar"), ("vllm", "tools"), ("openai", "xml")])
def test_protocol_that_a_backbone_does_not_have_is_refused(kind: str, protocol: str):
    with pytest.raises(UsageError, match="backbone.protocol"):
        load(
            [
                "configs/efficientnet-lite0.yaml",
                f"backbone.kind={kind}",
                "backbone.model=m",
                f"backbone.protocol={protocol}",
            ]
        )
