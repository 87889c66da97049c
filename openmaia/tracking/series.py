"""Live series: from counters that only grow to rates and shares, by the difference of two samples."""

import re
from collections import Counter, deque
from collections.abc import Mapping

from openmaia.tracking.messages import Progress, Sample

WINDOW = 60
"""Points over which the rate of a stage is taken: 5 minutes at 5 s each."""

Values = dict[str, float]


def plain(name: str) -> str:
    """A name as part of a metric's: W&B reads slashes as sections and dots as paths, and names may be anything."""
    return re.sub(r"[^A-Za-z0-9_-]", "_", name)[:64] or "_"


class Rate:
    """done: units of one stage. Its rate is taken over the last minutes, or since the first word of it."""

    def __init__(self) -> None:
        self._points: deque[tuple[float, int]] = deque(maxlen=WINDOW)
        self._total = 0
        self._done = 0
        self._is_told = False

    def progress(self, progress: Progress) -> None:
        self._done, self._total = progress.done, progress.total
        self._is_told = False
        if not self._points:
            self._points.append((progress.time, progress.done))

    def values(self, time: float) -> Values:
        """done, total; per_minute, and eta_minutes as soon as something was done. Nothing more once the end was told."""
        if self._is_told:
            return {}
        self._points.append((time, self._done))
        before, passed = self._points[0][1], time - self._points[0][0]
        found: Values = {"done": self._done, "total": self._total}
        if passed > 0:
            found["per_minute"] = 60 * (self._done - before) / passed
        if passed > 0 and self._done > before:
            found["eta_minutes"] = (self._total - self._done) / found["per_minute"]
        self._is_told = self._done >= self._total
        return found


class Series:
    """max_batch: of each pool, as configured."""

    def __init__(self, max_batch: Mapping[str, int]):
        self._max_batch = max_batch
        self._stages: dict[str, Rate] = {}
        self._before: Sample | None = None
        self._failures: Counter[str] = Counter()

    def progress(self, progress: Progress) -> None:
        self._stages.setdefault(plain(progress.stage), Rate()).progress(progress)

    def failed(self, cause: str) -> None:
        """By the kind of error in front of the colon."""
        kind = cause.partition(":")[0].strip()
        self._failures[kind if re.fullmatch(r"[A-Za-z_]\w{0,63}", kind, re.ASCII) else "other"] += 1

    def values(self, time: float) -> Values:
        """Of the stages, and what has failed so far."""
        found = {f"{stage}/{key}": v for stage, rate in self._stages.items() for key, v in rate.values(time).items()}
        return found | {f"failures/{kind}": count for kind, count in self._failures.items()}

    def sample(self, sample: Sample) -> Values:
        """What happened in each pool since the sample before; of the first one only what is now."""
        before, self._before = self._before, sample
        found: Values = {}
        for role, now in sample.counters.items():
            passed = sample.time - before.time if before else 0.0
            grown = _grown(before.counters.get(role, {}), now) if before else {}
            values = _now(now) | _since(grown, passed, now, self._max_batch.get(role, 0))
            found |= {f"pools/{plain(role)}/{key}": value for key, value in values.items()}
        return found


def _grown(before: Mapping[str, float], now: Mapping[str, float]) -> Values:
    """A counter that went back belongs to a pool that was started again: all of it is new."""
    return {key: value - before.get(key, 0) if value >= before.get(key, 0) else value for key, value in now.items()}


def _now(now: Mapping[str, float]) -> Values:
    names = {"waiting": "queue", "under_way": "under_way", "replicas": "replicas", "deaths": "deaths"}
    return {shown: now[name] for name, shown in names.items() if name in now}


def _since(grown: Values, passed: float, now: Mapping[str, float], max_batch: int) -> Values:
    """batch: requests per batch; occupancy: of the batch limit; utilisation: share of the ready replicas' time in which
    they had work; hit_share: of requests that the cache could answer, or that waited for an equal one under way."""
    found: Values = {}
    if passed <= 0:
        return found
    found["requests_per_second"] = grown.get("requests", 0) / passed
    if grown.get("batches"):
        found["batch"] = grown.get("batched", 0) / grown["batches"]
        if max_batch:
            found["occupancy"] = found["batch"] / max_batch
    if now.get("replicas"):
        found["utilisation"] = min(1.0, grown.get("busy_seconds", 0) / (passed * now["replicas"]))
    looked = sum(grown.get(key, 0) for key in ("cache_hits", "cache_misses", "cache_joined"))
    if looked:
        found["hit_share"] = (grown.get("cache_hits", 0) + grown.get("cache_joined", 0)) / looked
    for key in ("prompt_tokens", "cached_tokens", "generated_tokens"):
        if key in grown and now[key]:
            found[f"{key}_per_second"] = grown[key] / passed
    return found
