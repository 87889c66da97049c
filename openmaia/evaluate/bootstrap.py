"""Bootstrap intervals in which prompts and units are crossed clusters.

Images of one prompt are alike, one image may serve many units, and units of one network are a sample, too. So prompts
and units are reweighted independently, and an image of a unit counts with the product of both weights: the product
reweighted bootstrap of Owen and Eckles (2012, "Bootstrapping data arrays of arbitrary order", Annals of Applied
Statistics 6). Weights are exponential with mean 1 (the Bayesian bootstrap, Rubin 1981) in place of counts, since counts
would often leave nothing of a unit with few prompts. A weight is drawn from the name of its cluster alone, so that
what is shared has one weight everywhere, in whatever order units are looked at.
"""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from openmaia.evaluate.statistics import MEASURES, Values

LEVEL = 95.0
"""Percent that an interval covers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """An estimate with its 95 % bootstrap interval (percentile method); not a number where there is nothing to estimate."""

    mean: float
    low: float
    high: float

    def as_list(self) -> list[float | None]:
        """For JSON, which has no word for what is not a number."""
        return [None if value != value else value for value in (self.mean, self.low, self.high)]

    @classmethod
    def of(cls, values: Sequence[float | None]) -> "Interval":
        mean, low, high = (float("nan") if value is None else value for value in values)
        return cls(mean=mean, low=low, high=high)


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Activations, and the cluster that each belongs to: its prompt, or the digest of a real picture."""

    values: tuple[float, ...]
    clusters: tuple[str, ...]

    @classmethod
    def of(cls, values: Iterable[float], clusters: Iterable[str]) -> "Group":
        return cls(values=tuple(values), clusters=tuple(clusters))

    def weights(self, resamples: int, seed: int) -> Values:
        """(resamples, n)"""
        return np.stack([weights(f"prompt {name}", resamples, seed) for name in self.clusters], axis=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Draws:
    """A number of one unit: as it is, and under each resampling of prompts, (resamples,)."""

    unit: str
    value: float
    draws: Values

    def minus(self, other: "Draws") -> "Draws":
        return Draws(unit=self.unit, value=self.value - other.value, draws=self.draws - other.draws)


@lru_cache(maxsize=8192)
def weights(cluster: str, resamples: int, seed: int) -> Values:
    """(resamples,) of mean 1."""
    key = hashlib.sha256(f"{seed}\x00{cluster}".encode("utf-8", "replace")).digest()
    return np.random.Generator(np.random.PCG64(int.from_bytes(key[:16]))).standard_exponential(resamples)


def draws(measure: str, unit: str, positive: Group, neutral: Group, resamples: int, seed: int = 0) -> Draws | None:
    """One of MEASURES; None where it is undefined."""
    if not positive.values or not neutral.values:
        return None
    p, q = (np.asarray(group.values, dtype=np.float64) for group in (positive, neutral))
    whole = float(MEASURES[measure](p, np.ones((1, len(p))), q, np.ones((1, len(q))))[0])
    if not np.isfinite(whole):
        return None
    found = MEASURES[measure](p, positive.weights(resamples, seed), q, neutral.weights(resamples, seed))
    return Draws(unit=unit, value=whole, draws=found)


def level(unit: str, group: Group, resamples: int, seed: int = 0) -> Draws:
    """The mean of one group, which may not be empty."""
    values, weight = np.asarray(group.values, dtype=np.float64), group.weights(resamples, seed)
    return Draws(unit=unit, value=float(values.mean()), draws=weight @ values / weight.sum(axis=1))


def constant(unit: str, value: float, resamples: int) -> Draws:
    """A number that no choice of prompts changes, such as that of an abstention."""
    return Draws(unit=unit, value=value, draws=np.broadcast_to(np.float64(value), resamples))


def mean_of(found: Sequence[Draws], unit: str) -> Draws:
    """Of several numbers of one unit."""
    if len(found) == 1:
        return Draws(unit=unit, value=found[0].value, draws=found[0].draws)
    return Draws(
        unit=unit,
        value=float(np.mean([one.value for one in found])),
        draws=np.mean([one.draws for one in found], axis=0),
    )


def interval(found: Draws) -> Interval:
    """Of one unit, over its prompts."""
    return _interval(found.value, found.draws)


def pooled(found: Sequence[Draws], seed: int = 0) -> Interval:
    """The mean over units, over prompts and units crossed. One unit alone has the interval of its prompts."""
    if not found:
        return Interval(mean=float("nan"), low=float("nan"), high=float("nan"))
    resamples = len(found[0].draws)
    total, whole = np.zeros(resamples), np.zeros(resamples)
    for one in found:
        weight = weights(f"unit {one.unit}", resamples, seed)
        total += weight * one.draws
        whole += weight
    return _interval(float(np.mean([one.value for one in found])), total / whole)


def mean_interval(values: Sequence[float], resamples: int, seed: int = 0) -> Interval:
    """The mean of plain numbers, each a unit of its own."""
    return pooled([constant(str(at), value, resamples) for at, value in enumerate(values)], seed)


def _interval(value: float, drawn: Values) -> Interval:
    low, high = np.nanpercentile(drawn, [(100 - LEVEL) / 2, (100 + LEVEL) / 2])
    return Interval(mean=value, low=float(low), high=float(high))
