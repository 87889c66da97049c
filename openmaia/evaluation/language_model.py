"""Asks a language model questions whose answers must have a given form. Missing parts of an answer are never filled in."""

import re
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.resources import files
from string import Template
from typing import TypeVar

from openmaia.agent.tools.seeds import seed
from openmaia.core.errors import OpenMaiaError
from openmaia.core.messages import Chat, Message, Part, assistant, system, user
from openmaia.core.services import Backbone

ParsedAnswer = TypeVar("ParsedAnswer")

MAX_ATTEMPTS = 3
_MAX_PROMPT_CHARACTERS = 400

_MAX_FOREIGN_SHARE = 0.2
"""A list of prompts with a larger share of non-Latin letters counts as not English."""

_BULLET = re.compile(r"^\s*(?:[-*•]\s+|\(?\d{1,3}\s*[.):]\s*)?(.*?)\s*$")
_NUMBERED = re.compile(r"^\s*\(?\d{1,3}\s*[.):]\s*\S")


class MalformedAnswer(OpenMaiaError):
    """An answer does not have the requested form. The message is sent back to the model."""


class UnansweredQuestion(OpenMaiaError):
    """A language model gave no usable answer in MAX_ATTEMPTS attempts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A user message and the seed of its answer."""

    parts: tuple[Part, ...]
    seed: int

    @classmethod
    def of(cls, text: str, *images: Part, run_seed: int = 0) -> "Question":
        """Builds a question whose seed depends on the run's seed and the text."""
        return cls(parts=(text, *images), seed=seed(run_seed, "evaluate", text, 0) >> 32)


def fill_template(name: str, **values: object) -> str:
    """Returns the question in questions/NAME.md, with `values` in its placeholders."""
    source = (files("openmaia.evaluation") / "questions" / f"{name}.md").read_text(encoding="utf-8")
    return Template(source.strip()).substitute({key: str(value) for key, value in values.items()})


class LanguageModel:
    """A backbone that answers single questions."""

    def __init__(self, backbone: Backbone, name: str, max_tokens: int = 2048):
        self.name = name
        self._backbone, self._max_tokens = backbone, max_tokens

    def ask(self, question: Question, parse: Callable[[str], ParsedAnswer]) -> ParsedAnswer:
        """Asks one question, as `ask_all` does. Raises UnansweredQuestion if there is no usable answer."""
        answer = self.ask_all([question], parse)[0]
        if isinstance(answer, UnansweredQuestion):
            raise answer
        return answer

    def ask_all(
        self, questions: Sequence[Question], parse: Callable[[str], ParsedAnswer]
    ) -> list[ParsedAnswer | UnansweredQuestion]:
        """Asks all questions in one batch, again with the reason if `parse` raises MalformedAnswer, up to MAX_ATTEMPTS
        times. An UnansweredQuestion says why there is no answer.
        """
        opening = system(fill_template("system"))
        chats: list[list[Message]] = [[opening, user(*question.parts)] for question in questions]
        answers: list[ParsedAnswer | UnansweredQuestion] = [UnansweredQuestion("never asked") for _ in questions]
        pending = list(range(len(questions)))
        for attempt in range(MAX_ATTEMPTS):
            if not pending:
                break
            batch = [
                Chat(conversation="", messages=chats[n], seed=questions[n].seed + attempt, max_tokens=self._max_tokens)
                for n in pending
            ]
            for n, reply in zip(list(pending), self._backbone.reply(batch), strict=True):
                try:
                    answers[n] = parse(reply.text)
                    pending.remove(n)
                except MalformedAnswer as error:
                    answers[n] = UnansweredQuestion(f"{self.name} was asked {attempt + 1} times, and {error.message}")
                    correction = f"This cannot be used: {error.message}. Answer again, in the form asked for."
                    chats[n] += [assistant(reply.text or "(nothing)"), user(correction)]
        return answers


def parse_list(answer: str, n: int) -> list[str]:
    """Parses a list of n prompts, one per line, without bullets and numbers. Raises MalformedAnswer unless there are n
    different ones in English of at most _MAX_PROMPT_CHARACTERS characters.
    """
    lines = [line for line in answer.splitlines() if line.strip()]
    numbered = [line for line in lines if _NUMBERED.match(line)]
    prompts = [_without_bullet(line) for line in (numbered if len(numbered) == n else lines)]
    prompts = [prompt for prompt in prompts if prompt]
    if len(prompts) != n:
        raise MalformedAnswer(f"{len(prompts)} lines came where {n} prompts were asked for ({_start(answer)})")
    if len({prompt.casefold() for prompt in prompts}) != n:
        raise MalformedAnswer("some of the prompts are the same")
    if any(len(prompt) > _MAX_PROMPT_CHARACTERS for prompt in prompts):
        raise MalformedAnswer(f"a prompt is longer than {_MAX_PROMPT_CHARACTERS} characters")
    if is_foreign(" ".join(prompts)):
        raise MalformedAnswer(f"the prompts are not in English ({_start(answer)})")
    return prompts


def parse_pairs(answer: str, n: int) -> list[tuple[str, str]]:
    """Parses n lines of two different prompts separated by a vertical bar. Raises MalformedAnswer."""
    pairs: list[tuple[str, str]] = []
    for line in parse_list(answer, n):
        first, bar, second = (part.strip() for part in line.partition("|"))
        if not (bar and first and second) or first.casefold() == second.casefold():
            raise MalformedAnswer(f'no two different prompts with " | " between them: {line[:80]!r}')
        pairs.append((first, second))
    return pairs


def is_foreign(text: str) -> bool:
    """Returns whether a text has no letters, or more than _MAX_FOREIGN_SHARE of them are not Latin. Foreign languages in
    Latin script are not recognised.
    """
    letters = [letter for letter in text if letter.isalpha()]
    foreign = sum("LATIN" not in unicodedata.name(letter, "") for letter in letters)
    return not letters or foreign > _MAX_FOREIGN_SHARE * len(letters)


def _without_bullet(line: str) -> str:
    match = _BULLET.match(line)
    return (match[1] if match else line).strip().strip("*_`\"'“”").strip()


def _start(answer: str) -> str:
    words = " ".join(answer.split())
    return f"{words[:80]!r}" if words else "an empty answer"
