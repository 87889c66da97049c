"""What a metric of a description is, and the list of all metrics: the files of `openmaia.evaluation.metrics`.

A metric is computed, stored, averaged over units, put to the sanity tests and shown without being named anywhere else.
"""

import pkgutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Literal

import openmaia.evaluation.metrics
from openmaia.evaluation.analysis import bootstrap
from openmaia.evaluation.analysis.bootstrap import BootstrapEstimate
from openmaia.evaluation.compared import Evaluation, GroupPair

MetricPlace = Literal["summary", "comparison", "table", "page", "means"]
"""Where metrics are shown beside the tables of all of them (summary.parquet, W&B): with the means of a run, between two
runs, as a column of the browser's table of units, on the page of a unit, in the sentence on mean activations."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Control:
    """The images with which a metric compares positive ones, if its interval decides the verdict."""

    name: str
    """In the verdict."""
    short: str
    """For a table of 80 columns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """A number that says something about a description, from its trial and the trials it is compared with.

    Either `compute` or `groups` is given. Of `groups`, the value and its bootstrap distribution come from `statistic`,
    averaged over the pairs without those for which it is undefined.
    """

    name: str
    title: str
    """For a row of a table."""
    column: str = ""
    """A shorter `title`, for a header."""
    hint: str = ""
    """A sentence about it."""
    project: str = ""
    """The project whose protocol it follows; empty for ours."""
    order: int = 1000
    """Its place in all tables. Equal ones are sorted by name."""
    compute: Callable[[Evaluation], float | None] | None = None
    groups: Callable[[Evaluation], Sequence[GroupPair]] | None = None
    minus: Callable[[Evaluation], Sequence[GroupPair]] | None = None
    """Pairs whose statistic is subtracted; the difference is undefined without them."""
    statistic: str = "auc"
    """One of `openmaia.evaluation.analysis.statistics.MEASURES`."""
    interval: Literal["prompts and units", "units"] = "prompts and units"
    """What is resampled for the interval of its mean. Without `groups` only units are."""
    control: Control | None = None
    """Only with `groups` that return one pair."""
    assigned: float | None = None
    """The value that counts for an abstention, or for a description that cannot be drawn, in NAME_all: the mean over all
    units, which stands beside that over tested descriptions."""
    bounds: tuple[float, float] | None = None
    images: str = ""
    """For a mean activation in SD of the dataset: on which images."""
    falls: bool = True
    """Whether a worse description should lower it, so that the sanity tests apply."""
    sanity_of: str = ""
    """The metric whose results of the sanity tests hold for it, too."""
    shown: frozenset[MetricPlace] = frozenset({"summary", "comparison", "table", "page"})
    visible: bool = False
    """Whether its column of the browser's table is shown at first."""

    @property
    def text(self) -> str:
        """The title after the project."""
        return f"{self.project}: {self.title}" if self.project else self.title

    @property
    def columns(self) -> tuple[str, ...]:
        """Its name and, if values are assigned, NAME_all."""
        return (self.name,) if self.assigned is None else (self.name, f"{self.name}_all")

    @property
    def is_judged(self) -> bool:
        """Whether it is put to the sanity tests itself."""
        return self.falls and not self.sanity_of

    def value(self, evaluation: Evaluation, *, assign: bool = False) -> float | None:
        """Computes it; None if it is undefined. With `assign`, pairs of which none is measured have the value
        `assigned`.
        """
        if self.groups is None:
            return None if self.compute is None else self.compute(evaluation)
        # No draws: the point estimate alone.
        found = self._estimated(evaluation, 0, 0, assign)
        return None if found is None else found.value

    def estimate(
        self, evaluation: Evaluation, resamples: int, seed: int = 0, *, assign: bool = False
    ) -> BootstrapEstimate | None:
        """Computes it with its bootstrap distribution; None if it is undefined. See `value` for `assign`."""
        if self.groups is not None and self.interval == "prompts and units":
            return self._estimated(evaluation, resamples, seed, assign)
        value = self.value(evaluation, assign=assign)
        # Replicates of a unit are one cluster.
        return None if value is None else bootstrap.constant(str(evaluation.trial.claim.unit), value, resamples)

    def _estimated(self, evaluation: Evaluation, resamples: int, seed: int, assign: bool) -> BootstrapEstimate | None:
        unit = str(evaluation.trial.claim.unit)

        def average(pairs: Sequence[GroupPair]) -> BootstrapEstimate | None:
            each = [bootstrap.estimate(self.statistic, unit, *pair, resamples, seed) for pair in pairs]
            found = [estimate for estimate in each if estimate is not None]
            if not found and pairs and assign and self.assigned is not None:
                return bootstrap.constant(unit, self.assigned, resamples)
            return bootstrap.average(found, unit) if found else None

        own = average(self.groups(evaluation)) if self.groups else None
        if own is None or self.minus is None:
            return own
        other = average(self.minus(evaluation))
        return None if other is None else own.minus(other)


@cache
def all_metrics() -> Mapping[str, Metric]:
    """Returns the metrics in all files of the folder by name, in the order of tables."""
    package = openmaia.evaluation.metrics
    files = [import_module(f"{package.__name__}.{each.name}") for each in pkgutil.iter_modules(package.__path__)]
    found = [value for file in files for value in vars(file).values() if isinstance(value, Metric)]
    ordered = sorted({id(each): each for each in found}.values(), key=lambda each: (each.order, each.name))
    named = {each.name: each for each in ordered}
    if len(named) < len(ordered):
        raise ValueError(f"two metrics have one name, among {', '.join(each.name for each in ordered)}; rename one")
    return named


def metrics_shown(place: MetricPlace) -> list[Metric]:
    """Returns the metrics that are shown in a place."""
    return [each for each in all_metrics().values() if place in each.shown]


def columns() -> list[str]:
    """Returns the columns of all metrics (`Metric.columns`)."""
    return [name for each in all_metrics().values() for name in each.columns]


def find_metric(column: str) -> Metric | None:
    """Returns the metric of a column of `columns`; None if there is none."""
    return all_metrics().get(column) or all_metrics().get(column.removesuffix("_all"))


def mean(values: Sequence[float]) -> float | None:
    """Returns the mean to 5 significant digits; None without values."""
    return float(f"{sum(values) / len(values):.5g}") if values else None
