"""Makes texts from models, users and files safe to show in places that obey control characters, such as a terminal."""

from collections.abc import Callable

Printer = Callable[[str], None]


def printable(text: str, *, keep: str = "", replacement: str = " ") -> str:
    """Replaces characters that `str.isprintable` refuses, except those in `keep`: control characters (with them escape
    sequences), overrides of the writing direction, zero-width characters, lone surrogates."""
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() or letter in keep else replacement for letter in text)


def percent(share: float, digits: int = 0, sign: str = "") -> str:
    """Returns a share as a percentage with a space before the sign, as in all texts: "4 %". `sign` "+" also marks what is not
    negative."""
    return f"{100 * share:{sign}.{digits}f} %"


def first_line(text: str, limit: int = 1000) -> str:
    """Returns the first line that is not blank, cut to `limit` characters, with unprintable characters as spaces."""
    line, *_ = text.strip().splitlines() or [""]
    return printable(line if len(line) <= limit else f"{line[:limit]}…")
