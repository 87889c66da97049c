"""The same questions to a language model that sees. What it refuses has no answer; nothing is guessed."""

import re
from collections.abc import Sequence

from openmaia.evaluate.asking import Asker, Malformed, Question, Unanswered, text
from openmaia.evaluate.choice.blind import Asked
from openmaia.evaluate.choice.score import Answers
from openmaia.images import Picture
from openmaia.tools.seeds import seed

LINE = re.compile(r"^\W*(?:answer\W+|label\W+)?([12])\b\W*$", re.IGNORECASE)


def judged(asked: Sequence[Asked], page: str, asker: Asker) -> Answers:
    """All questions at once; each conversation holds one of them, so that no answer leads to another."""
    questions = [_question(one) for one in asked]
    found = asker.ask_all(questions, choice)
    refused = [one.message for one in found if isinstance(one, Unanswered)]
    return Answers(
        page=page,
        who=asker.name,
        chosen={one.name: said for one, said in zip(asked, found, strict=True) if not isinstance(said, Unanswered)},
        cause=refused[0] if refused else "",
    )


def _question(one: Asked) -> Question:
    words = text("choice", one=one.texts[0], two=one.texts[1])
    pictures = tuple(Picture(data=data) for data in one.pair.exemplars)
    return Question(parts=(words, *pictures), seed=seed(0, "evaluate", words, 0) >> 32)


def choice(answer: str) -> int:
    """1 or 2, alone on the last line that says anything. Raises Malformed."""
    lines = [line for line in answer.splitlines() if line.strip()]
    match = LINE.match(lines[-1]) if lines else None
    if match is None:
        raise Malformed("the last line has to be 1 or 2 and nothing else")
    return int(match[1])
