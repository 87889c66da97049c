"""All classifiers together: mean and interval of each row over seeds, and of what the agent's row is compared with."""

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np
from scipy import stats

from openmaia.apps.spurious.scoring import ROWS
from openmaia.apps.spurious.study import Outcome

LEVEL = 0.95


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """Of Table 2 of the MAIA paper (arXiv 2404.14394v2): Spawrious O2O-Easy, ResNet-18. Not ours."""

    units: int
    accuracy: float


PUBLISHED = {
    "original": Published(units=512, accuracy=0.731),
    "l1": Published(units=50, accuracy=0.779),
    "random": Published(units=22, accuracy=0.705),
    "l1_n": Published(units=22, accuracy=0.757),
    "agent": Published(units=22, accuracy=0.837),
    "balanced": Published(units=147, accuracy=0.830),
    "balanced_n": Published(units=22, accuracy=0.865),
}

NAMES = {
    "original": ("All", "Original model"),
    "l1": ("l1 top {units}", "All"),
    "random": ("l1 top {units}", "Random"),
    "l1_n": ("l1 top {units}", "l1, as many as the agent's"),
    "agent": ("l1 top {units}", "Agent"),
    "probe": ("l1 top {units}", "Factorial probe, no agent"),
    "balanced": ("All", "l1, tuned"),
    "balanced_n": ("All", "l1, as many as the agent's"),
}

COMPARED = ("l1_n", "random", "probe", "original")
"""Rows that the agent's is compared with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A mean over seeds. low, high: its 95 % interval by Student's t over seeds; None with one seed. What one set of test
    pictures leaves to chance is not in it: all seeds share it."""

    mean: float
    low: float | None
    high: float | None

    @classmethod
    def of(cls, values: Sequence[float]) -> "Estimate":
        mean = float(np.mean(values))
        if len(values) < 2:
            return cls(mean=mean, low=None, high=None)
        half = float(stats.t.ppf((1 + LEVEL) / 2, len(values) - 1) * np.std(values, ddof=1) / np.sqrt(len(values)))
        return cls(mean=mean, low=mean - half, high=mean + half)

    @classmethod
    def of_shares(cls, values: Sequence[float]) -> "Estimate":
        """The same, cut off at 0 and 1: Student's t knows no bounds, accuracies have them."""
        found = cls.of(values)
        if found.low is None or found.high is None:
            return found
        return cls(mean=found.mean, low=max(found.low, 0.0), high=min(found.high, 1.0))


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """units: the median over seeds and draws. accuracy: over seeds, each the mean of its draws. spread: the 2.5th and 97.5th
    percentile over draws of all seeds, None without draws. by_seed: each seed's mean, None where it has no such row."""

    name: str
    subset: str
    selection: str
    is_balanced: bool
    units: float | None
    accuracy: Estimate | None
    spread: tuple[float, float] | None
    by_seed: tuple[float | None, ...]
    published: Published | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """differences: the agent's accuracy minus that of another row, paired by seed."""

    rows: tuple[Row, ...]
    differences: dict[str, Estimate]
    seen: Estimate
    shifted: Estimate


def table(outcomes: Sequence[Outcome], units: int) -> Table:
    rows = tuple(_row(name, outcomes, units) for name in ROWS)
    by_name = {row.name: row.by_seed for row in rows}
    differences: dict[str, Estimate] = {}
    for name in COMPARED:
        pairs = zip(by_name["agent"], by_name[name], strict=True)
        values = [agent - other for agent, other in pairs if agent is not None and other is not None]
        if values:
            differences[name] = Estimate.of(values)
    return Table(
        rows=rows,
        differences=differences,
        seen=Estimate.of_shares([one.seen for one in outcomes]),
        shifted=Estimate.of_shares([one.shifted for one in outcomes]),
    )


def _row(name: str, outcomes: Sequence[Outcome], units: int) -> Row:
    scores = [one.rows.get(name) for one in outcomes]
    there = [score for score in scores if score is not None]
    draws = [value for score in there for value in score.accuracies if len(score.accuracies) > 1]
    subset, selection = NAMES[name]
    return Row(
        name=name,
        subset=subset.format(units=units),
        selection=selection,
        is_balanced=name.startswith("balanced"),
        units=median([value for score in there for value in score.units]) if there else None,
        accuracy=Estimate.of_shares([float(np.mean(score.accuracies)) for score in there]) if there else None,
        spread=(float(np.percentile(draws, 2.5)), float(np.percentile(draws, 97.5))) if draws else None,
        by_seed=tuple(None if score is None else float(np.mean(score.accuracies)) for score in scores),
        published=PUBLISHED.get(name),
    )


def to_csv(made: Table) -> bytes:
    """Ours and the published figures in columns of their own."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    names = ("row", "subset", "selection", "balanced", "units", "accuracy", "low", "high", "draws_low", "draws_high")
    seeds = len(made.rows[0].by_seed)
    writer.writerow([*names, *(f"seed_{n}" for n in range(seeds)), "published_units", "published_accuracy"])
    for row in made.rows:
        found, spread, theirs = row.accuracy, row.spread or (None, None), row.published
        ours = [found.mean, found.low, found.high] if found else [None, None, None]
        writer.writerow(
            [
                row.name,
                row.subset,
                row.selection,
                "yes" if row.is_balanced else "no",
                "" if row.units is None else f"{row.units:g}",
            ]
            + [_text(value) for value in [*ours, *spread, *row.by_seed]]
            + [theirs.units if theirs else "", theirs.accuracy if theirs else ""]
        )
    return buffer.getvalue().encode()


def _text(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"
