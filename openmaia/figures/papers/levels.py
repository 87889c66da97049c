"""The chart of positive and neutral activations: a row for each method, grouped by network and layer.

Ours are filled dots with a 95 % interval; published ones hollow squares without, whose names begin with "paper:".
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from openmaia.evaluate.bootstrap import Interval
from openmaia.figures.scene import (
    INK,
    LINE,
    NEUTRAL,
    POSITIVE,
    SOFT,
    Mark,
    Scene,
    Segment,
    Words,
    point,
)

WIDTH, LEFT, RIGHT = 720.0, 268.0, 96.0
STEP, HEAD, FOOT, TOP = 19.0, 24.0, 28.0, 34.0
LETTERS = 42
"""Of a row's name: as many as have room."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """positive, neutral: of published numbers low and high are not a number."""

    name: str
    positive: Interval
    neutral: Interval
    is_published: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """scale: groups of the same scale share an axis."""

    title: str
    scale: str
    rows: tuple[Row, ...]


def chart(groups: Sequence[Group], label: str) -> Scene:
    """Empty groups are left out."""
    shown = [group for group in groups if group.rows]
    marks = list(_legend())
    y = TOP
    for at, group in enumerate(shown):
        axis = Axis.over([row for other in shown if other.scale == group.scale for row in other.rows])
        is_last = at + 1 == len(shown) or shown[at + 1].scale != group.scale
        marks += _group(group, axis, y, is_last)
        y += HEAD + STEP * len(group.rows) + (FOOT if is_last else 6.0)
    return Scene(label=label, width=WIDTH, height=max(y, TOP + HEAD), marks=tuple(marks))


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    low: float
    high: float
    step: float

    @classmethod
    def over(cls, rows: Sequence[Row]) -> "Axis":
        """From 0 or below to the highest, at round numbers."""
        ends = [v for row in rows for i in (row.positive, row.neutral) for v in (i.mean, i.low, i.high)]
        finite = [value for value in ends if math.isfinite(value)]
        low, high = min([0.0, *finite]), max([0.0, *finite])
        step = nice((high - low or 1.0) / 5)
        return cls(low=math.floor(low / step) * step, high=math.ceil(high / step) * step or step, step=step)

    def x(self, value: float) -> float:
        return round(LEFT + (WIDTH - LEFT - RIGHT) * (value - self.low) / (self.high - self.low), 1)

    @property
    def ticks(self) -> list[float]:
        return [self.low + self.step * n for n in range(round((self.high - self.low) / self.step) + 1)]


def nice(step: float) -> float:
    """The least of 1, 2, 5 times a power of ten that is at least so large."""
    power = 10.0 ** math.floor(math.log10(step))
    return next(power * factor for factor in (1, 2, 5, 10) if power * factor >= step * (1 - 1e-9))


def _legend() -> Iterator[Mark]:
    x = 16.0
    for text, is_published in (("ours, with 95 % interval", False), ("paper (published numbers)", True)):
        for name, colour in (("positive", POSITIVE), ("neutral", NEUTRAL)):
            yield point(x + 4, 12.5, colour, is_published)
            yield Words(x=x + 13, y=16.5, text=name, colour=SOFT)
            x += 62
        yield Words(x=x, y=16.5, text=text, colour=INK, is_bold=True)
        x += 188


def _group(group: Group, axis: Axis, top: float, is_last: bool) -> Iterator[Mark]:
    bottom = top + HEAD + STEP * len(group.rows)
    yield Words(x=16, y=top + 15, text=group.title, is_bold=True)
    for tick in axis.ticks:
        yield Segment(x1=axis.x(tick), y1=top + HEAD - 4, x2=axis.x(tick), y2=bottom, colour=LINE)
        if is_last:
            yield Words(x=axis.x(tick), y=bottom + 13, text=f"{tick:g}".replace("-0", "0") if tick == 0 else f"{tick:g}", colour=SOFT, anchor="middle")  # fmt: skip
    for at, row in enumerate(group.rows):
        yield from _row(row, axis, top + HEAD + STEP * (at + 0.5))


def _row(row: Row, axis: Axis, y: float) -> Iterator[Mark]:
    both = ((row.neutral, NEUTRAL), (row.positive, POSITIVE))
    yield Words(x=28, y=y + 4, text=clipped(row.name), colour=SOFT if row.is_published else INK)
    yield Segment(x1=axis.x(row.neutral.mean), y1=y, x2=axis.x(row.positive.mean), y2=y, colour=LINE, width=2)
    for interval, colour in both:
        if math.isfinite(interval.low):
            yield Segment(x1=axis.x(interval.low), y1=y, x2=axis.x(interval.high), y2=y, colour=colour, width=2.2)
            for end in (interval.low, interval.high):
                yield Segment(x1=axis.x(end), y1=y - 3, x2=axis.x(end), y2=y + 3, colour=colour, width=1.4)
    for interval, colour in both:
        yield point(axis.x(interval.mean), y, colour, row.is_published)
    text = f"{row.positive.mean:.2f} / {row.neutral.mean:.2f}"
    yield Words(x=WIDTH - 12, y=y + 4, text=text, colour=SOFT if row.is_published else INK, anchor="end")


def clipped(name: str) -> str:
    """In the middle: both ends tell names apart."""
    if len(name) <= LETTERS:
        return name
    half = (LETTERS - 3) // 2
    return f"{name[:half]}...{name[-half:]}"
