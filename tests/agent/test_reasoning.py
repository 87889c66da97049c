"""Reasoning in the text of a model: what is separated from the reply, and what stays in it."""

import pytest

from openmaia.agent.tasks.reasoning import ends_inside, separate

CODE = "[CODE]:\n```python\nprint(system.call_neuron(tools.text2image(['a dog'])))\n```\n"
DRAFT = "Maybe\n```python\nprint(system.call_neuron(tools.text2image(['WRONG'])))\n```\nno.\n"
UNFENCED = "Maybe\n```python\nprint(system.call_neuron(tools.text2image(['WRONG'])))\nno.\n"
HARMONY = ("<|channel|>analysis<|message|>", "<|end|><|start|>assistant<|channel|>final<|message|>")
MARKS = [
    ("<think>", "</think>"), ("<thinking>", "</thinking>"), ("<Thought>", "</Thought>"), ("<seed:think>", "</seed:think>"),
    ("<think >", "</think >"), ("<ernie_think>", "</ernie_think>"), ("<|think|>", "<|/think|>"),
    ("<unused94>thought\n", "<unused95>"), ("[THINK]", "[/THINK]"), ("◁think▷", "◁/think▷"), ("<|START_THINKING|>", "<|END_THINKING|>"),
    ("<|channel>thought\n", "<channel|>"), HARMONY,
]  # fmt: skip


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


def test_mark_after_the_reply_is_left_out():
    assert separate(f"<think>x</think>\n{CODE}</think>\n").text == CODE


@pytest.mark.parametrize(
    "text",
    [
        "[DESCRIPTION]: text like <think>…</think>\n[LABEL 1]: <think>x</think>\n",
        f"It likes <think> and </think>.\n{CODE}",
        f"The tag is **</think>**, or </think>.\n{CODE}",
    ],
)
def test_reply_may_speak_of_both_marks_in_a_line(text: str):
    assert separate(text).text == text


@pytest.mark.parametrize(("start", "end"), [("<answer>", "</answer>"), ("<|START_RESPONSE|>", "<|END_RESPONSE|>")])
def test_marks_around_the_reply_are_left_out(start: str, end: str):
    assert separate(f"<think>x</think>\n{start}{CODE}{end}").text == CODE.rstrip()


@pytest.mark.parametrize(
    "text", ["{}[DESCRIPTION]: dogs{}", "[DESCRIPTION]: {}dogs{}", "<think>Dogs?</think>\n{}[DESCRIPTION]: dogs{}"]
)
def test_marks_of_a_box_are_left_out(text: str):
    """GLM-4.6V writes them around an answer, or around all of a reply."""
    assert separate(text.format("<|begin_of_box|>", "<|end_of_box|>")).text == "[DESCRIPTION]: dogs"
