"""The tools that a config may withhold, in files of their names. Such a file holds two functions:

- One with the name of the tool, which becomes a method of `openmaia.agent.tools.api.Tools`: what the agent's code calls.
  Its signature and docstring are in the prompt. Its source alone is sent into the sandbox, so it uses nothing but what
  `openmaia.agent.tools.values` defines or imports.
- `answer`, which answers its calls outside of the sandbox. Their arguments come from code that may be hostile.

A tool that not every investigation has also says when, and may say more:

- `exists(context)`: whether an investigation has it.
- `opening(context)`: yields what the first message says beside the question, where the task is about a unit.
- `NOTE`: what the records of investigations that have it say.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

from openmaia.core.messages import Part
from openmaia.core.tools import BUILT_IN
from openmaia.core.units import Scope

if TYPE_CHECKING:
    from openmaia.agent.context import InvestigationContext


def stubs() -> Mapping[str, Callable[..., Any]]:
    """Returns what the agent's code calls, by the names of the tools."""
    return {name: getattr(file, name) for name, file in _files().items()}


def conditional() -> tuple[str, ...]:
    """Returns the tools that not every investigation has."""
    return tuple(name for name, file in _files().items() if hasattr(file, "exists"))


def available(context: "InvestigationContext") -> Mapping[str, Callable[..., Any]]:
    """Returns what answers the calls of the tools that an investigation has, by name. The first argument is the `Toolbox`."""
    return {name: file.answer for name, file in _available(context).items()}


def notes(context: "InvestigationContext") -> tuple[str, ...]:
    """Returns what the record of an investigation says of its tools."""
    return tuple(file.NOTE for file in _available(context).values() if hasattr(file, "NOTE"))


def opening(context: "InvestigationContext") -> Iterator[Part]:
    """Yields what the first message says of the tools of an investigation, beside the prompt."""
    if context.unit.scope is Scope.UNIT:
        for file in _available(context).values():
            if hasattr(file, "opening"):
                yield from file.opening(context)


@cache
def _files() -> Mapping[str, ModuleType]:
    return {name: import_module(f"{__name__}.{name}") for name in BUILT_IN}


def _available(context: "InvestigationContext") -> Mapping[str, ModuleType]:
    kept = {name: file for name, file in _files().items() if name not in context.options.without}
    return {name: file for name, file in kept.items() if not hasattr(file, "exists") or file.exists(context)}
