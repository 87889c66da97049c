"""Command classes whose --help reads well in a terminal of 80 columns, and that name the nearest command.

Typer 0.29 prints `<bool>` beside every flag, and keeps the line breaks of a docstring after its first paragraph.
"""

from difflib import get_close_matches
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
    """A group of commands. For an unknown one it also suggests commands of the groups inside."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Finds the command that arguments begin with. Ends the program with exit code 2 if there is none."""
        if self.get_command(ctx, args[0]) is None and not ctx.resilient_parsing:
            inner = {
                f"{name} {each}": each
                for name, group in self.commands.items()
                if isinstance(group, TyperGroup)
                for each in group.commands
            }
            if found := [path for path, own in inner.items() if get_close_matches(args[0], (own, path), cutoff=0.8)]:
                ctx.fail(f"No such command {args[0]!r}. Did you mean {', '.join(map(repr, found))}?")
        return super().resolve_command(ctx, args)


def _unwrapped(text: str | None) -> str:
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in cleandoc(text or "").split("\n\n"))


def _without_flag_types(parameters: list[Any]) -> list[Any]:
    for each in parameters:
        if isinstance(each, TyperOption) and each.is_bool_flag:
            each.metavar = ""
    return parameters
