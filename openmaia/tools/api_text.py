"""The prompt's API text, made from the signatures and docstrings of what the agent can call."""

import inspect
import re
from collections.abc import Callable, Mapping
from typing import Any

from openmaia.tools import api
from openmaia.units import Scope


def api_text(user_tools: Mapping[str, Callable[..., Any]], scope: Scope = Scope.UNIT) -> str:
    systems = [api.System] if scope is Scope.UNIT else [api.Network, api.System]
    names = ["system"] if scope is Scope.UNIT else ["system", "unit"]
    sections = [
        *map(_class, names, systems),
        _class("tools", api.Tools),
        _doc("images", inspect.getdoc(api.Image) or ""),
    ]
    if user_tools:
        own = (_function(f"tools.{name}", function) for name, function in user_tools.items())
        sections.insert(-1, "\n".join(own))
    return "\n\n".join(sections)


def _class(name: str, kind: type) -> str:
    methods = [(key, value) for key, value in vars(kind).items() if inspect.isfunction(value) and key[0] != "_"]
    named = [_function(f"{name}.{key}", value) for key, value in methods if key == value.__name__]
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
    plain = re.sub(r"\[(?:typing\.)?Any(?:, \.\.\.)?\]|typing\.|openmaia\.tools\.api\.", "", f"{name}{shown}")
    return _doc(plain, inspect.getdoc(function) or "")


def _doc(head: str, body: str) -> str:
    return head + "\n" + "\n".join(f"    {line}".rstrip() for line in body.splitlines())
