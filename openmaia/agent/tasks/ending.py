"""Finds where a reply ends while the model still writes it: after the first experiment, or where it repeats itself."""

import re
from functools import lru_cache

from openmaia.agent.tasks.grammar import CALL, FENCE
from openmaia.core.messages import Cut

_WINDOW = 900
"""Characters at the end that are searched for repetition, about 250 tokens."""
_REPEATS = 4
"""Copies of a passage in the window that count as repetition. Digits are not compared."""
_KEPT = 2
"""Copies that the reply keeps."""


def ending(text: str, is_turn: bool) -> tuple[int, Cut] | None:
    """Returns where a text has to be cut, as a number of characters, and why; None if the model may go on writing.

    Every text is cut after a few copies of a passage that it repeats, and a turn (`is_turn`) after its first
    experiment.
    """
    if is_turn and (end := _end_of_experiment(text)):
        return end, Cut.EXPERIMENT
    if period := _period(text[-_WINDOW:]):
        return len(text) - _WINDOW + _KEPT * period, Cut.REPETITION
    return None


def cut(text: str, is_turn: bool) -> tuple[str, Cut]:
    """Cuts a complete text by the rules of `ending`. If only white space follows an experiment, nothing is cut."""
    found = ending(text, is_turn)
    if found is None or (found[1] is Cut.EXPERIMENT and not text[found[0] :].strip()):
        return text, Cut.NONE
    return text[: found[0]], found[1]


def _end_of_experiment(text: str) -> int:
    """Returns the position behind the first closed code block of Python that calls a tool; 0 if there is none."""
    position = 0
    while opening := FENCE.search(text, position):
        closing = _closed_line(opening["fence"]).search(text, opening.end())
        if closing is None:
            return 0
        is_python = opening["language"].lower() in ("", "python", "py", "python3", "tool_code")
        if is_python and CALL.search(text, opening.end(), closing.start()):
            return closing.end()
        position = closing.end()
    return 0


@lru_cache(maxsize=64)
def _closed_line(fence: str) -> re.Pattern[str]:
    # With its line break: a fence at the end of a text may still become a longer line.
    return re.compile(rf"^[ \t]*{re.escape(fence)}[ \t]*\n", re.MULTILINE)


def _period(text: str) -> int:
    """Returns the length of the passage of whose copies a text consists; 0 if there is none."""
    if len(text) < _WINDOW:
        return 0
    # The smallest period of a text is its length minus its longest border (Knuth, Morris and Pratt 1977).
    letters = re.sub(r"\d", "0", text)[::-1]
    borders = [0] * len(letters)
    length = 0
    for position in range(1, len(letters)):
        while length and letters[position] != letters[length]:
            length = borders[length - 1]
        length += letters[position] == letters[length]
        borders[position] = length
    period = len(letters) - borders[-1]
    return period if period * _REPEATS <= len(letters) else 0
