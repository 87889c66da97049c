"""Parses replies of models. Common deviations from the format are accepted, and the result lists them."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import zip_longest

from openmaia.core.messages import AnswerFormat

KNOWN = ("HYPOTHESIS LIST", "HYPOTHESES", "HYPOTHESIS", "DESCRIPTION", "REASONING", "BIAS")
"""Headings that are understood in every task, besides [CODE] and the labels."""


@cache
def headings(answer: AnswerFormat) -> re.Pattern[str]:
    """Returns a pattern that finds the headings of sections in a reply, such as `[DESCRIPTION]:`.

    It has the groups `name` and `colon` (which may be empty).
    """
    names = "|".join(map(re.escape, dict.fromkeys(["CODE", *KNOWN, answer.text, answer.decided_by])))
    return re.compile(
        rf"^[ \t#>*_`-]*\[(?P<name>{names}|{re.escape(answer.labels)}S?(?:[ \t_]*\d+)?)\]"
        r"[*_`]*[ \t]*(?P<colon>:?)[*_`]*[ \t]*",
        re.MULTILINE | re.IGNORECASE,
    )


@cache
def inline_labels(answer: AnswerFormat) -> re.Pattern[str]:
    """Returns a pattern that matches the space before a label's heading (`[LABEL 2]:`) in the middle of a line."""
    return re.compile(
        rf"(?<=[^\s#>*_`-])[ \t]+(?=\[{re.escape(answer.labels)}[ \t_]*\d*\][*_`]*[ \t]*:)", re.IGNORECASE
    )


@cache
def cut_heading(answer: AnswerFormat) -> re.Pattern[str]:
    """Returns a pattern that matches an incomplete label heading, such as `[LABEL 2`, at the end of a reply.

    The colon, and perhaps the bracket, are missing because the reply was cut there.
    """
    return re.compile(rf"\s\[{re.escape(answer.labels)}[ \t_]*+\d*+\]?+\s*+\Z", re.IGNORECASE)


FENCE = re.compile(
    r"^(?:[ \t#>*_-]*\[CODE\][*_]*+[ \t]*+:?[*_]*+)?[ \t]*+(?P<fence>`{3,99}+|~{3,99}+)[ \t]*+(?P<language>[\w+.-]*+)[^\n]*+\n",
    re.MULTILINE | re.IGNORECASE,
)
"""Matches the first line of a code block: the fence, the language, and perhaps the heading [CODE] before them. The
length of the fence is limited, because other patterns are built from it."""
ONE_LINE = re.compile(
    r"^(?P<before>[ \t]*+(?:\[CODE\][ \t]*+:?[ \t]*+)?```(?:python|py))[ \t]++(?P<code>\S(?:[^\n]*?\S)?)[ \t]*+```[ \t]*$",
    re.MULTILINE | re.IGNORECASE,
)
"""Matches a code block on a single line."""
CALL = re.compile(r"\b(?:system|tools)\.")
"""Matches a use of `system` or `tools`, the objects that the agent's code can call."""
DASHES = "-*•"
PLACEHOLDER = re.compile(r"^(?:[\s.…<>\[\]]*|\(?to be determined\)?)\.?$", re.IGNORECASE)
"""Matches a text that only marks where something is to be filled in, such as "…" or "to be determined"."""
UNFILLED = ("to be determined", "tbd", "description", "label", "concept", "answer")
"""Texts that, in angle brackets, only mark where something is to be filled in, such as <label>."""
BRACKETED = re.compile(r"^<(?P<text>[^<>]*)>\.?$")
"""Matches a text that is wholly in angle brackets: a placeholder that the question shows, or a text that the agent
wrote in its place without removing the brackets."""
BULLET = re.compile(r"^(?:[-*•]|\(?\d+[.):]|Hypothesis[_ ]?\d+\s*:|(?=H\d+\b))\s*", re.IGNORECASE)
"""Matches the bullet or number before an entry of a hypothesis list. An id such as "H1" marks an entry too, but belongs
to its text."""
NUMBER = re.compile(r"(?:Hypothesis[_ ]?|[(H])?(\d{1,6})\b", re.IGNORECASE)
"""Matches the number at the start of an entry of a hypothesis list."""
ABSTENTION = re.compile(r"^\W*(?:(?:none|nothing|n/a|unknown)\W*$|(?:none|n/a)\s*(?:[.,:;(–—]|-\s))", re.IGNORECASE)
"""Matches the text of an abstention: a word such as "none" alone, or with an explanation after it ("NONE. No image
excites it"), but not "None of the dogs …"."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedReply:
    """What one reply of the agent contains: an experiment (code), hypotheses, an answer."""

    code: str
    """The experiment; "" if there is none."""
    hypotheses: tuple[str, ...]
    """The entries of the hypothesis list, with their ids if they have any, such as "H1: dogs"."""
    description: str | None
    """The description in the answer; "" if the agent abstains, None if the reply holds no answer. A reply may hold both
    an experiment and an answer."""
    labels: tuple[str, ...]
    """The labels (short phrases) of the answer; the description if the answer has none. Empty without an answer and for
    an abstention."""
    sections: dict[str, str]
    """The text of each section, by heading."""
    forgiven: tuple[str, ...]
    """The deviations from the format that were accepted, in words."""
    problem: str = ""
    """Tells the agent why its answer is invalid. Empty for a valid answer, and for a reply without an answer."""


DESCRIBED = AnswerFormat()


def parse(reply: str, answer: AnswerFormat = DESCRIBED) -> ParsedReply:
    """Parses one reply of the agent, whose answer has the format `answer`. It never raises an exception."""
    forgiven: list[str] = []
    code, prose = _take_code(reply.replace("\r\n", "\n"), forgiven, answer)
    sections = _sections(prose, forgiven, answer)
    labels = [text.splitlines()[0] for name, text in sections.items() if name.startswith(answer.labels) and text]
    if not answer.choices:
        labels = [_unbracketed(label, forgiven) for label in labels if not _is_placeholder(label, answer)]
        labels = [label for label in labels if not ABSTENTION.match(label) and re.search(r"\w", label)]
    labels, problem = _chosen(labels, answer)
    description = _description(sections, labels, forgiven, answer)
    if description and not labels:
        forgiven.append("no label: the description serves as one")
        labels = [description]
    listed = sections.get("HYPOTHESIS LIST") or sections.get("HYPOTHESES") or sections.get("HYPOTHESIS") or ""
    return ParsedReply(
        code=code,
        hypotheses=tuple(entry for entry in _items(listed) if not _is_placeholder(entry, answer)),
        description=description,
        labels=tuple(dict.fromkeys(labels)) if description else (),
        sections=sections,
        forgiven=tuple(dict.fromkeys(forgiven)),
        problem="" if description is not None or code else problem,
    )


def _chosen(labels: list[str], answer: AnswerFormat) -> tuple[list[str], str]:
    """Selects the label that is a valid choice.

    Returns:
        A list with the first valid choice, or with all labels if the format allows any; and an error message, which is
        empty unless there are labels and none of them is valid.
    """
    if not answer.choices:
        return labels, ""
    named = [
        [c for c in answer.choices if re.search(rf"(?<!\w){re.escape(c)}(?!\w)", label.upper())] for label in labels
    ]
    chosen = [choices[0] for choices in named if len(choices) == 1]
    if labels and not chosen:
        return [], f"[{answer.labels}]: {labels[0][:60]!r} is none of {', '.join(answer.choices)}"
    return chosen[:1], ""


def _take_code(reply: str, forgiven: list[str], answer: AnswerFormat) -> tuple[str, str]:
    """Returns all code blocks, joined in their order, and the prose around them."""
    blocks: list[str] = []
    prose: list[str] = []
    position = 0
    reply, opened = ONE_LINE.subn(r"\g<before>\n\g<code>\n```", reply)
    if opened:
        forgiven.append("a code block on one line")
    while opening := FENCE.search(reply, position):
        prose.append(reply[position : opening.start()])
        closing = _closing(opening["fence"]).search(reply, opening.end())
        end = closing.start() if closing else len(reply)
        block = reply[opening.end() : end]
        language = opening["language"].lower()
        if language not in ("python", "py", "python3", "tool_code", ""):
            prose.append(block)
        elif language == "" and headings(answer).match(block):
            prose.append(block)
            forgiven.append("an answer inside a fence")
        elif language == "" and not closing and not (CALL.search(block) and compiles(block)):
            prose.append(block)  # a single fence, such as one that closes a block that was never opened
        else:
            blocks.append(block)
            if language != "python":
                forgiven.append(f"a fence marked {language!r} instead of 'python'")
        if opening["fence"][0] == "~":
            forgiven.append("a fence of ~~~ instead of ```")
        if not closing:
            forgiven.append("a fence that was never closed")
        position = closing.end() if closing else len(reply)
    prose.append(reply[position:])
    if len(blocks) > 1:
        forgiven.append(f"{len(blocks)} code blocks: run as one experiment, in order")
    text = "".join(prose)
    if not blocks:
        return _unfenced(text, forgiven, answer), text
    return "\n".join(blocks).strip("\n"), text


@lru_cache(maxsize=64)
def _closing(fence: str) -> re.Pattern[str]:
    """Returns a pattern that matches the closing fence of a code block: the fence alone on a line.

    If the fence is the usual one of three backticks, it may also be at the end of a line of code.
    """
    start = r"(?:^|(?<=[^\s`]))" if fence == "```" else "^"
    return re.compile(rf"{start}[ \t]*{re.escape(fence)}[ \t]*$", re.MULTILINE)


def _unfenced(prose: str, forgiven: list[str], answer: AnswerFormat) -> str:
    """Returns the lines after [CODE] if they compile as Python and call a tool, and "" otherwise."""
    opening = re.search(r"^[ \t*]*\[CODE\][*]*[ \t]*:?", prose, re.MULTILINE | re.IGNORECASE)
    if not opening:
        return ""
    following = headings(answer).search(prose, opening.end())
    code = prose[opening.end() : following.start() if following else None].strip()
    if not (CALL.search(code) and compiles(code)):
        return ""
    forgiven.append("code without a fence")
    return code


def compiles(code: str) -> bool:
    """Returns whether a text is valid Python. It never raises an exception."""
    try:
        compile(code, "reply", "exec")
    except (SyntaxError, ValueError, RecursionError, MemoryError, OverflowError):  # the last three: nested too deeply
        return False
    return True


def _sections(prose: str, forgiven: list[str], answer: AnswerFormat) -> dict[str, str]:
    """Returns the text of each section by heading. Of several sections with the same heading, the last one counts, as
    in the published code of MAIA."""
    texts: dict[str, str] = {}
    if answer.decided_by != answer.labels:
        prose, moved = inline_labels(answer).subn("\n", cut_heading(answer).sub("", prose))
        if moved:
            forgiven.append("labels on one line")
    matches = list(headings(answer).finditer(prose))
    for match, following in zip_longest(matches, matches[1:]):
        name = re.sub(r"[ \t]+", " ", match["name"].upper())
        if name != "CODE" and not match["colon"]:
            forgiven.append(f"[{name}] without a colon")
        if "*" in match[0] or "#" in match[0]:
            forgiven.append(f"[{name}] in bold or as a heading")
        text = prose[match.end() : following.start() if following else None]
        texts[name] = re.sub(r"\*{2,}|(?<!\w)_{2,}|_{2,}(?!\w)", "", text).strip().strip("`").strip()
    return texts


def _is_placeholder(text: str, answer: AnswerFormat) -> bool:
    """Returns whether a text only marks where something is to be filled in.

    Examples are "…", and a text in angle brackets that is part of a placeholder in the question.
    """
    if PLACEHOLDER.match(text):
        return True
    inside = BRACKETED.match(text)
    if not inside:
        return False
    words = inside["text"].casefold().strip(" .…")
    return words in UNFILLED or any(words in shown.casefold() for shown in answer.placeholders or (words,))


def _unbracketed(text: str, forgiven: list[str]) -> str:
    """Returns a text without the angle brackets around it."""
    inside = BRACKETED.match(text)
    if inside:
        forgiven.append("a text in angle brackets")
    return inside["text"].strip() if inside else text


def _description(sections: dict[str, str], labels: list[str], forgiven: list[str], answer: AnswerFormat) -> str | None:
    """Returns the description of the answer in a reply.

    Args:
        sections: The text of each section of the reply, by heading.
        labels: The valid labels of the reply.
        forgiven: Receives deviations from the format.
        answer: The format of answers.

    Returns:
        The description on one line. If labels decide what an answer is and there is no text, the first label. "" if
        the agent abstains. None if the reply is no answer, so that the investigation goes on.
    """
    text = sections.get(answer.text, "")
    if answer.decided_by == answer.labels:
        return (" ".join(text.split()) or labels[0]) if labels else None
    if not text or _is_placeholder(text, answer):
        return None
    text = _unbracketed(text, forgiven)
    return "" if ABSTENTION.match(text.splitlines()[0]) else " ".join(text.split())


def _following_numbers(lines: Sequence[str]) -> list[str]:
    """Returns, for each line, the number of the next numbered entry after it; empty if there is none."""
    found, number = list[str](), ""
    for line in reversed(lines):
        found.append(number)
        if (match := NUMBER.match(line)) and BULLET.match(line):
            number = match[1]
    return found[::-1]


def _items(text: str) -> list[str]:
    """Returns the entries of a list without their bullets. In a text without bullets, every line is an entry.

    A line after an entry that ends with a colon ("Let me test:") ends the list, unless an entry with the next number
    follows. A list with dashes also ends at a paragraph that is not indented. Other lines without a bullet, and lines
    with dashes in a numbered list, are details of an entry and are skipped.
    """
    lines = [line.strip() for line in text.splitlines()]
    bullets = [line for line in lines if BULLET.match(line)]
    is_numbered = bool(bullets) and bullets[0][0] not in DASHES
    following = _following_numbers(lines)
    entries: list[str] = []
    for index, (line, whole) in enumerate(zip(lines, text.splitlines(), strict=True)):
        is_entry = bool(BULLET.match(line)) if bullets else bool(line) and not line.endswith(":")
        if entries and line and not is_entry:
            is_paragraph = bool(bullets) and not is_numbered and not lines[index - 1] and not whole[0].isspace()
            goes_on = is_numbered and following[index] == str(len(entries) + 1)
            if is_paragraph or (line.endswith(":") and not goes_on):
                break
        if is_entry and not (is_numbered and line[0] in DASHES):
            entries.append(BULLET.sub("", line))
    return [entry for entry in entries if entry]
