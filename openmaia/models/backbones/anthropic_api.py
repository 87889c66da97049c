"""The backbone `anthropic`: Anthropic's messages API."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from openmaia.core.checks import Check
from openmaia.core.components import Site
from openmaia.core.shipped import install_command
from openmaia.models.backbones.served import ChatServerConfig, ServedModel, server_checks


@dataclass
class AnthropicConfig(ChatServerConfig):
    """Anthropic's server. Its newer models take `temperature` or `top_p`, but not both."""


class Anthropic(ServedModel):
    """Builds an `AnthropicBackbone`, whose module imports the client library."""

    Config: ClassVar = AnthropicConfig
    is_served = True
    price_keys = ("input_price", "output_price")
    address = "https://api.anthropic.com"

    @classmethod
    def build(cls, config: AnthropicConfig, site: Site) -> Any:
        from openmaia.models.backbones.anthropic_server import AnthropicBackbone

        return AnthropicBackbone(config, site.key)

    @staticmethod
    def checks(config: AnthropicConfig, site: Site) -> Iterator[Callable[[], Check]]:
        return server_checks("anthropic", Anthropic.build, config, site)

    @staticmethod
    def packages(config: AnthropicConfig, site: Site) -> Iterator[tuple[str, str, str]]:
        yield f"kind={config.kind}", "anthropic", install_command("api")
