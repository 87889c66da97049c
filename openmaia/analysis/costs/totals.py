"""Sums the costs of investigations from the summaries of their records."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from openmaia.config.machine import POOLS
from openmaia.core.money import FREE, Bill
from openmaia.core.services import ServiceUsage


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceTime:
    """The time that a service worked for investigations. Requests of a batch share its time equally."""

    service: str
    requests: int
    seconds: float
    is_on_gpus: bool
    """Whether `seconds` are those of GPUs. Otherwise they are those of replicas."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """The costs of one investigation, or of all investigations of a run."""

    investigations: int
    seconds: float
    """Wall-clock time, summed over investigations, with time in queues."""
    prompt_tokens: int
    cached_tokens: int
    """Number of prompt tokens that were in the backbone's prefix cache."""
    generated_tokens: int
    services: Mapping[str, ServiceUsage]
    """Only services that were called."""

    @property
    def bill(self) -> Bill:
        """The cost of all services."""
        return sum((Bill(usage.dollars, usage.unpriced) for usage in self.services.values()), FREE)

    @property
    def gpu_seconds(self) -> float:
        """The GPU-seconds of all services."""
        return sum(usage.gpu_seconds for usage in self.services.values())

    @property
    def times(self) -> tuple[ServiceTime, ...]:
        """The time of each service."""
        return tuple(
            ServiceTime(
                service=service,
                requests=usage.requests,
                seconds=usage.gpu_seconds or usage.seconds,
                is_on_gpus=usage.gpu_seconds > 0,
            )
            for service, usage in self.services.items()
        )


def costs(headers: Sequence[Mapping[str, Any]]) -> Costs:
    """Sums the costs of investigations from the summaries of their records.

    Exemplars, evaluation, loading of models and failed attempts are in no record, and not included.
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
        services={
            service: usage for service, usage in spent.items() if usage.requests or usage.dollars or usage.unpriced
        },
    )
