"""The tools that a config may withhold, in files of their names. Such a file holds two functions:

- One with the name of the tool, which becomes a method of `openmaia.agent.tools.api.Tools`: what the agent's code calls.
  Its signature and docstring are in the prompt. Its source alone is sent into the sandbox, so it uses nothing but what
  `openmaia.agent.tools.values` defines or imports.
- `answer`, which answers its calls outside of the sandbox. Their arguments come from code that may be hostile.
"""

from collections.abc import Callable, Mapping
from functools import cache
from importlib import import_module
from typing import Any

from openmaia.core.tools import BUILT_IN


@cache
def stubs() -> Mapping[str, Callable[..., Any]]:
    """Returns what the agent's code calls, by the names of the tools."""
    return {name: getattr(import_module(f"{__name__}.{name}"), name) for name in BUILT_IN}


@cache
def answers() -> Mapping[str, Callable[..., Any]]:
    """Returns what answers the calls, by the names of the tools. The first argument is the `Toolbox`."""
    return {name: import_module(f"{__name__}.{name}").answer for name in BUILT_IN}
