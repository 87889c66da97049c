"""Python source as coloured pieces. The template escapes them, so that no text becomes markup here."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby

from pygments.lexers.python import PythonLexer  # pyright: ignore[reportMissingTypeStubs]
from pygments.token import Comment, Keyword, Name, Number, Operator, String, _TokenType  # pyright: ignore[reportPrivateUsage]

_LONGEST = 60_000
"""Characters that are coloured; what a hostile agent writes beyond is shown plainly."""

_CLASSES: tuple[tuple[_TokenType, str], ...] = (
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
    """css: the class of a <span>, "" for plain text."""

    css: str
    text: str


def python(code: str) -> tuple[Piece, ...]:
    return tuple(_pieces(code))


def _pieces(code: str) -> Iterator[Piece]:
    lexer = PythonLexer(stripnl=False, ensurenl=False)
    tokens = ((_css(kind), text) for kind, text in lexer.get_tokens(code[:_LONGEST]))
    for css, group in groupby(tokens, key=lambda token: token[0]):
        yield Piece(css, "".join(text for _, text in group))
    if len(code) > _LONGEST:
        yield Piece("", code[_LONGEST:])


def _css(kind: _TokenType) -> str:
    return next((css for parent, css in _CLASSES if kind in parent), "")
