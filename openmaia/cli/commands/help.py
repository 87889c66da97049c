"""Command classes whose --help reads well in a terminal of 80 columns.

Typer 0.29 prints `<bool>` beside every flag, and keeps the line breaks of a docstring after its first paragraph.
"""

from inspect import cleandoc
from typing import Any

from typer.core import TyperCommand, TyperGroup, TyperOption


class _Readable:
    help: str | None

    def __init__(self, *args: Any, **options: Any):
        super().__init__(*args, **options)
        self.help = _unwrapped(self.help)

    def get_params(self, ctx: Any) -> list[Any]:
        """Returns all parameters, `--help` included."""
        return _without_flag_types(super().get_params(ctx))  # pyright: ignore[reportAttributeAccessIssue]


class Command(_Readable, TyperCommand):
    """A command."""


class Group(_Readable, TyperGroup):
    """A group of commands."""


def _unwrapped(text: str | None) -> str:
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in cleandoc(text or "").split("\n\n"))


def _without_flag_types(parameters: list[Any]) -> list[Any]:
    for each in parameters:
        if isinstance(each, TyperOption) and each.is_bool_flag:
            each.metavar = ""
    return parameters
