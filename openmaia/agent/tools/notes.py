"""The note that tells the agent which words of a prompt the image generator could not draw.

The check of the agent's evidence parses the same note.
"""

import re
from collections.abc import Sequence

NOT_DRAWN = re.compile(r"^note: could not draw (?P<words>.*) of (?P<prompt>'.*'|\".*\")$", re.MULTILINE)


def not_drawn(words: Sequence[str], prompt: str) -> str:
    """Returns the note about the words that are missing in the image of a prompt."""
    return f"note: could not draw {', '.join(map(repr, words))} of {prompt!r}"


def read_not_drawn(note: str) -> tuple[str, str] | None:
    """Returns the prompt and the missing words that a note names, or None if the text is no such note."""
    match = NOT_DRAWN.match(note)
    return (match["prompt"][1:-1], match["words"]) if match else None
