"""Writes pairs of prompts: an object of a class in the claimed context, and the same object in another one.

Both prompts show equally many objects and share a seed, so that the object has the same size and position, and with
some generators the same pixels. The other context is of the same kind, for example `beside a drum` for `beside a ball`,
because anything beside an object makes the object smaller.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from typing import Protocol

from openmaia.agent.tools.seeds import seed
from openmaia.evaluation.language_model import LanguageModel, Question, parse_pairs
from openmaia.evaluation.language_model import fill_template as question_text


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimedContext:
    """An agent's claim that a context raises or lowers the score of a class."""

    label: str
    """The claim as the agent wrote it."""
    text: str
    """Without the sign."""
    sign: int
    """1 if the context raises the score, -1 if it lowers it, 0 if the claim has no sign."""

    @classmethod
    def parse(cls, label: str) -> "ClaimedContext":
        """Parses a claim such as "+ snow" or "- a ball beside it"."""
        match = re.match(r"\s*[\"'`*]*(?P<sign>[+\-−–])?\s*(?P<text>.*?)[\"'`*\s.]*$", label, re.DOTALL)
        assert match is not None
        sign = {"+": 1, "": 0}.get(match["sign"] or "", -1)
        return cls(label=label, text=match["text"], sign=sign)


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextPrompts:
    """A prompt with the context, and one without it, for images of one seed."""

    with_context: str
    without: str
    seed: int
    absent: bool = False
    """Whether both prompts ask for something else in the place of an object of the class."""


class ContextWriter(Protocol):
    """Writes pairs of prompts for claimed contexts."""

    @property
    def name(self) -> str:
        """In stored results."""
        ...

    def write(
        self, name: str, context: ClaimedContext, n: int, run_seed: int, *, absent: bool = False
    ) -> list[ContextPrompts]:
        """Writes n pairs of prompts for the class `name`.

        Args:
            absent: Whether the prompts show no object of the class, but something else in its place.

        Raises:
            UnansweredQuestion: No usable prompts could be written.
        """
        ...


@dataclass(frozen=True, slots=True)
class ModelContextWriter:
    """Asks a language model for at most MAX_ASKED pairs. If more are needed, they are used again with other seeds."""

    model: LanguageModel

    MAX_ASKED = 20

    @property
    def name(self) -> str:
        """The name of the language model."""
        return self.model.name

    def write(
        self, name: str, context: ClaimedContext, n: int, run_seed: int, *, absent: bool = False
    ) -> list[ContextPrompts]:
        """Writes n pairs of prompts, some of them equal if n exceeds MAX_ASKED."""
        count = min(n, self.MAX_ASKED)
        subject = f"no {name}, but something else in its place" if absent else f"one {name}, clearly visible"
        words = question_text("contexts", subject=subject, context=context.text, n=count)
        words += "\n" + question_text("lines", n=count)
        question = Question(parts=(words,), seed=seed(run_seed, "evaluate", words, 0) >> 32)
        pairs = self.model.ask(question, lambda answer: parse_pairs(answer, count))
        return with_seeds(list(islice(cycle(pairs), n)), run_seed, absent)


def with_seeds(pairs: Sequence[tuple[str, str]], run_seed: int, absent: bool) -> list[ContextPrompts]:
    """Assigns a different seed to each pair (with, without the context), even if some are equal."""
    return [
        ContextPrompts(
            with_context=one, without=other, absent=absent, seed=seed(run_seed, "evaluate", f"{one} | {other}", index)
        )
        for index, (one, other) in enumerate(pairs)
    ]
