"""What a generator can draw, if it cannot draw everything."""

import re
import textwrap
from collections.abc import Sequence
from difflib import get_close_matches
from math import ceil
from typing import Protocol

_NEAREST = 5
"""Drawable words that are named beside a label that cannot be drawn."""


class Vocabulary(Protocol):
    """The words that a generator can draw. Generators without one draw anything."""

    @property
    def words(self) -> Sequence[str]:
        """All words, without their synonyms."""
        ...

    def missing(self, phrase: str) -> tuple[str, ...]:
        """Returns the parts of a phrase that cannot be drawn."""
        ...


def describe_vocabulary(vocabulary: Vocabulary) -> str:
    """Returns the part of the agent's instructions that lists the words."""
    text = (
        "Only these words, and combinations of them, can be drawn, in prompts and instructions of edits as in the labels of "
        f"your answer, which are tested with drawn images: {', '.join(vocabulary.words)}. The output of an experiment names "
        "words that could not be drawn."
    )
    return textwrap.fill(text, 120, break_on_hyphens=False)


def find_nearest(label: str, words: Sequence[str]) -> list[str]:
    """Returns the words most like a label: those that share a word with it, then those that are spelled like its words."""
    tokens = re.findall(r"\w+", label.casefold())
    sharing = [word for word in words if any(_is_same(token, part) for token in tokens for part in word.split())]
    alike: list[str] = []
    for token in tokens:
        alike += get_close_matches(token, list(words), _NEAREST, 0.7)
    return list(dict.fromkeys([*sharing, *alike]))[:_NEAREST]


def _is_same(token: str, part: str) -> bool:
    """Whether two words begin with the same letters, which are most of the longer one."""
    stem = max(ceil(0.6 * max(len(token), len(part))), 3)
    return min(len(token), len(part)) >= stem and token[:stem] == part[:stem]
