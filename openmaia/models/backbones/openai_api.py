"""The backbone `openai`: a server with OpenAI's chat completions API."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from openmaia.core.checks import Check
from openmaia.core.components import Site
from openmaia.models.backbones.served import ChatServerConfig, SampledConfig, ServedModel, server_checks


@dataclass
class OpenAiConfig(ChatServerConfig, SampledConfig):
    """A server with OpenAI's interface."""

    protocol: Literal["text", "grammar", "tools"] = "text"
    """The form in which the model writes an experiment or an answer. `text`: text with headings, as in the published
    MAIA code; `grammar`: the same text, which the server enforces (llama.cpp, vLLM or SGLang); `tools`: calls of two
    functions, for models that were trained to call functions."""


class OpenAi(ServedModel):
    """Builds an `OpenAiBackbone`, whose module imports the client library."""

    Config: ClassVar = OpenAiConfig
    is_served = True
    price_keys = ("input_price", "output_price")
    address = "https://api.openai.com/v1"

    @classmethod
    def build(cls, config: OpenAiConfig, site: Site) -> Any:
        from openmaia.models.backbones.openai_server import OpenAiBackbone

        return OpenAiBackbone(config, site.key)

    @staticmethod
    def checks(config: OpenAiConfig, site: Site) -> Iterator[Callable[[], Check]]:
        return server_checks("openai", OpenAi.build, config, site)
