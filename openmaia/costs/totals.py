"""What investigations have cost, added up from the headers of their records."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from openmaia.schema import POOLS
from openmaia.services import Spent


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """Of one investigation or of all of a run. seconds: of wall clock, summed over investigations, waiting included.
    Tokens are the backbone's own count of its replies to the agent; cached ones are among the prompt's. services: what
    each spent, in the order of POOLS; those that did nothing are left out."""

    investigations: int
    seconds: float
    prompt_tokens: int
    cached_tokens: int
    generated_tokens: int
    services: Mapping[str, Spent]

    @property
    def gpu_seconds(self) -> float:
        return sum(spent.gpu_seconds for spent in self.services.values())

    @property
    def replica_seconds(self) -> float:
        return sum(spent.seconds for spent in self.services.values())

    @property
    def is_on_gpus(self) -> bool:
        return self.gpu_seconds > 0


def costs(headers: Sequence[Mapping[str, Any]]) -> Costs:
    """headers: `summary` of each record, as Run.headers gives them. Investigations only: computing exemplars, testing
    descriptions, loading models and attempts that failed are in no record."""

    def total(name: str) -> int:
        return sum(header[name] for header in headers)

    spent = {
        service: sum((Spent(**header["spent"][service]) for header in headers if service in header["spent"]), Spent())
        for service in POOLS
    }
    return Costs(
        investigations=len(headers),
        seconds=sum(header["seconds"] for header in headers),
        prompt_tokens=total("prompt_tokens"),
        cached_tokens=total("cached_tokens"),
        generated_tokens=total("generated_tokens"),
        services={service: one for service, one in spent.items() if one.requests},
    )
