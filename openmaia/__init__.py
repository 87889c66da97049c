"""OpenMAIA: agents that find out what the neurons of vision networks do."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from openmaia.api.asking import ask
    from openmaia.api.environment import environment
    from openmaia.api.investigate import investigate
    from openmaia.api.notebook import assign, open
    from openmaia.api.result import UnitResult
    from openmaia.api.runs import LoadedRun, load, load_models, sweep
    from openmaia.serving.environment import Environment, Step

    __version__: str

__all__ = [
    "Environment", "LoadedRun", "Step", "UnitResult", "__version__", "ask", "assign", "environment", "investigate", "load", "load_models",
    "open", "sweep",
]  # fmt: skip

_PLACES = {
    "ask": "openmaia.api.asking",
    "assign": "openmaia.api.notebook",
    "environment": "openmaia.api.environment",
    "Environment": "openmaia.serving.environment",
    "Step": "openmaia.serving.environment",
    "investigate": "openmaia.api.investigate",
    "open": "openmaia.api.notebook",
    "UnitResult": "openmaia.api.result",
    "LoadedRun": "openmaia.api.runs",
    "load": "openmaia.api.runs",
    "load_models": "openmaia.api.runs",
    "sweep": "openmaia.api.runs",
}
"""The module of each public name. It is imported when the name is first used, so that `import openmaia` stays fast."""


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("openmaia")
    if name in _PLACES:
        return getattr(import_module(_PLACES[name]), name)
    raise AttributeError(f"module 'openmaia' has no attribute {name!r}; it has {', '.join(sorted(_PLACES))}")


def __dir__() -> list[str]:
    return __all__
