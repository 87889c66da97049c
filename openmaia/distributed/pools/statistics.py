"""The statistics and the state of a pool, and their publication as Ray metrics."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

from ray.util.metrics import Counter, Gauge, Histogram

_GAUGES = ("waiting", "outside", "under_way", "replicas", "longest_queue_seconds")
"""The statistics that are published as gauges: current values and a maximum. All others are sums, which only grow and are
published as counters."""

_LATENCY_BOUNDS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0)
"""Bucket boundaries of the latency histogram, in seconds. Ray exports exact counts and an estimated sum."""


@dataclass(slots=True, kw_only=True)
class PoolStatistics:
    """Statistics of a pool since its dispatcher started. Times are in seconds."""

    requests: int = 0
    """With those answered from the cache."""
    batches: int = 0
    batched: int = 0
    """Number of requests sent to replicas, with retries. batched / batches is the mean batch size."""
    batch_fill: float = 0.0
    """Sum over batches of batch size / largest batch size, so that batch_fill / batches is the mean of this ratio. Each
    chat counts as a batch, with the number of chats of its replica / the largest number that it answers concurrently."""
    busy_seconds: float = 0.0
    """Time in which a replica had work, summed over replicas."""
    service_seconds: float = 0.0
    """Time that replicas spent on answered batches. That of a chat is divided by the largest number of chats that a
    replica answers concurrently."""
    replica_seconds: float = 0.0
    """Time in which a replica was ready, summed over replicas. busy_seconds / replica_seconds is the utilisation."""
    queue_seconds: float = 0.0
    """Summed over requests."""
    longest_queue_seconds: float = 0.0
    deaths: int = 0
    """Number of times that a replica died, or was killed because it gave no answer in time."""
    dropped: int = 0
    """Number of requests that were removed before they were sent to a replica, because their caller had ended."""
    failures: dict[str, int] = field(default_factory=dict[str, int])
    """Number of failed requests by cause. `error`: the model raised an exception. `died` and `late`: replicas failed
    repeatedly on the request, and the last one died or gave no answer in time. `lost`: the process that stored the request
    died. `unusable`: no replica can be loaded."""
    cache_hits: int = 0
    cache_misses: int = 0
    cache_joined: int = 0
    """Number of requests that got the answer to an equal request that was unfinished when they arrived."""
    prompt_tokens: int = 0
    cached_tokens: int = 0
    """Number of prompt tokens that were in the prefix cache."""
    generated_tokens: int = 0
    waiting: int = 0
    """Number of requests in the queue now."""
    outside: int = 0
    """Number of requests whose callers wait for admission now."""
    under_way: int = 0
    """Number of requests that replicas process now."""
    replicas: int = 0
    """Number of replicas that are ready now."""

    @property
    def failed(self) -> int:
        """Number of failed requests, for whatever cause."""
        return sum(self.failures.values())


@dataclass(frozen=True, slots=True)
class PoolStatus:
    """The state of a pool, from which the driver decides how many replicas to run."""

    incarnation: str
    """A random id of this start of the dispatcher. If it changes, the driver sends the handles of all replicas again."""
    drained: tuple[int, ...]
    """Indices of draining replicas that have no work left."""
    unplaced: tuple[int, ...]
    """Indices of replicas that Ray has not started, for example because no node has room for them."""
    demand: float
    """Number of replicas that would be busy now if there were enough of them. A replica of a language model
    counts as n / m if it answers n chats and could answer m chats concurrently."""
    released: bool
    """Whether the run no longer needs the pool, so that idle replicas are ended, even below the configured minimum."""
    statistics: PoolStatistics
    notes: tuple[str, ...] = ()
    """Messages since the last status: output of models that are loading, and failures to load."""


class Metrics:
    """Publishes the statistics of a pool as Ray metrics.

    Ray exports them to Prometheus as `ray_openmaia_pool_...` with the tags `role` and `run`. Failures also have the tag
    `cause`.
    """

    def __init__(self, role: str, run: str):
        self._tags = {"role": role, "run": run}
        self._gauges = {name: Gauge(_name(name), tag_keys=("role", "run")) for name in _GAUGES}
        self._latency = Histogram(_name("latency_seconds"), boundaries=list(_LATENCY_BOUNDS), tag_keys=("role", "run"))
        self._counters: dict[str, Counter] = {}
        self._before: dict[str, float] = {}

    def publish(self, statistics: PoolStatistics) -> None:
        """Sets the gauges, and increases the counters by the growth since the last call."""
        now = asdict(statistics)
        for name, gauge in self._gauges.items():
            gauge.set(now.pop(name), self._tags)
        for cause, count in now.pop("failures").items():
            self._count(f"failures/{cause}", count, {"cause": cause})
        for name, count in now.items():
            self._count(name, count, {})

    def batch_answered(self, seconds: float) -> None:
        """Adds a latency to the histogram: the time from the arrival of the oldest request of a batch to its answer."""
        self._latency.observe(seconds, self._tags)

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
