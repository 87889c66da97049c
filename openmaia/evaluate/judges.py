"""Who says whether a picture shows something. Every verdict is yes, no or unknown, and is kept with the judge's name."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from importlib.resources import files
from typing import Protocol

from openmaia.evaluate.asking import Asker, Malformed, Question, Unanswered, text
from openmaia.images import Picture, Pixels
from openmaia.pictures.vocabulary import find
from openmaia.tools.seeds import seed

Verdict = bool | None
"""None: the judge does not know."""

LINE = re.compile(r"^\W*(\d{1,3})\W+(yes|no|unsure|unknown)\b", re.IGNORECASE | re.MULTILINE)
SAID: Mapping[str, Verdict] = {"yes": True, "no": False, "unsure": None, "unknown": None}

RELIABLE = 0.75
"""Balanced accuracy below which the eyes say of a word that they do not know."""


class Judge(Protocol):
    @property
    def name(self) -> str: ...

    def judge(self, pictures: Sequence[Picture], labels: Sequence[str]) -> list[tuple[Verdict, ...]]:
        """For each picture a verdict on each label."""
        ...


class ModelJudge:
    """A language model that sees. A picture that it refuses to judge, or whose answer never fits, is unknown."""

    def __init__(self, asker: Asker):
        self.name = asker.name
        self._asker = asker

    def judge(self, pictures: Sequence[Picture], labels: Sequence[str]) -> list[tuple[Verdict, ...]]:
        if not labels:
            return [() for _ in pictures]
        words = text("shows", labels="\n".join(f"{at}. {label}" for at, label in enumerate(labels, start=1)))
        number = seed(0, "evaluate", words, 0) >> 32
        questions = [Question(parts=(words, picture), seed=number) for picture in pictures]
        found = self._asker.ask_all(questions, lambda answer: verdicts(answer, len(labels)))
        return [(None,) * len(labels) if isinstance(one, Unanswered) else one for one in found]


def verdicts(answer: str, count: int) -> tuple[Verdict, ...]:
    """Raises Malformed where it does not say something about each of so many."""
    said = {int(match[1]): SAID[match[2].lower()] for match in LINE.finditer(answer)}
    if sorted(said) != list(range(1, count + 1)):
        raise Malformed(f"lines for {sorted(said)} came where 1 to {count} were asked for")
    return tuple(said[at] for at in range(1, count + 1))


class EyesJudge:
    """The scripted experimenter's sense: evidence for vocabulary words, yes from a threshold on.

    Thresholds were measured on drawn pictures of the explore half (eyes.json; `python -m tests.benchmarks.eyes`
    measures them again), and of a word that evidence does not tell apart there nothing is said. On photographs
    nobody has measured them.
    """

    def __init__(self, see: Callable[[Pixels], Mapping[str, float]], name: str):
        self.name = f"eyes ({name})"
        self._see = see
        table: dict[str, list[float]] = json.loads((files("openmaia.evaluate") / "eyes.json").read_text())
        self._thresholds = {word: at for word, (at, accuracy) in table.items() if accuracy >= RELIABLE}

    def judge(self, pictures: Sequence[Picture], labels: Sequence[str]) -> list[tuple[Verdict, ...]]:
        wanted = [[word.name for word in find(label)] for label in labels]
        return [tuple(self._verdict(self._see(picture.pixels), words) for words in wanted) for picture in pictures]

    def _verdict(self, sight: Mapping[str, float], words: Sequence[str]) -> Verdict:
        """All words have to be seen; one that is not decides."""
        if not words:
            return None
        seen = [sight[word] >= self._thresholds[word] for word in words if word in self._thresholds]
        return False if not all(seen) else True if len(seen) == len(words) else None
