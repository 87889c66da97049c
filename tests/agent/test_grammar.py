"""The protocol's grammar: what it reads, what it forgives, and that it says so."""

import time

import pytest

from openmaia.agent.tasks.ending import cut
from openmaia.agent.tasks.grammar import parse
from openmaia.agent.tasks.task import load as load_task
from openmaia.core.messages import AnswerFormat

CODE = "tools.display(tools.text2image(['a dog']))"


def fenced(code: str = CODE, mark: str = "python", fence: str = "```") -> str:
    return f"[CODE]:\n{fence}{mark}\n{code}\n{fence}\n"


def test_correct_reply_needs_no_forgiveness():
    parsed = parse(f"[HYPOTHESIS LIST]:\n1. dogs\n2. grass\n\n{fenced()}")
    assert parsed.code == CODE
    assert parsed.hypotheses == ("dogs", "grass")
    assert parsed.description is None
    assert parsed.forgiven == ()


def test_final_answer_by_the_book():
    parsed = parse("[DESCRIPTION]: Dogs, mostly\nfurry ones.\n[LABEL 1]: dog\n[LABEL 2]: fur\n")
    assert parsed.description == "Dogs, mostly furry ones."
    assert parsed.labels == ("dog", "fur")
    assert parsed.forgiven == ()
    assert parsed.code == ""


@pytest.mark.parametrize("mark", ["py", "Python3", "tool_code", ""])
def test_fence_under_another_name_is_forgiven(mark: str):
    parsed = parse(fenced(mark=mark))
    assert parsed.code == CODE
    assert "instead of 'python'" in " ".join(parsed.forgiven)


def test_fence_of_tildes_is_forgiven():
    parsed = parse(fenced(fence="~~~"))
    assert parsed.code == CODE
    assert any("~~~" in what for what in parsed.forgiven)


def test_fence_of_four_ticks_is_read():
    assert parse(fenced(fence="````")).code == CODE


def test_fence_beside_its_heading_is_read():
    assert parse(f"[CODE]: ```python\n{CODE}\n```\n[HYPOTHESIS LIST]:\n1. dogs").code == CODE


def test_unclosed_fence_is_forgiven():
    parsed = parse(f"[CODE]:\n```python\n{CODE}")
    assert parsed.code == CODE
    assert any("never closed" in what for what in parsed.forgiven)


def test_windows_line_ends_are_read():
    parsed = parse(f"[HYPOTHESIS LIST]:\n1. dogs\n{fenced()}".replace("\n", "\r\n"))
    assert parsed.code == CODE
    assert parsed.hypotheses == ("dogs",)


def test_several_blocks_are_one_experiment():
    parsed = parse(f"{fenced('a = 1')} then\n{fenced('b = a')}")
    assert parsed.code.split() == "a = 1 b = a".split()
    assert any("2 code blocks" in what for what in parsed.forgiven)


def test_block_of_another_language_is_no_code():
    parsed = parse("```json\n{}\n```\n" + fenced())
    assert parsed.code == CODE


def test_code_without_a_fence_is_forgiven():
    parsed = parse(f"[CODE]:\n{CODE}\n[HYPOTHESIS LIST]:\n1. dogs")
    assert parsed.code == CODE
    assert parsed.hypotheses == ("dogs",)
    assert any("without a fence" in what for what in parsed.forgiven)


def test_prose_below_the_code_heading_is_not_run():
    assert parse("[CODE]: I will use tools.text2image next.").code == ""


def test_code_without_a_heading_is_read():
    assert parse(f"Let me look.\n```python\n{CODE}\n```").code == CODE


def test_markers_inside_code_are_no_sections():
    parsed = parse(fenced('print("""\n[DESCRIPTION]: x\n[LABEL 1]: y\n""")'))
    assert parsed.description is None
    assert "[DESCRIPTION]: x" in parsed.code


@pytest.mark.parametrize("heading", ["[DESCRIPTION]", "[description]:", "**[DESCRIPTION]:**", "## [DESCRIPTION]:"])
def test_heading_in_another_dress_is_read(heading: str):
    parsed = parse(f"{heading} dogs\n[LABEL 1]: dog")
    assert parsed.description == "dogs"
    assert parsed.labels == ("dog",)


def test_missing_colon_is_forgiven_aloud():
    assert "[DESCRIPTION] without a colon" in parse("[DESCRIPTION] dogs\n[LABEL 1]: dog").forgiven


def test_bold_is_forgiven_aloud():
    assert any("bold" in what for what in parse("**[DESCRIPTION]:** dogs\n[LABEL 1]: dog").forgiven)


@pytest.mark.parametrize("heading", ["[LABEL]:", "[LABEL 1]:", "[LABEL1]:", "[Label  1]:"])
def test_ways_to_write_a_label(heading: str):
    assert parse(f"[DESCRIPTION]: dogs\n{heading} dog").labels == ("dog",)


def test_missing_label_is_replaced_by_the_description():
    parsed = parse("[DESCRIPTION]: dogs")
    assert parsed.labels == ("dogs",)
    assert any("no label" in what for what in parsed.forgiven)


def test_chatter_after_a_label_is_no_part_of_it():
    assert parse("[DESCRIPTION]: dogs\n[LABEL 1]: dog\n\nLet me know whether that helps.").labels == ("dog",)


def test_answer_beside_code_is_read_with_the_code():
    parsed = parse(f"[DESCRIPTION]: dogs\n[LABEL 1]: dog\n{fenced()}")
    assert (parsed.description, parsed.labels, parsed.code) == ("dogs", ("dog",), CODE)


def test_labels_on_one_line_are_separate():
    parsed = parse("[DESCRIPTION]: The unit looks for objects in images. [LABEL 1]: Object [LABEL 2]: None")
    assert parsed.description == "The unit looks for objects in images."
    assert parsed.labels == ("Object",)
    assert "labels on one line" in parsed.forgiven


@pytest.mark.parametrize("written", ["```python {}```", "```py {} ```", "[CODE]: ```python {}```", "```python\n{}```"])
def test_code_block_may_end_or_begin_and_end_on_its_line(written: str):
    parsed = parse(f"I look.\n{written.format(CODE)}\nThen I answer.")
    assert (parsed.code, parsed.description) == (CODE, None)


def test_underscores_of_labels_stay():
    parsed = parse("[DESCRIPTION]: __cars__\n[LABEL_1]: car_window\n[LABEL_2]: a__b [LABEL_3]: __bold__")
    assert (parsed.description, parsed.labels) == ("cars", ("car_window", "a__b", "bold"))


def test_sentence_below_the_hypotheses_is_none():
    parsed = parse("[HYPOTHESIS LIST]:\n1. dogs\n2. fur\nLet me test the boundaries of this selectivity:\n" + fenced())
    assert parsed.hypotheses == ("dogs", "fur")


@pytest.mark.parametrize(
    "written",
    [
        "1. dogs\n2. fur\n\nLet me test this with edge cases:\n- a wolf\n- a toy dog\n",
        "1. dogs\n   - of any size\n   - also drawn\n2. fur\n",
        "- dogs\n- fur\nNext I look at:\n- a wolf\n",
        "* dogs\n* fur\n\nThe exemplars support both.\n",
        "My hypotheses:\ndogs\nfur\nI test them with:\na wolf\n",
        "1. dogs\n\nMost exemplars show one.\n\n2. fur\n",
        "1. dogs\nOn the exemplars I see:\n- a poodle\n2. fur\nI test:\n1. a wolf\n",
        "1. dogs\n2. fur\n\nLet me test them:\n1. generate dogs\n2. generate fur\n3. compare the activations\n",
        "- dogs\n\n  Most exemplars show one.\n\n- fur\n\nNow I measure two images.\n- a wolf\n",
    ],
)
def test_list_of_hypotheses_ends_with_its_last_entry(written: str):
    assert parse(f"[HYPOTHESIS LIST]:\n{written}{fenced()}").hypotheses == ("dogs", "fur")


def test_answer_inside_a_plain_fence_is_read():
    parsed = parse("```\n[DESCRIPTION]: dogs\n[LABEL 1]: dog\n```")
    assert parsed.description == "dogs"
    assert parsed.code == ""


@pytest.mark.parametrize(
    "text", ["", "...", "…", "<...>", "[...]", "to be determined", "(to be determined).", "<what the unit responds to>"]
)
def test_placeholder_is_no_answer(text: str):
    parsed = parse(f"[DESCRIPTION]: {text}\n{fenced()}")
    assert parsed.description is None
    assert parsed.code == CODE


FORM = AnswerFormat(placeholders=("what the unit responds to, in one or two sentences", "a concept"))


@pytest.mark.parametrize(
    "text",
    [
        "<to be determined>",
        "<TBD>",
        "<description>",
        "<in one or two sentences>",
        "<what the unit responds to, in one or two sentences>",
        "<What the unit responds to>",
        "<...>",
    ],
)
def test_text_of_the_form_is_no_answer(text: str):
    assert parse(f"[DESCRIPTION]: {text}\n[LABEL 1]: dog", FORM).description is None


def test_answer_in_the_brackets_of_the_form_counts():
    parsed = parse(
        "[HYPOTHESIS LIST]:\n1. <a concept>\n2. dogs\n\n[DESCRIPTION]: <dogs on grass>.\n[LABEL 1]: <dog>\n[LABEL 2]: <a concept>",
        FORM,
    )
    assert (parsed.description, parsed.labels, parsed.hypotheses) == ("dogs on grass", ("dog",), ("dogs",))
    assert "a text in angle brackets" in parsed.forgiven


def test_form_of_the_shipped_question_is_known():
    shown = load_task("description").answer.placeholders
    assert "what the unit responds to, in one or two sentences" in shown
    assert parse(f"[DESCRIPTION]: <{shown[-1]}>", load_task("description").answer).description is None


@pytest.mark.parametrize(
    "text",
    [
        "NONE",
        "None.",
        "`NONE`",
        "**none**",
        "N/A",
        "NONE\nNothing held up.",
        "NONE. Nothing excites it.",
        "None (noise)",
    ],
)
def test_abstention_has_no_labels(text: str):
    parsed = parse(f"[DESCRIPTION]: {text}\n[LABEL 1]: NONE")
    assert parsed.description == ""
    assert parsed.labels == ()


def test_repeated_label_counts_once():
    assert parse("[DESCRIPTION]: dogs\n[LABEL 1]: dog\n[LABEL 2]: tree\n[LABEL 3]: dog").labels == ("dog", "tree")


@pytest.mark.parametrize(
    "text", ["None. It responds to one thing only", "none (no second concept)", "N/A, one is enough"]
)
def test_label_that_explains_its_absence_is_no_label(text: str):
    assert parse(f"[DESCRIPTION]: dogs\n[LABEL 1]: dog\n[LABEL 2]: {text}").labels == ("dog",)


@pytest.mark.parametrize(
    "text", ["None of the pictures without dogs excite it.", "Nothing but dogs", "none-too-bright dogs"]
)
def test_description_may_begin_with_none(text: str):
    assert parse(f"[DESCRIPTION]: {text}").description == text


def test_last_of_repeated_sections_counts():
    assert parse("[DESCRIPTION]: cats\n[DESCRIPTION]: dogs\n[LABEL 1]: dog").description == "dogs"


@pytest.mark.parametrize("bullet", ["- ", "* ", "• ", "1. ", "1) ", "(1) ", "1: ", "Hypothesis_1: ", "Hypothesis 1: "])
def test_hypotheses_lose_their_bullets(bullet: str):
    assert parse(f"[HYPOTHESIS LIST]:\n{bullet}dogs on grass").hypotheses == ("dogs on grass",)


@pytest.mark.parametrize("heading", ["[HYPOTHESIS LIST]:", "[HYPOTHESES]:", "[HYPOTHESIS]:"])
def test_hypotheses_under_other_headings(heading: str):
    assert parse(f"{heading} 1. dogs\n").hypotheses == ("dogs",)


@pytest.mark.parametrize("nothing", ["-", "—", "...", "/"])
def test_label_without_a_word_is_no_label(nothing: str):
    assert parse(f"[DESCRIPTION]: dogs\n[LABEL 1]: dog\n[LABEL 2]: {nothing}").labels == ("dog",)


@pytest.mark.parametrize(
    ("label", "chosen"),
    [("Not sure.", "NOT SURE"), ("class2", "CLASS2"), ("**TRUE**", "TRUE"), ("CLASS22", ""), ("untrue", "")],
)
def test_choice_is_found_as_a_whole(label: str, chosen: str):
    task = AnswerFormat(choices=("TRUE", "NOT SURE", "CLASS2"))
    if chosen:
        assert parse(f"[DESCRIPTION]: it needs grass\n[LABEL]: {label}", task).labels == (chosen,)
    else:
        assert "is none of TRUE, NOT SURE, CLASS2" in parse(f"[LABEL]: {label}", task).problem


def test_other_tasks_find_their_sections():
    parsed = parse("[REASONING]: it needs grass\n[LABEL]: SPURIOUS\n[BIAS]: none found")
    assert parsed.sections == {"REASONING": "it needs grass", "LABEL": "SPURIOUS", "BIAS": "none found"}


@pytest.mark.parametrize("reply", ["", "   \n", "I am not sure.", "[", "[]", "[CODE]:", "```", "```python", "\x00"])
def test_empty_reply_asks_for_nothing(reply: str):
    parsed = parse(reply)
    assert parsed.code == ""
    assert parsed.description is None


TOKENS = {
    "fences": (
        "`",
        "```",
        "```\n",
        "```python\n",
        "```python ",
        "```python x```\n",
        "~",
        "~~~\n",
        "x ``` ",
        "a ` ` ",
        "```python a b\n",
    ),
    "headings": (
        "[CODE]",
        "[CODE]:",
        "[CODE]:\n",
        "[CODE] ```\n",
        "[HYPOTHESIS LIST]:",
        "[DESCRIPTION]",
        "[DESCRIPTION]:\n",
    ),
    "labels": ("[LABEL 1]:", "[LABEL 1]: a", "a [LABEL 1]: ", "[LABEL ", "[LABEL 1]:\n", "[", "]", " ["),
    "ornaments": ("*", "**", "#", ">", "_", " _", "__ ", "_*", "* [", "# "),
    "blanks": (" ", "  \n", " " * 9 + "\n", "\t", "\n", "\r\n", "\r", "\x0b", "\u2028", "\0"),
    "entries": (
        "-",
        "- ",
        "- x\n\n",
        "1",
        "1.",
        "1.\n",
        "(1",
        "(1.",
        "H1\n",
        "H1: ",
        "Hypothesis 1:",
        "1. x\na:\n",
        "x:\n",
    ),
    "words": ("none", "none\n", "<", "<>", "...", "…", "(to be determined)", "to be determined", "n/a"),
    "code": ("system.", "tools.\n", "f(\n", "(((", "[]", "{", "if 1:\n", "not ", "-x", '"""\n', "\\"),
}
"""What the grammar is made of, to be repeated up to a megabyte."""
AROUND = {
    "behind a fence": "```python{}x",
    "behind a heading": "[CODE]{}x",
    "as code": "[CODE]:\nsystem.\n{}",
    "in a list": "[HYPOTHESIS LIST]:\n1. a\n{}\n2. b",
    "in an answer": "[DESCRIPTION]: a\n[LABEL 1]: {}",
    "on one line": "```python {}```",
    "in a fence": "```\n{}",
    "in a long fence": "`" * 20_000 + "\n{}",
}


def seconds(reply: str) -> float:
    """The CPU time in which a reply is parsed and cut, which does not depend on what else the machine does."""
    began = time.thread_time()
    parse(reply)
    cut(reply, is_turn=True)
    return time.thread_time() - began


@pytest.mark.parametrize("kind", TOKENS)
def test_megabyte_of_a_token_is_read_in_linear_time(kind: str):
    taken = {token: seconds(token * (1_000_000 // len(token))) for token in TOKENS[kind]}
    assert max(taken.values()) < 3, taken  # below 1 s on a machine that does nothing else; quadratic time takes minutes


@pytest.mark.parametrize("around", AROUND)
def test_tokens_are_read_in_linear_time_anywhere(around: str):
    tokens = [token for kind in TOKENS.values() for token in kind]
    taken = {token: seconds(AROUND[around].format(token * (60_000 // len(token)))) for token in tokens}
    assert max(taken.values()) < 2, (
        taken
    )  # 0.1 s; garbage collection of a long test session counts; quadratic time takes longer


@pytest.mark.parametrize("deep", ["system." * 5_000 + "x", "tools.f" + "(" * 5_000, "tools.f(" + "-" * 50_000 + "1)"])
def test_code_nested_too_deeply_is_no_code(deep: str):
    assert parse(f"[CODE]:\n{deep}").code == ""
