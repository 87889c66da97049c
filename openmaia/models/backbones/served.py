"""What backbones that are language models have in common: keys of their configs, and how servers are checked."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from omegaconf import MISSING

from openmaia.core.checks import Check
from openmaia.core.components import BackboneConfig, Component, Site, machine, within
from openmaia.core.importing import has_module
from openmaia.models.server_access import server_check


@dataclass
class ServedConfig(BackboneConfig):
    """The keys of a language model."""

    model: str = MISSING
    """vllm: a name on the Hugging Face hub or a folder. openai, anthropic: the name of the model on the server."""
    temperature: float = within(0.7, zero=True)
    """Sampling temperature. It rises by 0.3 with each successive turn that brings nothing new, up to 1.5 with vllm and
    with `protocol=grammar`, and up to 1 otherwise."""
    context_tokens: int = 32768
    """Longest conversation in tokens, including the next reply. A longer one loses its oldest images first, then its
    oldest experiment outputs."""
    images_per_prompt: int = 64
    """Largest number of images in a conversation."""
    concurrency: int = machine(32)
    """Number of conversations that are answered concurrently: per replica (vllm), or in total (openai, anthropic)."""


@dataclass
class SampledConfig(ServedConfig):
    """The keys of a language model that takes `top_p` beside `temperature`."""

    top_p: float = 0.95
    """Nucleus sampling: the probability mass that is sampled from."""


@dataclass
class ChatServerConfig(ServedConfig):
    """The keys of a server."""

    base_url: str = machine("")
    """Address of the server. Empty: that of OpenAI or Anthropic. API keys are read from the variables OPENAI_API_KEY and
    ANTHROPIC_API_KEY."""
    timeout: float = machine(300.0)
    """Longest silence of a server in seconds: before the first token of a reply, or between two tokens."""
    batch: bool = machine(False)
    """Whether requests are sent as batches, which are answered within a day at half the price: for `evaluate.writer`, whose
    model writes prompts, judges and compares."""
    tries: int = machine(6)
    """Attempts of a request to a server that is overloaded or unreachable, before this counts as an outage."""
    input_price: float | None = machine(None, zero=True)
    """US dollars for a million prompt tokens. null, as for the keys below: the price in `prices.file` or that of this package."""
    cached_price: float | None = machine(None, zero=True)
    """The same for those that the server has in its cache; null without a known price: that of the others."""
    written_price: float | None = machine(None, zero=True)
    """The same for those that the server writes to its cache, if it counts them; null as above."""
    output_price: float | None = machine(None, zero=True)
    """US dollars for a million generated tokens."""


class ServedModel(Component):
    """The base of language models."""

    @staticmethod
    def problems(config: Any, site: Site) -> Iterator[str]:
        if getattr(config, "batch", False) and site.key != "evaluate.writer":
            yield f"{site.key}.batch=true: an agent or a viewer cannot wait for a batch; batch is for evaluate.writer"

    @staticmethod
    def title(config: Any) -> str:
        return f"{config.model} ({config.kind})"


def server_checks(
    library: str, build: Callable[[Any, Site], Any], config: ChatServerConfig, site: Site
) -> Iterator[Callable[[], Check]]:
    """Yields the check that the server of an `Endpoint` answers, accepts the key and has the model."""
    # Otherwise `packages` says so.
    if has_module(library):
        yield partial(server_check, library, lambda: build(config, site).access, waits=site.waits)
