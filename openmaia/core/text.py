"""Makes texts of models, users and files safe to show where control characters act."""


def printable(text: str, *, keep: str = "", replacement: str = " ") -> str:
    """Replaces the characters that act and are not seen: control characters (ANSI and OSC sequences begin with one),
    overrides of the writing direction, zero-width characters, and lone surrogates.

    Args:
        text: Any text.
        keep: Characters that are kept although they are not printable, such as "\\n".
        replacement: What stands for each replaced character.
    """
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() or letter in keep else replacement for letter in text)


def first_line(text: str, limit: int = 1000) -> str:
    """Returns the first line of a text, cut to `limit` characters and without characters that act."""
    line, *_ = text.strip().splitlines() or [""]
    return printable(line if len(line) <= limit else f"{line[:limit]}…")
