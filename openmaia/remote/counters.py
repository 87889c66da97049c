"""What a pool counts about itself, and the same numbers among Ray's own metrics."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

from ray.util.metrics import Counter, Gauge

LIVE = ("waiting", "outside", "under_way", "replicas", "longest_queue_seconds")
"""What may also fall. Everything else only grows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Counters:
    """Since the dispatcher started.

    requests: handed in, those answered from the cache included. batched: requests sent to replicas, so that batched /
    batches is the mean batch; what is tried again is counted again. busy_seconds: time in which a replica had work, summed
    over replicas. queue_seconds: between handing in and being sent, summed over requests.
    """

    requests: int = 0
    batches: int = 0
    batched: int = 0
    busy_seconds: float = 0.0
    queue_seconds: float = 0.0
    longest_queue_seconds: float = 0.0
    deaths: int = 0
    """Replicas that died or were given up."""
    dropped: int = 0
    """Requests of callers that left before they were sent."""
    failures: Mapping[str, int] = field(default_factory=dict[str, int])
    """Requests that could not be answered, by cause: error (the host raised), died and late (twice, over this request),
    unusable (no replica can be started)."""
    cache_hits: int = 0
    cache_misses: int = 0
    cache_joined: int = 0
    """Requests that share the answer to an equal one that was under way."""
    prompt_tokens: int = 0
    cached_tokens: int = 0
    generated_tokens: int = 0
    waiting: int = 0
    """Requests in line now."""
    outside: int = 0
    """Requests whose callers now wait until there is room in the line."""
    under_way: int = 0
    """Requests that replicas have now."""
    replicas: int = 0
    """Ready now."""

    @property
    def failed(self) -> int:
        """Requests that could not be answered."""
        return sum(self.failures.values())


class Metrics:
    """Ray exports them to Prometheus as ray_openmaia_pool_…, tagged with role and run, failures with their cause too."""

    def __init__(self, role: str, run: str):
        self._tags = {"role": role, "run": run}
        self._gauges = {name: Gauge(_name(name), tag_keys=("role", "run")) for name in LIVE}
        self._counters: dict[str, Counter] = {}
        self._before: dict[str, float] = {}

    def publish(self, counters: Counters) -> None:
        now = asdict(counters)
        for name, gauge in self._gauges.items():
            gauge.set(now.pop(name), self._tags)
        for cause, count in now.pop("failures").items():
            self._count(f"failures/{cause}", count, {"cause": cause})
        for name, count in now.items():
            self._count(name, count, {})

    def _count(self, name: str, value: float, more: Mapping[str, str]) -> None:
        if name not in self._counters:
            keys = ("role", "run", *more)
            self._counters[name] = Counter(_name(name.partition("/")[0]), tag_keys=keys)
        grown = value - self._before.get(name, 0.0)
        if grown > 0:
            self._counters[name].inc(grown, {**self._tags, **more})
            self._before[name] = value


def _name(name: str) -> str:
    return f"openmaia_pool_{name}"
