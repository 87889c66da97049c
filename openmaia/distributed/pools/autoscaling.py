"""Computes the number of replicas that a pool should have. Does not use Ray."""

from dataclasses import dataclass
from math import ceil

UP_AFTER = 2.0
"""Time in seconds for which the demand must exceed the number of replicas before the pool grows."""

DOWN_AFTER = 30.0
"""Time in seconds for which the demand must be below the number of replicas before the pool shrinks."""

DOWN_AFTER_IF_WANTED = 5.0
"""Replaces DOWN_AFTER while another pool waits for resources, and after the run has released the pool."""


@dataclass(slots=True)
class ScalingPolicy:
    """Decides how many replicas a pool, which serves one model, should have, with hysteresis.

    The demand, the number of replicas that could be busy, must stay high or low for some time before anything changes.
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

    def desired(self, count: int, demand: float, now: float, *, others_wait: bool = False) -> int:
        """Returns the number of replicas that the pool should have now.

        Args:
            count: Current number of replicas, including those that are loading.
            demand: Number of replicas that would be busy now if there were enough of them. The pool shrinks only if one
                fewer would do, so that it does not grow again at once.
            now: Time of a monotonic clock, in seconds.
            others_wait: Whether another pool waits for resources.
        """
        lowest, highest = self._bounds(demand)
        if count < lowest:
            return lowest
        self._high_since = (self._high_since or now) if demand > count else None
        self._low_since = (self._low_since or now) if demand <= count - 1 else None
        if self._high_since is not None and now - self._high_since >= self.up_after and count < highest:
            self._high_since = None
            return min(highest, max(count + 1, min(ceil(demand), 2 * count)))
        patience = self.down_after_if_wanted if others_wait or self.is_released else self.down_after
        if self._low_since is not None and now - self._low_since >= patience and count > lowest:
            self._low_since = now
            return max(ceil(demand), lowest) if self.is_released else count - 1
        return min(count, highest)

    def _bounds(self, demand: float) -> tuple[int, int]:
        """Returns the smallest and the largest number of replicas. A released pool keeps one while it has requests."""
        lowest = (1 if demand else 0) if self.is_released else self.min_replicas
        return lowest, max(self.max_replicas, self.min_replicas)
