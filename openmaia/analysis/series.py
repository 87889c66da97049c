"""Time series of a run, such as rates and shares, from counters that only grow."""

from collections import Counter
from collections.abc import Mapping

TOKENS = ("prompt_tokens", "cached_tokens", "generated_tokens")
_GAUGES = {"waiting": "queue", "under_way": "under_way", "replicas": "replicas", "deaths": "deaths"}
"""Statistics of pools that are shown unchanged, with the names of their time series."""

Counters = Mapping[str, Mapping[str, float]]
"""Statistics since the start, by pool and name."""


class LiveSeries:
    """Computes progress of stages, failures, and work of pools. Times are in seconds since the epoch."""

    def __init__(self) -> None:
        self._starts: dict[str, tuple[float, int]] = {}
        self._stages: dict[str, tuple[int, int]] = {}
        self._failures: Counter[str] = Counter()
        self._before: tuple[float, Counters] = (0.0, {})
        self._now = self._before

    def progress(self, stage: str, done: int, total: int, time: float) -> None:
        """Sets the progress of a stage, such as "investigations"."""
        self._starts.setdefault(stage, (time, done))
        self._stages[stage] = (done, total)

    def failed(self, cause: str) -> None:
        """Counts a failed investigation by the type of its error: the text before the first colon of `cause`."""
        kind = cause.partition(":")[0].strip()
        self._failures[kind[:64] if kind.isidentifier() and kind.isascii() else "other"] += 1

    def sample(self, counters: Counters, time: float) -> None:
        """Sets the statistics of the pools."""
        self._now = (time, counters)

    def values(self, time: float) -> dict[str, float]:
        """Returns the values of all time series, by name.

        A rate of a pool covers the time between two samples: the one that the previous call used, and the latest. A
        rate of a stage covers the time since the stage started.
        """
        values = {f"{stage}/{key}": value for stage in self._stages for key, value in self._stage(stage, time).items()}
        values |= {f"failures/{kind}": count for kind, count in self._failures.items()}
        if self._now is not self._before:
            for role in self._now[1]:
                values |= {f"pools/{role}/{key}": value for key, value in self._pool(role).items()}
            self._before = self._now
        return values

    def _stage(self, stage: str, time: float) -> dict[str, float]:
        (began, before), (done, total) = self._starts[stage], self._stages[stage]
        values: dict[str, float] = {"done": done, "total": total}
        if time > began:
            values["per_minute"] = 60 * (done - before) / (time - began)
        if done > before and done < total:
            values["eta_minutes"] = (total - done) / values["per_minute"]
        return values

    def _pool(self, role: str) -> dict[str, float]:
        """Returns the gauges and the rates of a pool.

        `occupancy` is the mean size of a batch as a share of the largest permitted one. `utilisation` is the share of
        the replicas' time in which they had work. `hit_share` is the share of requests that the cache answered, or that
        got the answer to an equal request that was still unfinished.
        """
        old, new = self._before[1].get(role), self._now[1][role]
        seconds = self._now[0] - self._before[0]
        values = {shown: new[name] for name, shown in _GAUGES.items() if name in new}
        if old is None or seconds <= 0:
            return values

        def growth(name: str) -> float:  # A counter that decreased is one of a pool that was started again.
            return new.get(name, 0) - (old.get(name, 0) if new.get(name, 0) >= old.get(name, 0) else 0)

        values["requests_per_second"] = growth("requests") / seconds
        if batches := growth("batches"):
            values["batch"] = growth("batched") / batches
            values["occupancy"] = growth("batch_fill") / batches
        if replicas := new.get("replicas"):
            values["utilisation"] = min(1.0, growth("busy_seconds") / (seconds * replicas))
        hits = growth("cache_hits") + growth("cache_joined")
        if lookups := hits + growth("cache_misses"):
            values["hit_share"] = hits / lookups
        return values | {f"{name}_per_second": growth(name) / seconds for name in TOKENS if new.get(name)}
