"""Bootstrap intervals in which the prompts of images and the units are crossed clusters.

Images of one prompt resemble each other, one image may be shown to many units, and the units are themselves a sample
from the network. Prompts and units are therefore reweighted independently, and the activation of a unit on an image is
weighted by the product of both weights: the product reweighted bootstrap of Owen and Eckles (2012, "Bootstrapping data
arrays of arbitrary order", Annals of Applied Statistics 6). The weights are positive numbers (the Bayesian bootstrap,
Rubin 1981) and not counts, because with counts all images of a unit that has few prompts would often have the weight 0.

The weights of units have an exponential distribution. For prompts, exponential weights would make the variance of the
mean of n prompts too small by the factor (n - 1) / (n + 1), which matters if all units share a few neutral prompts.
Prompts therefore have weights of the gamma distribution with shape (n - 2) / n, which give the unbiased variance.

Each weight is a monotone function of an exponential variate that is seeded by the name of the prompt or unit. So the
weight of a shared prompt is large or small for all units at once, and it does not depend on the order of the units.
"""

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from openmaia.evaluation.analysis.statistics import MEASURES, FloatArray, wilson

_LEVEL = 95.0
"""Percent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """A point estimate (`mean`) of any statistic, with the ends of its 95 % interval.

    This is a bootstrap interval (percentile method) unless a field says otherwise. All numbers are NaN if there was
    nothing to estimate from.
    """

    mean: float
    low: float
    high: float

    def as_list(self) -> list[float | None]:
        """Returns [mean, low, high] for JSON, with None for NaN."""
        return [None if value != value else value for value in (self.mean, self.low, self.high)]

    @classmethod
    def of(cls, values: Sequence[float | None]) -> "Interval":
        """Builds an interval from the list that `as_list` returned."""
        mean, low, high = (float("nan") if value is None else value for value in values)
        return cls(mean=mean, low=low, high=high)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusteredValues:
    """Values with the names of their clusters. Those of one cluster are not independent, so they get the same weight in
    a resample.
    """

    values: tuple[float, ...]
    clusters: tuple[str, ...]
    """For an activation the prompt of its image, or the digest of a photograph."""

    @classmethod
    def of(cls, values: Iterable[float], clusters: Iterable[str]) -> "ClusteredValues":
        """Builds the object from iterables of equal length."""
        return cls(values=tuple(values), clusters=tuple(clusters))

    def weights(self, resamples: int, seed: int) -> FloatArray:
        """Returns the bootstrap weights, (resamples, values), which must not be changed."""
        return _KEPT.weights(self.clusters, resamples, seed)


@dataclass(frozen=True, slots=True, kw_only=True)
class BootstrapEstimate:
    """A statistic of one unit and its bootstrap distribution over prompts."""

    unit: str
    value: float
    """Not resampled."""
    draws: FloatArray
    """(resamples,)"""

    def minus(self, other: "BootstrapEstimate") -> "BootstrapEstimate":
        """Returns the difference, paired by resample: prompts that both use have equal weights in both."""
        return BootstrapEstimate(unit=self.unit, value=self.value - other.value, draws=self.draws - other.draws)


# The metrics of a unit, of which there are about 40, follow each other.
@lru_cache(maxsize=8)
def cluster_weights(cluster: str, resamples: int, seed: int) -> FloatArray:
    """Returns the exponential weights of a cluster ("unit " or "prompt ", followed by the name) with mean 1,
    (resamples,). Those of prompts are transformed later.
    """
    key = hashlib.sha256(f"{seed}\x00{cluster}".encode("utf-8", "replace")).digest()
    return np.random.Generator(np.random.PCG64(int.from_bytes(key[:16]))).standard_exponential(resamples)


_STEPS = 1000
_LARGEST = 40
_VARIATES: FloatArray = np.concatenate([np.linspace(0, 1, _STEPS + 1), np.linspace(1, _LARGEST, _STEPS + 1)[1:]])


@lru_cache(maxsize=256)
def _gamma_weights(clusters: int) -> FloatArray:
    """Returns the gamma quantiles at the same probabilities as the exponential variates _VARIATES, (variates,)."""
    from scipy import special  # most of what imports this module computes no interval

    # One and two clusters are treated like three: one has no variance, whatever its weight, and two would need the
    # shape 0.
    shape = (max(clusters, 3) - 2) / max(clusters, 3)
    return np.asarray(special.gammainccinv(shape, np.exp(-_VARIATES)), dtype=np.float64)


class _WeightCache:
    """Keeps the latest weights of groups of images. All descriptions of a layer share some: random words, photographs."""

    def __init__(self, most: int):
        """`most` is the size in bytes."""
        self._most, self._size, self._lock = most, 0, threading.Lock()
        self._found: OrderedDict[tuple[tuple[str, ...], int, int], FloatArray] = OrderedDict()

    def weights(self, clusters: tuple[str, ...], resamples: int, seed: int) -> FloatArray:
        """Returns the weights of prompts, (resamples, clusters)."""
        key = clusters, resamples, seed
        with self._lock:  # tests run in threads
            found = self._found.pop(key, None)
            if found is None:
                found = _prompt_weights(*key)
                self._size += found.nbytes
            self._found[key] = found
            while self._size > self._most:
                self._size -= self._found.popitem(last=False)[1].nbytes
        return found


_KEPT = _WeightCache(96 * 2**20)


def _prompt_weights(clusters: tuple[str, ...], resamples: int, seed: int) -> FloatArray:
    places = {name: place for place, name in enumerate(dict.fromkeys(clusters))}
    variates = np.stack([cluster_weights(f"prompt {name}", resamples, seed) for name in places], axis=1)
    of_each = _interpolated(variates, _gamma_weights(len(places)))
    weights = np.ascontiguousarray(of_each[:, [places[name] for name in clusters]])
    weights.flags.writeable = False
    return weights


def _interpolated(variates: FloatArray, quantiles: FloatArray) -> FloatArray:
    """As `np.interp(variates, _VARIATES, quantiles)`, which searches for each variate and takes nine times as long."""
    place = np.where(variates < 1, _STEPS * variates, _STEPS + (variates - 1) * (_STEPS / (_LARGEST - 1)))
    np.minimum(place, 2 * _STEPS, out=place)
    low = place.astype(np.intp)
    rises = np.append(np.diff(quantiles), 0.0)
    return quantiles[low] + (place - low) * rises[low]


# Several metrics of one description share pairs of groups. The largest number of pairs is that of the random words.
@lru_cache(maxsize=256)
def estimate(
    measure: str, unit: str, positive: ClusteredValues, neutral: ClusteredValues, resamples: int, seed: int = 0
) -> BootstrapEstimate | None:
    """Estimates one of MEASURES for one unit; None if there are no images of one kind or the measure is undefined."""
    if not positive.values or not neutral.values:
        return None
    p, q = (np.asarray(group.values, dtype=np.float64) for group in (positive, neutral))
    whole = float(MEASURES[measure](p, np.ones((1, len(p))), q, np.ones((1, len(q))))[0])
    if not np.isfinite(whole):
        return None
    draws = MEASURES[measure](p, positive.weights(resamples, seed), q, neutral.weights(resamples, seed))
    return BootstrapEstimate(unit=unit, value=whole, draws=draws)


def group_mean(unit: str, group: ClusteredValues, resamples: int, seed: int = 0) -> BootstrapEstimate:
    """Estimates the mean of one unit's values, of which there is at least one."""
    values, weights = np.asarray(group.values, dtype=np.float64), group.weights(resamples, seed)
    return BootstrapEstimate(unit=unit, value=float(values.mean()), draws=weights @ values / weights.sum(axis=1))


def constant(unit: str, value: float, resamples: int) -> BootstrapEstimate:
    """Returns an estimate that is not resampled: all draws equal `value`."""
    return BootstrapEstimate(unit=unit, value=value, draws=np.broadcast_to(np.float64(value), resamples))


def average(estimates: Sequence[BootstrapEstimate], unit: str) -> BootstrapEstimate:
    """Returns the mean of estimates of one unit, such as those of its replicates."""
    if len(estimates) == 1:
        return BootstrapEstimate(unit=unit, value=estimates[0].value, draws=estimates[0].draws)
    return BootstrapEstimate(
        unit=unit,
        value=float(np.mean([each.value for each in estimates])),
        draws=np.mean([each.draws for each in estimates], axis=0),
    )


def percentile_interval(value: float, draws: FloatArray) -> Interval:
    """Returns `value` with the percentile interval of its draws, ignoring NaN."""
    low, high = np.nanpercentile(draws, [(100 - _LEVEL) / 2, (100 + _LEVEL) / 2])
    return Interval(mean=float(value), low=float(low), high=float(high))


def share_interval(share: float, n: int) -> Interval:
    """Returns a share of n units with Wilson's interval."""
    low, high = wilson(share, n)
    return Interval(mean=share, low=low, high=high)


def interval(estimate: BootstrapEstimate) -> Interval:
    """Returns one unit's estimate with its percentile interval, for which only the prompts were resampled."""
    return percentile_interval(estimate.value, estimate.draws)


def widened_interval(estimate: BootstrapEstimate, clusters: tuple[int, int], miss: float) -> Interval:
    """Returns one unit's estimate with an interval that misses the truth with probability `miss`, also of few clusters.

    Percentile intervals of few clusters are too narrow, and their far tails depend on few resamples. So the distances
    of the ends of the 95 % interval from the estimate are multiplied by the ratio of a quantile of the t distribution
    to that of the normal distribution at 95 % (Hesterberg 2015, "What teachers should know about the bootstrap",
    American Statistician 69). Its degrees of freedom are Welch's, for groups of equal variance.

    Args:
        estimate: An AUC, or another statistic between 0 and 1 that compares two groups.
        clusters: The numbers of clusters of both groups.
    """
    from scipy import special

    n, m = (max(number, 2) for number in clusters)
    freedom = (1 / n + 1 / m) ** 2 / (1 / (n * n * (n - 1)) + 1 / (m * m * (m - 1)))
    factor = float(special.stdtrit(freedom, miss / 2) / special.ndtri((100 - _LEVEL) / 200))
    narrow = interval(estimate)
    low, high = (narrow.mean + factor * (end - narrow.mean) for end in (narrow.low, narrow.high))
    return Interval(mean=narrow.mean, low=max(low, 0.0), high=min(high, 1.0))


class PooledMean:
    """The mean of estimates over units, or over the images of all units, accumulated one by one to save memory."""

    def __init__(self, seed: int = 0):
        self._seed, self._values, self._counts = seed, list[float](), list[float]()
        self._total, self._weight = np.zeros(1), np.zeros(1)

    def add(self, estimate: BootstrapEstimate, count: float = 1.0) -> None:
        """Adds the estimate of a unit or replicate. `count` is its weight: 1 for a mean over units, the number of its
        images for a mean over images.
        """
        weight = count * cluster_weights(f"unit {estimate.unit}", len(estimate.draws), self._seed)
        self._values.append(estimate.value)
        self._counts.append(count)
        self._total = self._total + weight * estimate.draws
        self._weight = self._weight + weight

    @property
    def count(self) -> int:
        """Number of added estimates."""
        return len(self._values)

    def interval(self) -> Interval:
        """Returns the mean and its interval, in which prompts and units are resampled independently; of a single unit
        only prompts. NaN if nothing was added.
        """
        if not self._values:
            return Interval(mean=float("nan"), low=float("nan"), high=float("nan"))
        return percentile_interval(float(np.average(self._values, weights=self._counts)), self._total / self._weight)


def pooled(estimates: Iterable[BootstrapEstimate], seed: int = 0) -> Interval:
    """Returns the mean of several units' estimates (see `PooledMean`); NaN without estimates."""
    mean = PooledMean(seed)
    for each in estimates:
        mean.add(each)
    return mean.interval()


def mean_interval(values: Sequence[float], resamples: int, seed: int = 0) -> Interval:
    """Returns the mean of one number per unit, with an interval in which units are resampled."""
    return pooled([constant(str(number), value, resamples) for number, value in enumerate(values)], seed)
