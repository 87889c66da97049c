"""Writes pairs of prompts that test the claim that a context (such as snow) changes a classifier's score of a class.

One prompt of a pair shows an object of the class in the claimed context, the other the same object in another context.

The two prompts of a pair show equally many objects and share a seed, so that the object of the class has the same size
and position, and with some generators the same pixels. The other context is of the same kind as the claimed one, for
example `beside a drum` for `beside a ball`, because anything beside an object makes the object smaller.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from typing import Protocol

from openmaia.agent.tools.seeds import seed
from openmaia.evaluation.language_model import LanguageModel, Question, parse_pairs
from openmaia.evaluation.language_model import template as question_text


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimedContext:
    """An agent's claim that a context, such as snow, raises or lowers a classifier's score of a class."""

    label: str
    """The claim as the agent wrote it."""
    text: str
    """The claim without its sign."""
    sign: int
    """1 if the context raises the score, -1 if it lowers it, 0 if the claim has no sign."""

    @classmethod
    def parse(cls, label: str) -> "ClaimedContext":
        """Parses a claim such as "+ snow" (snow raises the score) or "- a ball beside it" (a ball lowers it)."""
        match = re.match(r"\s*[\"'`*]*(?P<sign>[+\-−–])?\s*(?P<text>.*?)[\"'`*\s.]*$", label, re.DOTALL)
        assert match is not None
        sign = {"+": 1, "": 0}.get(match["sign"] or "", -1)
        return cls(label=label, text=match["text"], sign=sign)


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextPrompts:
    """A prompt with a context (such as snow) that is claimed to bias a classifier, and one without it.

    The images of both are generated with the same seed.
    """

    with_context: str
    without: str
    seed: int
    absent: bool = False
    """Whether both prompts ask for something else in the place of an object of the class that the claim is about."""


class ContextWriter(Protocol):
    """Writes pairs of prompts that test the claim that a context changes a classifier's score of a class."""

    @property
    def name(self) -> str:
        """The name of this writer in stored results."""
        ...

    def write(
        self, name: str, context: ClaimedContext, n: int, run_seed: int, *, absent: bool = False
    ) -> list[ContextPrompts]:
        """Writes n pairs of prompts. The first prompt of a pair shows the claimed context, the second does not.

        Args:
            name: The name of the class whose score the context is claimed to change.
            context: The claimed context, such as snow.
            n: The number of pairs.
            run_seed: The seed of the run.
            absent: Whether the prompts show no object of the class, but something else in its place. If it is False,
                both prompts of a pair show an object of the class.

        Raises:
            UnansweredQuestion: If no usable prompts could be written.
        """
        ...


@dataclass(frozen=True, slots=True)
class ModelContextWriter:
    """Asks a language model for pairs of prompts that test whether a context changes a classifier's score of a class.

    The first prompt of a pair shows the context, such as snow, and the second does not. The model is asked for at most
    20 pairs (MAX_ASKED). If more are needed, the same pairs are used again, with other seeds for their images.
    """

    model: LanguageModel

    MAX_ASKED = 20

    @property
    def name(self) -> str:
        """The name of the language model."""
        return self.model.name

    def write(
        self, name: str, context: ClaimedContext, n: int, run_seed: int, *, absent: bool = False
    ) -> list[ContextPrompts]:
        """Writes n pairs of prompts. The arguments are those of `ContextWriter.write`.

        Raises:
            UnansweredQuestion: If the model gives no usable answer.
        """
        count = min(n, self.MAX_ASKED)
        subject = f"no {name}, but something else in its place" if absent else f"one {name}, clearly visible"
        words = question_text("contexts", subject=subject, context=context.text, n=count)
        words += "\n" + question_text("lines", n=count)
        question = Question(parts=(words,), seed=seed(run_seed, "evaluate", words, 0) >> 32)
        pairs = self.model.ask(question, lambda answer: parse_pairs(answer, count))
        return with_seeds(list(islice(cycle(pairs), n)), run_seed, absent)


def with_seeds(pairs: Sequence[tuple[str, str]], run_seed: int, absent: bool) -> list[ContextPrompts]:
    """Assigns a different seed to each pair of prompts, even if some pairs are equal.

    Args:
        pairs: For each pair the prompt with a claimed context, such as snow, and the prompt without it.
        run_seed: The seed of the run.
        absent: Whether the prompts show something else in the place of an object of the classifier's class. It is
            only stored in the result.
    """
    return [
        ContextPrompts(
            with_context=one, without=other, absent=absent, seed=seed(run_seed, "evaluate", f"{one} | {other}", index)
        )
        for index, (one, other) in enumerate(pairs)
    ]
