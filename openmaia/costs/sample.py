"""A bootstrap over recorded investigations: what other draws of units would have asked for."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from openmaia.costs.simulation import Pool, latency
from openmaia.costs.workload import Workload

Numbers = npt.NDArray[np.float64]

RESAMPLES = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """low, high: 95 % bootstrap interval (percentile method); equal to the value where nothing could be drawn."""

    value: float
    low: float
    high: float

    @classmethod
    def of(cls, value: float, draws: Sequence[float]) -> "Range":
        if not draws:
            return cls(value=value, low=value, high=value)
        low, high = np.percentile(draws, [2.5, 97.5])
        return cls(value=value, low=min(value, float(low)), high=max(value, float(high)))

    def times(self, factor: float) -> "Range":
        return Range(value=self.value * factor, low=self.low * factor, high=self.high * factor)

    @property
    def is_known(self) -> bool:
        """Whether there is an interval."""
        return self.low < self.high


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """Per investigation of a workload: replica-seconds by service, (n,) each, as recorded or else in full batches;
    seconds that it takes at least by itself, (n,); tokens, (n, 3). A draw says how often each of them occurs, (n,)."""

    least: Mapping[str, Numbers]
    replicas: Mapping[str, int]
    alone: Numbers
    token_counts: Numbers
    at_once: int

    @classmethod
    def of(cls, workload: Workload, pools: Mapping[str, Pool], at_once: int) -> "Sample":
        def least(service: str, pool: Pool) -> Numbers:
            if workload.seconds is not None:
                return np.array(workload.seconds[service], dtype=np.float64)
            asked = [sum(amount for name, amount in trace if name == service) for trace in workload.traces]
            return np.array(asked, dtype=np.float64) * pool.per_request

        return cls(
            least={service: least(service, pool) for service, pool in pools.items()},
            replicas={service: pool.replicas for service, pool in pools.items()},
            alone=np.array([latency(trace, pools) for trace in workload.traces], dtype=np.float64),
            token_counts=np.array(workload.tokens, dtype=np.float64).reshape(len(workload.traces), 3),
            at_once=at_once,
        )

    def draws(self, units: int, random: np.random.Generator) -> list[Numbers]:
        """Draws of so many units. Records are drawn anew each time, so that the interval covers both what further units
        will bring and how little a few records say. Empty with fewer than two records."""
        n = len(self.alone)
        if n < 2:
            return []
        resampled = random.multinomial(n, np.full(n, 1 / n), size=RESAMPLES)
        return [random.multinomial(units, counts / n).astype(np.float64) for counts in resampled]

    def work(self, service: str, draw: Numbers) -> float:
        return float(draw @ self.least[service])

    def bound(self, draw: Numbers) -> float:
        """simulation.bounds of a draw, the largest of them."""
        busiest = max(self.work(service, draw) / self.replicas[service] for service in self.least)
        return max(busiest, float(draw @ self.alone) / self.at_once, float(self.alone[draw > 0].max()))

    def tokens(self, counts: Numbers, draws: Sequence[Numbers]) -> tuple[Range, Range, Range]:
        prompt, cached, generated = (
            Range.of(float(counts @ column), [float(draw @ column) for draw in draws]) for column in self.token_counts.T
        )
        return prompt, cached, generated
