"""What the driver tells the process that tracks: plain values, so that neither needs to know the other's modules."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """One investigation. summary: of its record, None where it failed; cause: why it failed. time: seconds since the
    epoch, here and below."""

    summary: Mapping[str, Any] | None
    cause: str
    time: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    stage: str
    done: int
    total: int
    time: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """counters: pool -> counter -> its value since the pool started."""

    counters: Mapping[str, Mapping[str, float]]
    time: float


Message = Ended | Progress | Sample
