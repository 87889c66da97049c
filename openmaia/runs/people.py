"""What people say of themselves and of descriptions: names and labels that tables, pages and terminals can show."""

import unicodedata

from openmaia.core.errors import UsageError
from openmaia.core.text import printable

LONGEST_NAME = 80
"""Number of characters of a person's name."""
_FORMULA = "=+-@"
_SHOWN = 80


def checked_name(name: str) -> str:
    """Returns a person's name in Unicode's form NFC, with a blank for all that separates words. Raises UsageError if it is no name."""
    if not (given := checked_text(name, LONGEST_NAME, "name of a person")):
        raise UsageError(
            f"an empty text is no name of a person; expected 1 to {LONGEST_NAME} characters that can be shown"
        )
    return given


def checked_text(text: str, longest: int, what: str) -> str:
    """Returns a text, which may be empty, likewise. `what` it is for messages."""
    given = " ".join(unicodedata.normalize("NFC", text).split())
    shown = repr(printable(text)[:_SHOWN])
    if len(given) > longest or printable(given) != given:
        raise UsageError(f"{shown} is no {what}; expected 1 to {longest} characters that can be shown")
    if given and given[0] in _FORMULA:  # tables of them are opened in spreadsheets
        raise UsageError(f"{shown} is no {what}: it cannot begin with one of {' '.join(_FORMULA)}")
    return given
