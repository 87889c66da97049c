"""Makes texts from models, users and files safe to show in places that obey control characters, such as a terminal."""

from collections.abc import Callable

Printer = Callable[[str], None]
"""Prints or logs a line of text."""


def printable(text: str, *, keep: str = "", replacement: str = " ") -> str:
    """Replaces all characters that are not printable (see `str.isprintable`).

    Among these are control characters (ANSI and OSC escape sequences begin with one), overrides of the writing
    direction, zero-width characters, and lone surrogates.

    Args:
        text: Any text.
        keep: Characters that are kept although they are not printable, such as "\\n".
        replacement: The text that replaces each of these characters.
    """
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() or letter in keep else replacement for letter in text)


def first_line(text: str, limit: int = 1000) -> str:
    """Returns the first non-blank line of a text, cut to `limit` characters, with unprintable characters as spaces."""
    line, *_ = text.strip().splitlines() or [""]
    return printable(line if len(line) <= limit else f"{line[:limit]}…")
