"""Describes the API in the prompt, from the signatures and docstrings of what the agent can call."""

import inspect
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache
from itertools import groupby
from typing import Any

from openmaia.agent.tools import api, built_in, effects, values
from openmaia.core.tools import BUILT_IN
from openmaia.core.units import Scope

CONDITIONAL = (*built_in.conditional(), *effects.NAMES)
"""Tools and methods of `system` that not every investigation has."""

_WITHHELD = "Not available in this investigation: "


def api_text(
    user_tools: Mapping[str, Callable[..., Any]],
    scope: Scope = Scope.UNIT,
    without: Sequence[str] = (),
    available: Collection[str] = (),
) -> str:
    """Returns the description of what the agent's code can call, without withheld tools and every example that calls
    one of them. Of what not every investigation has (`CONDITIONAL`), it names those that are `available`.
    """
    hidden = (*without, *(name for name in CONDITIONAL if name not in available))
    systems = [api.System] if scope is Scope.UNIT else [api.Network, api.System]
    names = ["system"] if scope is Scope.UNIT else ["system", "unit"]
    sections = [
        *(_class(name, kind, hidden) for name, kind in zip(names, systems, strict=True)),
        _class("tools", api.Tools, hidden),
        _doc("images", inspect.getdoc(values.Image) or ""),
    ]
    if user_tools:
        own = (_function(f"tools.{name}", function) for name, function in user_tools.items())
        sections.insert(-1, "\n".join(own))
    text = "\n\n".join(sections)
    if not without:
        return text
    named = [f"tools.{name}" for name in without]
    parts = [list(lines) for _, lines in groupby(text.splitlines(), lambda line: line.strip()[:3] in (">>>", "..."))]
    kept = [line for part in parts if not any(f"{name}(" in line for name in named for line in part) for line in part]
    return "\n".join([*kept, "", f"{_WITHHELD}{', '.join(named)}."])


@cache
def _class(name: str, kind: type, without: tuple[str, ...]) -> str:
    methods = [(key, value) for key, value in vars(kind).items() if inspect.isfunction(value) and key[0] != "_"]
    methods.sort(key=lambda each: each[0] not in BUILT_IN)
    named = [
        _function(f"{name}.{key}", value) for key, value in methods if key == value.__name__ and key not in without
    ]
    return _doc(f"`{name}`", inspect.getdoc(kind) or "") + "\n\n" + "\n\n".join(named)


def _function(name: str, function: Callable[..., Any]) -> str:
    signature = inspect.signature(function)
    kept = [
        p.replace(annotation=p.annotation if p.annotation is not Any else p.empty)
        for p in signature.parameters.values()
    ]
    shown = signature.replace(parameters=[p for p in kept if p.name != "self"])
    if shown.return_annotation is Any:
        shown = shown.replace(return_annotation=inspect.Signature.empty)
    plain = re.sub(r"\[(?:typing\.)?Any(?:, \.\.\.)?\]|typing\.", "", f"{name}{shown}")
    # The one class of the API that a tool names; it is in another file, so that the annotation is a text.
    plain = plain.replace(": 'System'", ": System").replace(f"{api.__name__}.", "")
    return _doc(plain, inspect.getdoc(function) or "")


def _doc(head: str, body: str) -> str:
    return "\n".join([head, *(f"    {line}".rstrip() for line in body.splitlines())])
