"""Computes the number of replicas that a pool should have. Does not use Ray."""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, exp

from openmaia.distributed.pools.statistics import PoolStatistics

UP_AFTER = 2.0
"""Time in seconds for which the demand must exceed the number of replicas before the pool grows."""

DOWN_AFTER = 30.0
"""Time in seconds for which the demand must be below the number of replicas before the pool shrinks."""

DOWN_AFTER_IF_WANTED = 5.0
"""Replaces DOWN_AFTER while another pool waits for resources, and after the run has released the pool."""


SHRINK_STEP = 8
"""A pool shrinks by at most one of this many replicas at once, but at least by one."""

ABOVE_SHARE = 1
"""A pool may have so many replicas more than its fair share. Shares are whole numbers, and where a pool has few replicas it
would otherwise be too few or too many for good; this way pools take turns."""

WINDOW = 300.0
"""Time in seconds over which the offered load of a pool is averaged."""


@dataclass(slots=True)
class ScalingPolicy:
    """Decides how many replicas a pool, which serves one model, should have, with hysteresis.

    The demand, the number of replicas that could be busy, must stay high or low for some time before anything changes.
    Where the resources do not suffice for all pools, each gets about its fair share (`fair_shares`): it grows no further,
    and gives up what it has above it, even if that is busy. Otherwise all investigations would wait for one pool, which
    would take all resources, and then for the next one.
    """

    min_replicas: int
    max_replicas: int
    up_after: float = UP_AFTER
    """Time in seconds for which the demand must exceed the number of replicas before the pool grows."""
    down_after: float = DOWN_AFTER
    """Time in seconds for which one replica fewer must satisfy the demand before the pool shrinks."""
    down_after_if_wanted: float = DOWN_AFTER_IF_WANTED
    """Replaces `down_after` while another pool waits for resources, and after the run has released the pool."""
    is_released: bool = False
    """Whether the run no longer needs the pool. All idle replicas then end together, even below `min_replicas`."""
    _high_since: float | None = None
    _low_since: float | None = None

    def desired(
        self,
        count: int,
        demand: float,
        now: float,
        *,
        others_wait: bool = False,
        fair: int | None = None,
        is_waiting: bool = False,
    ) -> int:
        """Returns the number of replicas that the pool should have now.

        Args:
            count: Current number of replicas, including those that are loading or wait for resources.
            demand: Number of replicas that would be busy now if there were enough of them. An idle replica ends only if
                one fewer would do, so that the pool does not grow again at once.
            now: Time of a monotonic clock, in seconds.
            others_wait: Whether another pool waits for resources.
            fair: The fair share of the pool in the resources of all pools, as a number of replicas; None if unknown.
            is_waiting: Whether the pool waits for resources. It then asks for no more of them: Ray serves whoever asked
                first, and would load models that are no longer needed.
        """
        lowest, highest = self._bounds(demand)
        if count < lowest:
            return lowest
        limit = highest if fair is None or not others_wait else min(fair + ABOVE_SHARE, highest)
        is_idle, is_above = demand <= count - 1, limit < count <= highest
        self._high_since = (self._high_since or now) if demand > count and count < limit and not is_waiting else None
        self._low_since = (self._low_since or now) if is_idle or is_above else None
        if self._high_since is not None and now - self._high_since >= self.up_after:
            self._high_since = None
            return min(limit, max(count + 1, min(ceil(demand), 2 * count)))
        patience = self.down_after_if_wanted if others_wait or self.is_released else self.down_after
        if self._low_since is not None and now - self._low_since >= patience and count > lowest:
            self._low_since = now
            needed = max(min(ceil(demand), limit if is_above else count), lowest)
            at_once = count if self.is_released and is_idle else max(count // SHRINK_STEP, 1)
            return max(count - at_once, needed)
        return min(count, highest)

    def _bounds(self, demand: float) -> tuple[int, int]:
        """Returns the smallest and the largest number of replicas. A released pool keeps one while it has requests."""
        lowest = (1 if demand else 0) if self.is_released else self.min_replicas
        return lowest, max(self.max_replicas, self.min_replicas)


@dataclass(slots=True)
class OfferedLoad:
    """Measures how many replicas of a pool the requests that arrive would keep busy, averaged over a window.

    Unlike the demand, it depends neither on the number of replicas nor on the queue. The average is exponential; while less
    time than the window has passed, it is over the whole time.
    """

    window: float = WINDOW
    """The time in seconds over which it is averaged."""
    value: float | None = None
    """The load: replica-seconds of requests per second. None until the first request has been answered."""
    _arrived: int = 0
    """The number of requests that are part of the average."""
    _began: float | None = None
    _updated: float = 0.0

    def update(self, statistics: PoolStatistics, now: float) -> None:
        """Adds the requests that have arrived since the last update.

        Args:
            statistics: The statistics of the pool.
            now: Time of a monotonic clock, in seconds.
        """
        if self._began is None:
            self._began = self._updated = now
        answered = statistics.batched - statistics.under_way
        passed = now - self._updated
        if not answered or passed <= 0:
            return
        arrived = statistics.batched + statistics.waiting + statistics.outside
        rate = max(arrived - self._arrived, 0) * statistics.service_seconds / answered / passed
        self._arrived, self._updated = arrived, now
        share = 1 - exp(-passed / min(self.window, now - self._began))
        self.value = rate if self.value is None else self.value + share * (rate - self.value)


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolClaim:
    """What the fair share of a pool depends on."""

    load: float | None
    """The offered load (`OfferedLoad.value`)."""
    placed: int
    """Number of replicas that have resources."""
    smallest: int
    """The smallest number of replicas."""
    size: float
    """The resources of each replica: its GPUs, or its CPUs if no pool has GPUs."""


def fair_shares(claims: Sequence[PoolClaim], free: float = 0.0) -> list[int]:
    """Divides the resources that pools have among them such that the most loaded replica has as little load as possible.

    Each pool first gets its smallest number of replicas. All others go one by one to the pool with the highest load for
    each replica. A pool whose load is not known yet, or whose replicas have no size, keeps the replicas that it has.

    Args:
        claims: One claim for each pool.
        free: The resources that no pool has.

    Returns:
        The number of replicas of each pool.
    """
    known = [claim.load is not None and claim.size > 0 for claim in claims]
    counts = [claim.smallest if is_known else claim.placed for claim, is_known in zip(claims, known, strict=True)]
    left = free + sum((claim.placed - count) * claim.size for claim, count in zip(claims, counts, strict=True))
    order = [
        (-(claim.load or 0.0) / max(counts[n], 1e-3), n) for n, claim in enumerate(claims) if known[n] and claim.load
    ]
    heapq.heapify(order)
    while order:
        _, n = heapq.heappop(order)
        if claims[n].size <= left:
            counts[n] += 1
            left -= claims[n].size
            heapq.heappush(order, (-(claims[n].load or 0.0) / counts[n], n))
    return counts
