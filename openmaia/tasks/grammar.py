"""Reads what a model wrote. It forgives what models really write, and says what it forgave."""

import re
from dataclasses import dataclass
from functools import cache
from itertools import zip_longest

KNOWN = ("HYPOTHESIS LIST", "HYPOTHESES", "HYPOTHESIS", "DESCRIPTION", "REASONING", "BIAS")
"""Headings that are understood in every task, besides [CODE] and the labels."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Which sections a final answer has.

    text: the section that becomes the description. labels: the section, also numbered, that holds a label. decided_by: the
    one of the two that ends the investigation. choices: the only labels that count, in capitals; empty: any.
    """

    text: str = "DESCRIPTION"
    labels: str = "LABEL"
    decided_by: str = "DESCRIPTION"
    choices: tuple[str, ...] = ()


@cache
def headings(answer: Answer) -> re.Pattern[str]:
    """Finds the headings of sections: `name`, and `colon` where there is one."""
    names = "|".join(map(re.escape, dict.fromkeys(["CODE", *KNOWN, answer.text, answer.decided_by])))
    return re.compile(
        rf"^[ \t#>*_`-]*\[(?P<name>{names}|{re.escape(answer.labels)}S?(?:[ \t]*\d+)?)\]"
        r"[*_`]*[ \t]*(?P<colon>:?)[*_`]*[ \t]*",
        re.MULTILINE | re.IGNORECASE,
    )


FENCE = re.compile(
    r"^(?:[ \t#>*_-]*\[CODE\][*_]*[ \t]*:?[*_]*)?[ \t]*(?P<fence>```+|~~~+)[ \t]*(?P<language>[\w+.-]*)[^\n]*\n",
    re.MULTILINE | re.IGNORECASE,
)
"""Also where it opens on the line of its heading."""
ABSTENTION = re.compile(r"^\W*(none|n/a|unknown)\W*$", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Parsed:
    """code: "" for no experiment. description: None while there is no answer, "" where the agent abstained. problem: what
    keeps an attempted answer from being one, to be told to the agent."""

    code: str
    hypotheses: tuple[str, ...]
    description: str | None
    labels: tuple[str, ...]
    sections: dict[str, str]
    forgiven: tuple[str, ...]
    problem: str = ""


DESCRIBED = Answer()


def parse(reply: str, answer: Answer = DESCRIBED) -> Parsed:
    forgiven: list[str] = []
    code, prose = _take_code(reply.replace("\r\n", "\n"), forgiven, answer)
    sections = _sections(prose, forgiven, answer)
    labels = [text.splitlines()[0] for name, text in sections.items() if name.startswith(answer.labels) and text]
    labels, problem = _chosen(labels, answer)
    description = _description(sections, labels, answer)
    if description and not labels:
        forgiven.append("no label: the description serves as one")
        labels = [description]
    if description is not None and code:
        forgiven.append(
            "a description beside an experiment: the description ends the investigation, the code is not run"
        )
        code = ""
    listed = sections.get("HYPOTHESIS LIST") or sections.get("HYPOTHESES") or sections.get("HYPOTHESIS") or ""
    return Parsed(
        code=code,
        hypotheses=tuple(_items(listed)),
        description=description,
        labels=tuple(labels) if description else (),
        sections=sections,
        forgiven=tuple(dict.fromkeys(forgiven)),
        problem="" if description is not None or code else problem,
    )


def _chosen(labels: list[str], answer: Answer) -> tuple[list[str], str]:
    """Labels among the choices, in their spelling, and what is wrong where none is."""
    if not answer.choices:
        return labels, ""
    words = [set(re.findall(r"[A-Z]+", label.upper())) for label in labels]
    found = [choice for said in words for choice in answer.choices if said & set(answer.choices) == {choice}]
    if labels and not found:
        return [], f"[{answer.labels}]: {labels[0][:60]!r} is none of {', '.join(answer.choices)}"
    return found[:1], ""


def _take_code(reply: str, forgiven: list[str], answer: Answer) -> tuple[str, str]:
    """All fenced blocks, joined in order, and the prose around them."""
    blocks: list[str] = []
    prose: list[str] = []
    at = 0
    while opening := FENCE.search(reply, at):
        prose.append(reply[at : opening.start()])
        closing = re.compile(rf"^[ \t]*{re.escape(opening['fence'])}[ \t]*$", re.MULTILINE).search(reply, opening.end())
        end = closing.start() if closing else len(reply)
        block = reply[opening.end() : end]
        language = opening["language"].lower()
        if language not in ("python", "py", "python3", "tool_code", ""):
            prose.append(block)
        elif language == "" and headings(answer).match(block):
            prose.append(block)
            forgiven.append("an answer inside a fence")
        else:
            blocks.append(block)
            if language != "python":
                forgiven.append(f"a fence marked {language!r} instead of 'python'")
        if opening["fence"][0] == "~":
            forgiven.append("a fence of ~~~ instead of ```")
        if not closing:
            forgiven.append("a fence that was never closed")
        at = closing.end() if closing else len(reply)
    prose.append(reply[at:])
    if len(blocks) > 1:
        forgiven.append(f"{len(blocks)} code blocks: run as one experiment, in order")
    text = "".join(prose)
    if not blocks:
        return _unfenced(text, forgiven, answer), text
    return "\n".join(blocks).strip("\n"), text


def _unfenced(prose: str, forgiven: list[str], answer: Answer) -> str:
    """[CODE]: followed by bare lines that compile as Python and call an instrument."""
    opening = re.search(r"^[ \t*]*\[CODE\][*]*[ \t]*:?", prose, re.MULTILINE | re.IGNORECASE)
    if not opening:
        return ""
    following = headings(answer).search(prose, opening.end())
    code = prose[opening.end() : following.start() if following else None].strip()
    if not re.search(r"\b(tools|system)\.", code):
        return ""
    try:
        compile(code, "reply", "exec")
    except (SyntaxError, ValueError):
        return ""
    forgiven.append("code without a fence")
    return code


def _sections(prose: str, forgiven: list[str], answer: Answer) -> dict[str, str]:
    """Text by section name; of a repeated section the last one counts, as in the published code."""
    found: dict[str, str] = {}
    matches = list(headings(answer).finditer(prose))
    for match, following in zip_longest(matches, matches[1:]):
        name = re.sub(r"[ \t]+", " ", match["name"].upper())
        if name != "CODE" and not match["colon"]:
            forgiven.append(f"[{name}] without a colon")
        if "*" in match[0] or "#" in match[0]:
            forgiven.append(f"[{name}] in bold or as a heading")
        text = prose[match.end() : following.start() if following else None]
        found[name] = re.sub(r"[*_]{2,}", "", text).strip().strip("`").strip()
    return found


def _description(sections: dict[str, str], labels: list[str], answer: Answer) -> str | None:
    """None where the reply does not end the investigation."""
    text = sections.get(answer.text, "")
    if answer.decided_by == answer.labels:
        return (" ".join(text.split()) or labels[0]) if labels else None
    if not text or re.fullmatch(r"[\s.…<>\[\]]*|\(?to be determined\)?\.?", text, re.IGNORECASE):
        return None
    return "" if ABSTENTION.match(text.splitlines()[0]) else " ".join(text.split())


def _items(text: str) -> list[str]:
    lines = (
        re.sub(r"^(?:[-*•]|\(?\d+[.):]|Hypothesis[_ ]?\d+\s*:)\s*", "", line.strip(), flags=re.I)
        for line in text.splitlines()
    )
    return [line for line in lines if line]
