"""The backbone `python`: an object that was passed to OpenMAIA's Python functions."""

from dataclasses import dataclass
from typing import Any, ClassVar

from openmaia.core.components import BackboneConfig, Component, Site
from openmaia.core.errors import session_object_error


@dataclass
class PassedBackboneConfig(BackboneConfig):
    """Set by OpenMAIA if an object was passed to its Python functions (`openmaia.investigate`)."""


class PassedBackbone(Component):
    """Stands for an object that only the process has to which it was passed."""

    Config: ClassVar = PassedBackboneConfig
    reads_prompts = False  # it may be a person, who is not asked for test prompts

    @classmethod
    def build(cls, config: PassedBackboneConfig, site: Site) -> Any:
        raise session_object_error(f"{site.key}.kind", f"another {site.key}.kind")
