"""Questions to a language model whose answers have a form. What does not fit is asked again, then reported; nothing is
padded or guessed."""

import re
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.resources import files
from string import Template
from typing import TypeVar

from openmaia.errors import OpenMaiaError
from openmaia.messages import Chat, Message, Part, assistant, system, user
from openmaia.services import Backbone

Answer = TypeVar("Answer")

TRIES = 3
LONGEST = 400
"""Characters of a prompt."""

FOREIGN = 0.2
"""A list with a larger share of letters beyond the Latin alphabet is in another language."""

BULLET = re.compile(r"^\s*(?:[-*•]\s+|\(?\d{1,3}\s*[.):]\s*)?(.*?)\s*$")
NUMBERED = re.compile(r"^\s*\(?\d{1,3}\s*[.):]\s*\S")


class Malformed(OpenMaiaError):
    """An answer that is not in the form asked for. The message goes back to the model."""


class Unanswered(OpenMaiaError):
    """A question that was asked TRIES times in vain."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    parts: tuple[Part, ...]
    seed: int


def text(name: str, **values: object) -> str:
    """One of the files in questions/, filled in."""
    source = (files("openmaia.evaluate") / "questions" / f"{name}.md").read_text(encoding="utf-8")
    return Template(source.strip()).substitute({key: str(value) for key, value in values.items()})


class Asker:
    """name: of the model, as it stands in results."""

    def __init__(self, backbone: Backbone, name: str, tokens: int = 2048):
        self.name = name
        self._backbone, self._tokens = backbone, tokens

    def ask(self, question: Question, parse: Callable[[str], Answer]) -> Answer:
        """Raises Unanswered."""
        found = self.ask_all([question], parse)[0]
        if isinstance(found, Unanswered):
            raise found
        return found

    def ask_all(self, questions: Sequence[Question], parse: Callable[[str], Answer]) -> list[Answer | Unanswered]:
        """All of them at once, and once more those whose answers do not fit. parse raises Malformed."""
        opening = system(text("system"))
        said: list[list[Message]] = [[opening, user(*question.parts)] for question in questions]
        found: list[Answer | Unanswered] = [Unanswered("never asked") for _ in questions]
        open_now = list(range(len(questions)))
        for attempt in range(TRIES):
            if not open_now:
                break
            chats = [
                Chat(conversation="", messages=said[at], seed=questions[at].seed + attempt, max_tokens=self._tokens)
                for at in open_now
            ]
            for at, reply in zip(list(open_now), self._backbone.reply(chats), strict=True):
                try:
                    found[at] = parse(reply.text)
                    open_now.remove(at)
                except Malformed as error:
                    found[at] = Unanswered(f"{self.name} was asked {attempt + 1} times, and {error.message}")
                    said[at] += [
                        assistant(reply.text or "(nothing)"),
                        user(f"This cannot be used: {error.message}. Answer again, in the form asked for."),
                    ]
        return found


def listed(answer: str, n: int) -> list[str]:
    """A list of exactly n different prompts in English. Raises Malformed."""
    lines = [line for line in answer.splitlines() if line.strip()]
    numbered = [line for line in lines if NUMBERED.match(line)]
    found = [_bare(line) for line in (numbered if len(numbered) == n else lines)]
    found = [line for line in found if line]
    if len(found) != n:
        raise Malformed(f"{len(found)} lines came where {n} prompts were asked for ({_start(answer)})")
    if len({line.casefold() for line in found}) != n:
        raise Malformed("some of the prompts are the same")
    if any(len(line) > LONGEST for line in found):
        raise Malformed(f"a prompt is longer than {LONGEST} characters")
    if is_foreign(" ".join(found)):
        raise Malformed(f"the prompts are not in English ({_start(answer)})")
    return found


def listed_pairs(answer: str, n: int) -> list[tuple[str, str]]:
    """n pairs of prompts, with a bar between the two. Raises Malformed."""
    pairs: list[tuple[str, str]] = []
    for line in listed(answer, n):
        one, bar, other = (part.strip() for part in line.partition("|"))
        if not (bar and one and other) or one.casefold() == other.casefold():
            raise Malformed(f'no two different prompts with " | " between them: {line[:80]!r}')
        pairs.append((one, other))
    return pairs


def is_foreign(text: str) -> bool:
    """Whether much of a text is in another script. Other languages in Latin letters are not told apart."""
    letters = [letter for letter in text if letter.isalpha()]
    foreign = sum("LATIN" not in unicodedata.name(letter, "") for letter in letters)
    return not letters or foreign > FOREIGN * len(letters)


def _bare(line: str) -> str:
    match = BULLET.match(line)
    return (match[1] if match else line).strip().strip("*_`\"'“”").strip()


def _start(answer: str) -> str:
    words = " ".join(answer.split())
    return f"{words[:80]!r}" if words else "an empty answer"
