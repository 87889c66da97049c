"""Computes the number of replicas that a pool should have. Does not use Ray."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import ceil, exp

from openmaia.distributed.pools.statistics import PoolStatistics

UP_AFTER = 2.0
"""Seconds for which the demand must exceed the number of replicas before the pool grows."""

DOWN_AFTER = 30.0
"""Seconds for which the pool must have too many replicas before it shrinks: about as long as another pool takes to load."""

_WAITS_AFTER = 10.0
"""Seconds after which a pool with replicas that have not started counts as waiting for resources. Before, their
processes may still be starting."""

_SHRINK_STEP = 8
"""A pool of n replicas shrinks by at most n // _SHRINK_STEP at once, but by at least one, unless it is released."""

WINDOW = 300.0
"""Seconds over which the offered load of a pool is averaged."""


@dataclass(slots=True)
class ScalingPolicy:
    """Decides how many replicas a pool should have.

    The demand is the number of replicas that would be busy now if there were enough of them. It must stay above or
    below the number of replicas for some time before the policy changes that number (hysteresis).

    If several pools compete for the same resources and these do not suffice for all, each pool has a share
    (`fair_shares`). A pool does not grow beyond its share, and it gives up replicas above its share, even busy ones.
    Without shares, all investigations would first wait for the same pool, which would take all resources. Then all
    would wait for the next pool.
    """

    min_replicas: int
    max_replicas: int
    up_after: float = UP_AFTER
    down_after: float = DOWN_AFTER
    is_released: bool = False
    """Whether the run no longer needs the pool. All idle replicas then end together after `up_after`, even below
    `min_replicas`."""
    _high_since: float | None = None
    _low_since: float | None = None

    def desired(
        self, count: int, demand: float, now: float, *, share: int | None = None, room: int | None = None
    ) -> int:
        """Returns the number of replicas that the pool should have now.

        Args:
            count: Current number of replicas, including those that are loading or wait for resources.
            demand: Unless the pool exceeds its share, it shrinks only if this is at most `count - 1`, because it would
                otherwise grow again soon.
            now: Time of a monotonic clock, in seconds.
            share: None if the pool does not have to respect its share (see `shares_if_short`).
            room: Largest number of replicas that may be added. None if there is no limit.
        """
        lowest, highest = self._bounds(demand)
        if count < lowest:
            return lowest
        limit = highest if share is None else min(max(share, 1), highest)
        is_idle, is_above = demand <= count - 1, limit < count <= highest
        self._high_since = (self._high_since or now) if demand > count and count < limit and room != 0 else None
        self._low_since = (self._low_since or now) if is_idle or is_above else None
        if self._high_since is not None and now - self._high_since >= self.up_after:
            self._high_since = None
            added = max(min(ceil(demand) - count, count), 1)
            return min(limit, count + (added if room is None else min(added, room)))
        patience = self.up_after if self.is_released and is_idle else self.down_after
        if self._low_since is not None and now - self._low_since >= patience and count > lowest:
            self._low_since = now
            needed = max(min(ceil(demand), limit if is_above else count), lowest)
            at_once = count if self.is_released and is_idle else max(count // _SHRINK_STEP, 1)
            return max(count - at_once, needed)
        return min(count, highest)

    def claim(self, load: float | None, demand: float, placed: int, waited: float) -> "PoolClaim":
        """Returns the claim of the pool.

        Args:
            load: The offered load (`OfferedLoad.value`).
            demand: See `desired`.
            placed: See `PoolClaim`.
            waited: Seconds for which some replicas have not started; 0 if all have.
        """
        lowest, highest = self._bounds(demand)
        load = 0.0 if self.is_released else load
        largest = max(min(highest, ceil(max(demand, load or 0.0))), lowest, placed)
        return PoolClaim(load=load, placed=placed, waits=waited > _WAITS_AFTER, smallest=lowest, largest=largest)

    def _bounds(self, demand: float) -> tuple[int, int]:
        # A released pool keeps one replica while it has requests.
        lowest = (1 if demand else 0) if self.is_released else self.min_replicas
        return lowest, max(self.max_replicas, self.min_replicas)


@dataclass(slots=True)
class OfferedLoad:
    """Measures the offered load of a pool: the number of replicas that the arriving requests would keep busy.

    It is the arrival rate of requests times the mean time that a replica spends on a request. Unlike the demand, it
    does not grow with the length of the queue. The weight of older measurements decays exponentially.
    """

    window: float = WINDOW
    """Seconds in which the weight of a measurement falls to 1/e."""
    _sums: list[float] = field(default_factory=lambda: [0.0] * 4)
    """Weighted sums of the time, the requests that arrived in it, those that were answered, and their service time."""
    _before: list[float] | None = None

    @property
    def value(self) -> float | None:
        """None until a request has been answered."""
        passed, arrived, answered, seconds = self._sums
        return arrived / passed * seconds / answered if answered and passed else None

    def update(self, statistics: PoolStatistics, now: float) -> None:
        """Updates the load. The statistics start from zero again after a restart of the dispatcher. `now` is in seconds."""
        arrived = statistics.batched + statistics.waiting + statistics.outside
        measured = [now, arrived, statistics.batched - statistics.under_way, statistics.service_seconds]
        before, self._before = self._before, measured
        if before is None or not arrived or now <= before[0]:
            return
        keep = exp(-(now - before[0]) / self.window)
        grown = [max(new - old, 0.0) for new, old in zip(measured, before, strict=True)]
        self._sums = [total * keep + more for total, more in zip(self._sums, grown, strict=True)]


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolClaim:
    """What a pool has and could use, from which `fair_shares` divides replicas among pools."""

    load: float | None
    """The offered load; 0 if the run no longer needs the pool."""
    placed: int
    """Number of replicas that have their resources."""
    waits: bool
    """Whether some replicas have not started for _WAITS_AFTER seconds."""
    smallest: int
    """The least that the pool should get; of a released pool 1 while it has requests, otherwise 0."""
    largest: int
    """As many as the pool may have and could keep busy, but at least `smallest` and `placed`."""


def fair_shares(claims: Sequence[PoolClaim], free: int = 0) -> list[int]:
    """Divides replicas among pools so that the highest load per replica is as low as possible.

    Each pool first gets its smallest number. Then each further replica goes to the pool that has the highest load per
    replica at this moment. A pool whose load is not known yet keeps the replicas that it has.

    Args:
        claims: The claims of pools whose replicas need the same resources.
        free: Number of replicas for which resources are free, in addition to those that the pools have.
    """
    counts = [claim.placed if claim.load is None else claim.smallest for claim in claims]
    for _ in range(free + sum(claim.placed for claim in claims) - sum(counts)):
        growing = [n for n, claim in enumerate(claims) if claim.load and counts[n] < claim.largest]
        if not growing:
            break
        counts[max(growing, key=lambda n: (claims[n].load or 0.0) / max(counts[n], 0.5))] += 1
    return counts


def shares_if_short(claims: Sequence[PoolClaim], free: int = 0) -> list[int | None]:
    """Returns for each pool its share, or None if it does not have to respect it.

    A pool has to respect its share if another pool waits for resources and has less than its own share.
    """
    shares = fair_shares(claims, free)
    lacks = [claim.waits and claim.placed < share for claim, share in zip(claims, shares, strict=True)]
    return [share if any(lacks[:n] + lacks[n + 1 :]) else None for n, share in enumerate(shares)]
