"""Notes to the agent about prompts that its code sent to the image generator.

One kind of note names the words of a prompt that could not be drawn. The other kind names a prompt that was copied from
the example in the instructions. `openmaia.agent.evidence` parses the notes in the records.
"""

import ast
import re
from collections.abc import Sequence

NOT_DRAWN = re.compile(r"^note: could not draw (?P<words>.*) of (?P<prompt>'.*'|\".*\")$", re.MULTILINE)

COPIED = re.compile(r"^note: (?P<prompt>'.*'|\".*\") is from the example in your instructions", re.MULTILINE)


def not_drawn(words: Sequence[str], prompt: str) -> str:
    """Returns the note that tells the agent which words of a prompt are missing from the image generated for it."""
    return f"note: could not draw {', '.join(map(repr, words))} of {prompt!r}"


def read_not_drawn(note: str) -> tuple[str, str] | None:
    """Parses a note about words of a prompt that are missing from its image (see `not_drawn`).

    Returns:
        The prompt, and the missing words as one text. None if the text is no such note.
    """
    match = NOT_DRAWN.match(note)
    return (_read(match["prompt"]), match["words"]) if match else None


def copied(prompt: str) -> str:
    """Returns the note to the agent that a prompt was copied from the example in its instructions."""
    return (
        f"note: {prompt!r} is from the example in your instructions, which is about another unit: its image does not "
        "count as evidence. Write prompts for what the exemplars of this unit show"
    )


def read_copied(note: str) -> str | None:
    """Parses a note about a prompt that was copied from the example in the instructions (see `copied`).

    Returns:
        The prompt. None if the text is no such note.
    """
    match = COPIED.match(note)
    return _read(match["prompt"]) if match else None


def _read(quoted: str) -> str:
    """Returns the text of which `quoted` is the `repr`, or what is between the quotes if it is none."""
    try:
        return str(ast.literal_eval(quoted))
    except (ValueError, SyntaxError, RecursionError, MemoryError):  # the text may be the agent's own
        return quoted[1:-1]
