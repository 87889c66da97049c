"""Parses replies. Common deviations from the format are accepted, and the result lists them."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import zip_longest

from openmaia.core.messages import AnswerFormat

_KNOWN = ("HYPOTHESIS LIST", "HYPOTHESES", "HYPOTHESIS", "DESCRIPTION", "REASONING", "BIAS")
"""Headings that every task knows, besides [CODE] and the labels."""


@cache
def headings(answer: AnswerFormat) -> re.Pattern[str]:
    """Returns a pattern for the headings of sections, such as `[DESCRIPTION]:`, with the groups `name` and `colon`
    (which may be empty).
    """
    names = "|".join(
        map(re.escape, dict.fromkeys(filter(None, ["CODE", *_KNOWN, answer.text, answer.decided_by, answer.effect])))
    )
    return re.compile(
        rf"^[ \t#>*_`-]*\[(?P<name>{names}|{re.escape(answer.labels)}S?(?:[ \t_]*\d+)?)\]"
        r"[*_`]*[ \t]*(?P<colon>:?)[*_`]*[ \t]*",
        re.MULTILINE | re.IGNORECASE,
    )


@cache
def make_inline_label_pattern(answer: AnswerFormat) -> re.Pattern[str]:
    """Returns a pattern for the space before a label's heading (`[LABEL 2]:`) in the middle of a line."""
    return re.compile(
        rf"(?<=[^\s#>*_`-])[ \t]+(?=\[{re.escape(answer.labels)}[ \t_]*\d*\][*_`]*[ \t]*:)", re.IGNORECASE
    )


@cache
def make_cut_heading_pattern(answer: AnswerFormat) -> re.Pattern[str]:
    """Returns a pattern for a label's heading at the end of a reply that was cut, without the colon and perhaps the
    bracket.
    """
    return re.compile(rf"\s\[{re.escape(answer.labels)}[ \t_]*+\d*+\]?+\s*+\Z", re.IGNORECASE)


FENCE = re.compile(
    r"^(?:[ \t#>*_-]*\[CODE\][*_]*+[ \t]*+:?[*_]*+)?[ \t]*+(?P<fence>`{3,99}+|~{3,99}+)[ \t]*+(?P<language>[\w+.-]*+)[^\n]*+\n",
    re.MULTILINE | re.IGNORECASE,
)
"""The first line of a code block, perhaps with [CODE] before it. The length of the fence is limited, because other
patterns are built from it."""
_ONE_LINE = re.compile(
    r"^(?P<before>[ \t]*+(?:\[CODE\][ \t]*+:?[ \t]*+)?```(?:python|py))[ \t]++(?P<code>\S(?:[^\n]*?\S)?)[ \t]*+```[ \t]*$",
    re.MULTILINE | re.IGNORECASE,
)
CALL = re.compile(r"\b(?:system|tools)\.")
_DASHES = "-*•"
_PLACEHOLDER = re.compile(r"^(?:[\s.…<>\[\]]*|\(?to be determined\)?)\.?$", re.IGNORECASE)
"""A text that only marks where something is to be filled in."""
_UNFILLED = ("to be determined", "tbd", "description", "label", "concept", "answer")
"""The same in angle brackets, such as <label>."""
_BRACKETED = re.compile(r"^<(?P<text>[^<>]*)>\.?$")
"""A placeholder of the question, or a text that the agent wrote in its place without removing the brackets."""
_BULLET = re.compile(r"^(?:[-*•]|\(?\d+[.):]|Hypothesis[_ ]?\d+\s*:|(?=H\d+\b))\s*", re.IGNORECASE)
"""An id such as "H1" marks an entry too, but belongs to its text."""
_NUMBER = re.compile(r"(?:Hypothesis[_ ]?|[(H])?(\d{1,6})\b", re.IGNORECASE)
_ABSTENTION = re.compile(r"^\W*(?:(?:none|nothing|n/a|unknown)\W*$|(?:none|n/a)\s*(?:[.,:;(–—]|-\s))", re.IGNORECASE)
"""A word such as "none" alone, or with an explanation ("NONE. No image excites it"), but not "None of the dogs …"."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedReply:
    """A reply may hold both an experiment and an answer."""

    code: str
    hypotheses: tuple[str, ...]
    """With their ids if they have any, such as "H1: dogs"."""
    description: str | None
    """Empty for an abstention, None without an answer."""
    labels: tuple[str, ...]
    """The description if the answer has none; empty without an answer and for an abstention."""
    sections: dict[str, str]
    effect: str
    """The section with the classes that the unit raises, on one line with its lines separated by semicolons. Empty without
    an answer, for an abstention, and if there is no such section."""
    forgiven: tuple[str, ...]
    problem: str = ""
    """Tells the agent why its answer is invalid. Empty for a valid answer, and without one."""


DESCRIBED = AnswerFormat()


def parse(reply: str, answer: AnswerFormat = DESCRIBED) -> ParsedReply:
    """Parses one reply. Never raises an exception."""
    forgiven: list[str] = []
    code, prose = _take_code(reply.replace("\r\n", "\n"), forgiven, answer)
    sections = _sections(prose, forgiven, answer)
    labels = [text.splitlines()[0] for name, text in sections.items() if name.startswith(answer.labels) and text]
    if not answer.choices:
        labels = [_unbracketed(label, forgiven) for label in labels if not _is_placeholder(label, answer)]
        labels = [label for label in labels if not _ABSTENTION.match(label) and re.search(r"\w", label)]
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
        effect=_effect(sections, answer) if description else "",
        forgiven=tuple(dict.fromkeys(forgiven)),
        problem="" if description is not None or code else problem,
    )


def _chosen(labels: list[str], answer: AnswerFormat) -> tuple[list[str], str]:
    """Returns the first valid choice (all labels if the format allows any), and an error message if no label is one."""
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
    reply, opened = _ONE_LINE.subn(r"\g<before>\n\g<code>\n```", reply)
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
    # Models put the usual fence at the end of a line of code, too.
    start = r"(?:^|(?<=[^\s`]))" if fence == "```" else "^"
    return re.compile(rf"{start}[ \t]*{re.escape(fence)}[ \t]*$", re.MULTILINE)


def _unfenced(prose: str, forgiven: list[str], answer: AnswerFormat) -> str:
    """Returns the lines after [CODE] if they compile as Python and call a tool."""
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
    """Returns whether a text is valid Python. Never raises an exception."""
    try:
        compile(code, "reply", "exec")
    except (SyntaxError, ValueError, RecursionError, MemoryError, OverflowError):  # the last three: nested too deeply
        return False
    return True


def _sections(prose: str, forgiven: list[str], answer: AnswerFormat) -> dict[str, str]:
    texts: dict[str, str] = {}
    if answer.decided_by != answer.labels:
        prose, moved = make_inline_label_pattern(answer).subn("\n", make_cut_heading_pattern(answer).sub("", prose))
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
        # The last of several sections with the same heading counts, as in the published code of MAIA.
        texts[name] = re.sub(r"\*{2,}|(?<!\w)_{2,}|_{2,}(?!\w)", "", text).strip().strip("`").strip()
    return texts


def _is_placeholder(text: str, answer: AnswerFormat) -> bool:
    if _PLACEHOLDER.match(text):
        return True
    inside = _BRACKETED.match(text)
    if not inside:
        return False
    words = inside["text"].casefold().strip(" .…")
    return words in _UNFILLED or any(words in shown.casefold() for shown in answer.placeholders or (words,))


def _unbracketed(text: str, forgiven: list[str]) -> str:
    inside = _BRACKETED.match(text)
    if inside:
        forgiven.append("a text in angle brackets")
    return inside["text"].strip() if inside else text


def _description(sections: dict[str, str], labels: list[str], forgiven: list[str], answer: AnswerFormat) -> str | None:
    """Returns the description on one line; empty for an abstention, None if the reply is no answer."""
    text = sections.get(answer.text, "")
    if answer.decided_by == answer.labels:
        return (" ".join(text.split()) or labels[0]) if labels else None
    if not text or _is_placeholder(text, answer):
        return None
    text = _unbracketed(text, forgiven)
    return "" if _ABSTENTION.match(text.splitlines()[0]) else " ".join(text.split())


def _effect(sections: dict[str, str], answer: AnswerFormat) -> str:
    lines = [line.strip().strip(_DASHES + ";").strip() for line in sections.get(answer.effect, "").splitlines()]
    text = "; ".join(filter(None, lines))
    return "" if _is_placeholder(text, answer) or _ABSTENTION.match(text) else text


def _following_numbers(lines: Sequence[str]) -> list[str]:
    """Returns, for each line, the number of the next numbered entry after it; empty if there is none."""
    found, number = list[str](), ""
    for line in reversed(lines):
        found.append(number)
        if (match := _NUMBER.match(line)) and _BULLET.match(line):
            number = match[1]
    return found[::-1]


def _items(text: str) -> list[str]:
    """Returns the entries of a list without their bullets. In a text without bullets, every line is an entry.

    A line after an entry that ends with a colon ("Let me test:") ends the list, unless an entry with the next number
    follows. A list with dashes also ends at a paragraph that is not indented. Other lines without a bullet, and lines
    with dashes in a numbered list, are details of an entry and are skipped.
    """
    lines = [line.strip() for line in text.splitlines()]
    bullets = [line for line in lines if _BULLET.match(line)]
    is_numbered = bool(bullets) and bullets[0][0] not in _DASHES
    following = _following_numbers(lines)
    entries: list[str] = []
    for index, (line, whole) in enumerate(zip(lines, text.splitlines(), strict=True)):
        is_entry = bool(_BULLET.match(line)) if bullets else bool(line) and not line.endswith(":")
        if entries and line and not is_entry:
            is_paragraph = bool(bullets) and not is_numbered and not lines[index - 1] and not whole[0].isspace()
            goes_on = is_numbered and following[index] == str(len(entries) + 1)
            if is_paragraph or (line.endswith(":") and not goes_on):
                break
        if is_entry and not (is_numbered and line[0] in _DASHES):
            entries.append(_BULLET.sub("", line))
    return [entry for entry in entries if entry]
