"""Estimates with their intervals, a row each, and published figures beside them: ours filled, published ones hollow."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from openmaia.figures.scene import LINE, NEUTRAL, POSITIVE, SOFT, Mark, Scene, Segment, Words, point

WIDTH, LEFT, RIGHT, STEP, TOP, FOOT = 720.0, 268.0, 24.0, 34.0, 36.0, 26.0
PALE = "#acc0f0"
SMALLEST = 0.2
"""Of the axis, at least so much is shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """value: None where there is no such estimate. interval, spread, published: None where they are not known. note: below
    the label."""

    label: str
    note: str
    value: float | None
    interval: tuple[float, float] | None
    spread: tuple[float, float] | None
    published: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """In tenths, between 0 and 1."""

    low: float
    high: float

    @classmethod
    def over(cls, rows: Sequence[Given]) -> "Axis":
        points = [value for row in rows for value in (row.value, row.published) if value is not None]
        values = [*points, *(value for row in rows for ends in (row.interval, row.spread) for value in ends or ())]
        low = max(0.0, int(min(values, default=0.0) * 10) / 10)
        return cls(low=low, high=min(1.0, max(-int(-max(values, default=1.0) * 10 - 0.999) / 10, low + SMALLEST)))

    def x(self, value: float) -> float:
        share = (min(max(value, self.low), self.high) - self.low) / (self.high - self.low)
        return round(LEFT + (WIDTH - LEFT - RIGHT) * share, 1)

    @property
    def ticks(self) -> list[float]:
        return [self.low + n / 10 for n in range(round((self.high - self.low) * 10) + 1)]


def chart(rows: Sequence[Given], label: str, ours: str, published: str) -> Scene:
    """ours, published: what the key says of them."""
    axis, bottom = Axis.over(rows), TOP + STEP * len(rows)
    marks = list(_legend(ours, published))
    for tick in axis.ticks:
        marks.append(Segment(x1=axis.x(tick), y1=TOP, x2=axis.x(tick), y2=bottom, colour=LINE))
        marks.append(Words(x=axis.x(tick), y=bottom + 14, text=f"{tick:.1f}", colour=SOFT, anchor="middle"))
    for at, row in enumerate(rows):
        marks += _row(row, axis, TOP + STEP * (at + 0.5))
    return Scene(label=label, width=WIDTH, height=bottom + FOOT, marks=tuple(marks))


def _legend(ours: str, published: str) -> Iterator[Mark]:
    yield point(20, 12.5, POSITIVE, False)
    yield Words(x=30, y=16.5, text=ours, is_bold=True)
    yield point(LEFT, 12.5, NEUTRAL, True)
    yield Words(x=LEFT + 10, y=16.5, text=published, colour=SOFT)


def _row(row: Given, axis: Axis, y: float) -> Iterator[Mark]:
    yield Words(x=LEFT - 16, y=y - 2, text=row.label, anchor="end")
    yield Words(x=LEFT - 16, y=y + 12, text=row.note, colour=SOFT, anchor="end")
    for ends, colour, width in ((row.spread, PALE, 7.0), (row.interval, POSITIVE, 2.0)):
        if ends:
            yield Segment(x1=axis.x(ends[0]), y1=y, x2=axis.x(ends[1]), y2=y, colour=colour, width=width)
    if row.published is not None:
        yield point(axis.x(row.published), y, NEUTRAL, True)
    if row.value is not None:
        yield point(axis.x(row.value), y, POSITIVE, False)
