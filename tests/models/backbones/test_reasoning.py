"""Reasoning in the text of a model: what is separated from the reply, and what stays in it."""

from dataclasses import replace

import pytest

from openmaia.config.models import BackboneConfig
from openmaia.core.messages import AnswerFormat, Chat, user
from openmaia.models.backbones.openai_server import OpenAiBackbone
from openmaia.models.backbones.reasoning import ends_inside, separate
from tests.helpers.misbehaving import Act, Server, answer, misbehaving

CODE = "[CODE]:\n```python\nprint(system.call_neuron(tools.text2image(['a dog'])))\n```\n"
DRAFT = "Maybe\n```python\nprint(system.call_neuron(tools.text2image(['WRONG'])))\n```\nno.\n"
UNFENCED = "Maybe\n```python\nprint(system.call_neuron(tools.text2image(['WRONG'])))\nno.\n"
HARMONY = ("<|channel|>analysis<|message|>", "<|end|><|start|>assistant<|channel|>final<|message|>")
MARKS = [
    ("<think>", "</think>"), ("<thinking>", "</thinking>"), ("<Thought>", "</Thought>"), ("<seed:think>", "</seed:think>"),
    ("[THINK]", "[/THINK]"), ("◁think▷", "◁/think▷"), ("<|START_THINKING|>", "<|END_THINKING|>"),
    ("<|channel>thought\n", "<channel|>"), HARMONY,
]  # fmt: skip
CHAT = Chat(conversation="c", messages=(user("What is it?"),), seed=1, max_tokens=500, answer=AnswerFormat())


@pytest.mark.parametrize("draft", [DRAFT, UNFENCED, CODE], ids=["draft", "open fence", "turn"])
@pytest.mark.parametrize(("start", "end"), MARKS, ids=lambda mark: mark[:12])
def test_reasoning_between_marks_is_no_reply(start: str, end: str, draft: str):
    found = separate(f"\n{start}\n{draft}{end}\n\n{CODE}")
    assert (found.text, found.reasoning) == (CODE, draft.strip())
    assert separate(f"{draft}{end}{CODE}").text == CODE, "the prompt holds the first mark"
    assert separate(f"{draft}{end}{CODE}", is_open=True).text == CODE
    assert separate(f"{start}{draft}").text == "", "cut off"


@pytest.mark.parametrize(
    "text",
    [
        f"analysisWe need it. {DRAFT}assistantfinal{CODE}",
        f"Here is my thought process: {DRAFT}\nHere is my response:\n{CODE}",
        f"<think>one {DRAFT}</think>\n<think>two {DRAFT}</think>\n{CODE}",
        f"<think>one <think>two</think> three {DRAFT}</think>\n{CODE}",
        f"<think>It ends with '</think>' or `</think>`.\n{DRAFT}</think>\n{CODE}",
        f"{HARMONY[0]}{DRAFT}<|end|><|start|>assistant<|channel|>commentary<|message|>I try.{HARMONY[1]}{CODE}",
        f"{DRAFT}</think>\n\n</think>\n{CODE}",
        f"{DRAFT}So I am done. </think> {CODE}",
    ],
    ids=["words of gpt-oss", "Granite", "two", "nested", "quoted", "commentary", "doubled", "in a line"],
)
def test_reasoning_in_other_forms_is_no_reply(text: str):
    found = separate(text)
    assert found.text == CODE and "WRONG" in found.reasoning


def test_reasoning_after_a_heading_is_no_reply():
    found = separate(f"[HYPOTHESIS LIST]:\n1. dogs\n\n<think>\n{DRAFT}</think>\n{CODE}")
    assert found.text.split() == f"[HYPOTHESIS LIST]: 1. dogs {CODE}".split()


@pytest.mark.parametrize("mark", ["<think>", "</think>", "[THINK]", "[/THINK]", "◁/think▷", HARMONY[1]])
@pytest.mark.parametrize(
    "text",
    [
        "[CODE]:\n```python\np = ['a sign that says {}', \"{}\", '{} on a wall', 'a {} b']\nsystem.call_neuron(p)\n```\n",
        "[CODE]:\n```python\np = '''\n{}\n'''\n# {}\nsystem.call_neuron(p)  #{}\n```\n",
        "The unit responds to {} in images, to \"{}\", to `{}` and '{}' ({}).\n[CODE]:\n```python\nprint(1)\n```\n",
        "[DESCRIPTION]: text such as <think> and {}\n[LABEL 1]: {}\n[LABEL 2]: the tag {}",
        "[HYPOTHESIS LIST]:\n1. {} signs\n2. the word {}, written\n",
    ],
    ids=["code", "lines of code", "prose", "answer", "hypotheses"],
)
def test_reply_may_speak_of_marks(text: str, mark: str):
    said = text.replace("{}", mark)
    assert separate(said).text == said


@pytest.mark.parametrize("text", ["analysis of dogs\n", "an assistantfinal\n", "Here is my response:\n", ""])
def test_words_alone_are_no_marks(text: str):
    assert separate(text + CODE).text == text + CODE


@pytest.mark.parametrize(
    "text", ["<think>", "</think>", "'</think>' ", "\n<think>\n```python\nx\n```\n", "`", "<|channel|>"]
)
def test_marks_are_read_in_linear_time(text: str):
    separate(text * 10_000 + "</think>")


def test_mark_at_the_end_of_a_prompt_is_found():
    assert ends_inside("<|im_start|>assistant\n<think>\n")
    assert not ends_inside("<think>\n\n</think>\n\n") and not ends_inside("<think> of it<|im_start|>assistant\n")


def asked(server: Server, *replies: str, protocol: str = "text") -> list[str]:
    """The replies to as many requests by one client, whose server streams in pieces of 7 characters."""
    pieces = [tuple(reply[n : n + 7] for n in range(0, len(reply), 7)) for reply in replies]
    server.then(*[Act(pieces=each, pause=0.002) for each in pieces])
    config = BackboneConfig(kind="openai", model="m", base_url=f"{server.base}/v1", protocol=protocol)
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
        config = BackboneConfig(kind="openai", model="m", base_url=f"{server.base}/v1")
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
        backbone = OpenAiBackbone(BackboneConfig(kind="openai", model="m", base_url=f"{server.base}/v1"))
        (reply,) = backbone.reply([CHAT])
        assert (reply.text, reply.reasoning) == (CODE, DRAFT)
        assert backbone.reply([replace(CHAT, answer=None)])[0].text == CODE


def test_call_that_is_drafted_in_reasoning_is_not_made():
    draft, call = (f'{{"name": "run_experiment", "arguments": {{"code": "{code}"}}}}' for code in ("WRONG", "print(1)"))
    with misbehaving() as server:
        (text,) = asked(server, f"<think>{draft}" + "\n" * 20 + f"</think>{call}" + "\n" * 4000, protocol="tools")
        assert server.streamed < 300, "empty lines after a call end the stream"
    assert "print(1)" in text and "WRONG" not in text
