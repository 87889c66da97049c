"""The backbone `external`: an agent of the user that calls OpenMAIA, and not the other way round."""

from dataclasses import dataclass
from typing import Any, ClassVar

from openmaia.core.components import BackboneConfig, Component, Site
from openmaia.core.errors import UsageError


@dataclass
class ExternalConfig(BackboneConfig):
    """An agent of yours, through `openmaia.environment` or `openmaia mcp`, which set this kind."""

    agent: str = ""
    """The name of the agent, for records."""


class External(Component):
    """Stands for an agent that no process of OpenMAIA can call. The viewer answers what tools ask about images."""

    Config: ClassVar = ExternalConfig
    reads_prompts = False
    asks_viewer = True

    @classmethod
    def build(cls, config: ExternalConfig, site: Site) -> Any:
        raise UsageError(
            f"{site.key}.kind=external is an agent that calls OpenMAIA, with openmaia.environment or `openmaia mcp`; choose "
            f"another {site.key}.kind"
        )

    @staticmethod
    def title(config: ExternalConfig) -> str:
        return config.agent or "external"
