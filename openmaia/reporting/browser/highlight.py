"""Splits Python source into pieces for syntax highlighting. The template escapes their text."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby

from pygments.lexers.python import PythonLexer  # pyright: ignore[reportMissingTypeStubs]
from pygments.token import Comment, Keyword, Name, Number, Operator, String, _TokenType  # pyright: ignore[reportPrivateUsage]

MAX_LETTERS = 60_000
"""Maximum number of highlighted characters, a bound against hostile agents. The rest is shown as plain text."""

CLASSES: tuple[tuple[_TokenType, str], ...] = (
    (Comment, "c"),
    (String, "s"),
    (Number, "m"),
    (Operator.Word, "k"),
    (Keyword, "k"),
    (Name.Function, "f"),
    (Name.Class, "f"),
    (Name.Decorator, "f"),
    (Name.Builtin, "b"),
    (Name.Exception, "b"),
)


@dataclass(frozen=True, slots=True)
class Piece:
    """A piece of source."""

    css: str
    """The CSS class of its `<span>`; empty for plain text."""
    text: str


def python(code: str) -> tuple[Piece, ...]:
    """Splits a program into pieces, whose texts concatenate to the program."""
    return tuple(_pieces(code))


def _pieces(code: str) -> Iterator[Piece]:
    lexer = PythonLexer(stripnl=False, ensurenl=False)
    tokens = ((_css(kind), text) for kind, text in lexer.get_tokens(code[:MAX_LETTERS]))
    for css, group in groupby(tokens, key=lambda token: token[0]):
        yield Piece(css, "".join(text for _, text in group))
    if len(code) > MAX_LETTERS:
        yield Piece("", code[MAX_LETTERS:])


def _css(kind: _TokenType) -> str:
    return next((css for parent, css in CLASSES if kind in parent), "")
