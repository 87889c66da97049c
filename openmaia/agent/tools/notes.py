"""Notes to the agent about its prompts: words that could not be drawn, and prompts copied from the example.
`openmaia.agent.evidence` parses them in the records.
"""

import ast
import re
from collections.abc import Sequence

NOT_DRAWN = re.compile(r"^note: could not draw (?P<words>.*) of (?P<prompt>'.*'|\".*\")$", re.MULTILINE)

_COPIED = re.compile(r"^note: (?P<prompt>'.*'|\".*\") is from the example in your instructions", re.MULTILINE)


def write_not_drawn(words: Sequence[str], prompt: str) -> str:
    """Returns the note about words that are missing from the image of a prompt."""
    return f"note: could not draw {', '.join(map(repr, words))} of {prompt!r}"


def read_not_drawn(note: str) -> tuple[str, str] | None:
    """Returns the prompt of a note of `write_not_drawn`, and the missing words as one text; None for another text."""
    match = NOT_DRAWN.match(note)
    return (_read(match["prompt"]), match["words"]) if match else None


def write_copied(prompt: str) -> str:
    """Returns the note about a prompt that was copied from the example."""
    return (
        f"note: {prompt!r} is from the example in your instructions, which is about another unit: its image does not "
        "count as evidence. Write prompts for what the exemplars of this unit show"
    )


def read_copied(note: str) -> str | None:
    """Returns the prompt of a note of `write_copied`; None for another text."""
    match = _COPIED.match(note)
    return _read(match["prompt"]) if match else None


def _read(quoted: str) -> str:
    """Returns the text of which `quoted` is the `repr`, or what is between the quotes if it is none."""
    try:
        return str(ast.literal_eval(quoted))
    except (ValueError, SyntaxError, RecursionError, MemoryError):  # the text may be the agent's own
        return quoted[1:-1]
