"""Sums the costs of investigations from the summaries of their records."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from openmaia.config.machine import POOLS
from openmaia.core.services import ServiceUsage


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """The costs of one investigation, or of all investigations of a run."""

    investigations: int
    seconds: float
    """Wall-clock time, summed over investigations. It includes time in queues."""
    prompt_tokens: int
    """Prompt tokens of all replies, as counted by the backbone (the language model that plays the agent)."""
    cached_tokens: int
    """Number of prompt tokens that were in the backbone's prefix cache."""
    generated_tokens: int
    services: Mapping[str, ServiceUsage]
    """The usage of each service that was called, by its name, in the order of `openmaia.config.machine.POOLS`."""

    @property
    def gpu_seconds(self) -> float:
        """The GPU-seconds of all services."""
        return sum(usage.gpu_seconds for usage in self.services.values())


def costs(headers: Sequence[Mapping[str, Any]]) -> Costs:
    """Sums the costs of investigations.

    The costs of computing exemplars, of evaluation, of loading models and of failed attempts are not included, because
    records do not contain them.

    Args:
        headers: The `summary` of each record, as Run.headers returns them.
    """
    spent = {
        service: sum(
            (ServiceUsage(**header["spent"][service]) for header in headers if service in header["spent"]),
            ServiceUsage(),
        )
        for service in POOLS
    }
    return Costs(
        investigations=len(headers),
        seconds=sum(header["seconds"] for header in headers),
        prompt_tokens=sum(header["prompt_tokens"] for header in headers),
        cached_tokens=sum(header["cached_tokens"] for header in headers),
        generated_tokens=sum(header["generated_tokens"] for header in headers),
        services={service: usage for service, usage in spent.items() if usage.requests},
    )
