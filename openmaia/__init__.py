"""OpenMAIA: agents that find out what the neurons of vision networks do."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from openmaia.agent.tools.api import System
    from openmaia.notebook import NotebookTools

__version__ = "0.1.0"


def open(config: str | list[str], unit: str) -> "tuple[System, NotebookTools]":
    """The instruments of one unit for a person, in this process: `system, tools = openmaia.open(config, "layer4=122")`.

    The same functions as the agent's; images show in a notebook. `tools.answer(description, *labels)` ends the
    investigation and writes its record, whose backbone is `human`; `tools.close()` ends it without an answer.
    """
    from openmaia.notebook import open_unit

    return open_unit(config, unit)


def __dir__() -> list[str]:
    return ["__version__", "open"]
