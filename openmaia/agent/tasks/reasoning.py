"""Separates the reasoning of a model from its reply, where both are in one text."""

import re
from bisect import bisect
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from operator import itemgetter

from openmaia.agent.tasks.grammar import compiles

_NAME = r"(?:\w+[:_]|ant)?(?:think|thinking|thoughts?|reasoning|reflection|scratchpad|analysis)(?::[\w-]+)?[ ]?"
_TO_MESSAGE = r"[^\n]{0,200}?<\|message\|>"
_TAGS = (
    (rf"(?i:<{_NAME}>)", rf"(?i:</{_NAME}>)"),  # DeepSeek, Qwen, GLM, Kimi, MiniMax, Seed and others
    (r"\[THINK\]", r"\[/THINK\]"),  # Magistral
    (r"◁think▷", r"◁/think▷"),  # Kimi-VL
    (r"<\|START_THINKING\|>", r"<\|END_THINKING\|>"),  # Cohere
    (r"<\|begin_of_thought\|>", r"<\|end_of_thought\|>"),
    (r"<\|think(?:ing)?\|>", r"<\|/think(?:ing)?\|>"),
    (r"<unused94>(?:thought)?", r"<unused95>"),  # MedGemma
    (r"<\|channel>thought", r"<channel\|>"),  # Gemma 4
    (rf"(?:<\|start\|>assistant)?<\|channel\|>(?:analysis|commentary){_TO_MESSAGE}",  # gpt-oss
     rf"(?:<\|end\|>\s*)?(?:<\|start\|>assistant)?<\|channel\|>final{_TO_MESSAGE}"),
)  # fmt: skip
"""The marks at the start and at the end of reasoning. The one at the start may stand in the prompt."""
_WORDS = (
    (r"\Aanalysis(?=[A-Z])", r"assistantfinal"),  # gpt-oss, after the server has removed the special tokens
    (r"\A\s*Here(?: i|')s my thought process:", r"Here(?: i|')s my response:"),  # Granite
)
"""Marks that are words. The second has no meaning without the first."""

_MARK = re.compile("|".join(f"(?P<o{n}>{start})|(?P<c{n}>{end})" for n, (start, end) in enumerate((*_TAGS, *_WORDS))))
"""The name of a group is `o` or `c`, for opening or closing, and the index of the pair."""
_OPENING = re.compile("|".join(start for start, _ in _TAGS))
_BLOCK = re.compile(
    r"^[^\n`~]*(?P<fence>`{3,99}+|~{3,99}+)[^\n]*\n(?P<code>.*?)^[ \t]*(?P=fence)[ \t]*$", re.MULTILINE | re.DOTALL
)
_FRAME = re.compile(
    r"\A\s*(?:<\|START_RESPONSE\|>|<(?:answer|response|output)>)"
    r"|\s*(?:<\|(?:end|return|call|END_RESPONSE)\|>|</(?:answer|response|output)>)\s*\Z"
)
"""The marks around the reply that some models write after their reasoning."""
_BOX = re.compile(r"<\|(?:begin|end)_of_box\|>")
"""The marks that GLM-4.6V writes around its answers, or around all of a reply."""
_HEADING = re.compile(r"[ \t#>*_-]*\[[A-Z][A-Z ]*\d*\]")
_CONTEXT = 300
"""Characters around a mark that decide whether it is mentioned or used."""
ANY = "any"


@dataclass(frozen=True, slots=True)
class Separated:
    """The text of a model in two parts."""

    reasoning: str
    text: str
    """The reply. Empty if the text ends before the reasoning does."""
    is_unannounced: bool = False
    """Whether the text ends reasoning that it does not begin, because the prompt does."""


def separate(text: str, *, is_open: bool = False) -> Separated:
    """Separates the reasoning in a text from the reply. A text without reasoning is returned unchanged, except that the marks of
    GLM's boxes are left out.

    A mark is ignored in Python code, between quotes and in the middle of a sentence, because a reply may speak of it;
    one at the start of reasoning counts only at the start of a line. `is_open` says that the text begins inside of
    reasoning.
    """
    text = _BOX.sub("", text)
    reasoning, reply = list[str](), list[str]()
    position, is_unannounced = 0, False
    inside = ANY if is_open else ""
    opening: re.Match[str] | None = None
    first, last = len(text) - len(text.lstrip()), len(text.rstrip())
    for mark in _marks(text):
        name = mark.lastgroup or ""
        kind, pair, is_tag = name[:1], name[1:], int(name[1:]) < len(_TAGS)
        if kind == "o":
            if mark.start() <= first or (not inside and _begins(text, mark)):
                reply.append(text[position : mark.start()])
                inside, opening, position = pair, mark, mark.end()
        elif inside == pair or (inside == ANY and is_tag):
            is_unannounced |= inside == ANY
            reasoning.append(text[position : mark.start()])
            inside, position = "", mark.end()
        elif not inside and is_tag and not _is_mentioned(text, mark):
            if reasoning and mark.end() >= last:  # some models write the mark a second time, after the reply
                reply.append(text[position : mark.start()])
                position = len(text)
                continue
            is_unannounced = True
            reasoning += [*reply, text[position : mark.start()]]
            reply, position = [], mark.end()
    if not inside or (opening and opening.start() > first and not _stands_alone(text, opening)):
        reply.append(text[opening.start() if inside and opening else position :])
    else:
        reasoning.append(text[position:])
    if not reasoning:
        return Separated("", text)
    thoughts = "\n\n".join(part.strip() for part in reasoning if part.strip())
    return Separated(thoughts, _FRAME.sub("", "".join(reply)).lstrip(), is_unannounced)


def ends_inside(prompt: str) -> bool:
    """Returns whether the reply to a prompt begins inside of reasoning."""
    return re.search(rf"(?:{'|'.join(start for start, _ in _TAGS)})\s*\Z", prompt) is not None


def has_mark(tokens: Iterable[str]) -> bool:
    """Returns whether a mark consists of one of the special tokens of a model, which are not shown by default."""
    return any(_MARK.search(token) or token in ("<|channel|>", "<|channel>") for token in tokens)


def _marks(text: str) -> Iterator[re.Match[str]]:
    """Yields the marks outside of Python code and quotes."""
    code: list[tuple[int, int]] | None = None
    for mark in _MARK.finditer(text):
        if code is None:
            # A fence that was left open in the reasoning seems to end with the reply's own block. Both do not compile.
            code = [block.span() for block in _BLOCK.finditer(text) if compiles(block["code"])]
        block = bisect(code, mark.start(), key=itemgetter(0)) - 1
        if not (block >= 0 and mark.start() < code[block][1]) and not _is_quoted(*_around(text, mark)):
            yield mark


def _around(text: str, mark: re.Match[str]) -> tuple[str, str]:
    """Returns what stands before and after a mark in its line."""
    start, end = mark.span()
    return text[max(start - _CONTEXT, 0) : start].rpartition("\n")[2], text[end : end + _CONTEXT].partition("\n")[0]


def _is_quoted(before: str, after: str) -> bool:
    if any(before.count(quote) % 2 and quote in after for quote in '"`'):
        return True
    is_first = re.search(r"(?:^|[\s\[(,=:])['‘“«]$", before) and re.search("['’”»]", after)
    return bool(is_first) or (after[:1] == "'" and "'" in before)


def _begins(text: str, mark: re.Match[str]) -> bool:
    """Whether reasoning may begin at a mark: at the start of a line, and for special tokens everywhere."""
    return mark[0].startswith("<|") or not _around(text, mark)[0].strip()


def _stands_alone(text: str, mark: re.Match[str]) -> bool:
    """Whether a mark begins reasoning even if no mark ends it."""
    return mark[0].startswith("<|") or not "".join(_around(text, mark)).strip()


def _is_mentioned(text: str, mark: re.Match[str]) -> bool:
    """Whether a sentence speaks of a mark that would end reasoning."""
    before, after = _around(text, mark)
    if (after[:1] and after[0] in "'\"`”’*).,;!") or _OPENING.search(before):
        return True
    follows_word = bool(re.search(r"(?:[^\s.!?]|^[ \t]*\d+\.)[ \t]+$", before))
    return follows_word and (bool(re.match(r"[ \t.,;:!?)]*\w", after)) or _HEADING.match(before) is not None)
