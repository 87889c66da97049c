"""The geometry of the report's figures, in the units of an SVG view box."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

WIDTH = 360.0
LETTER = 6.8
"""Width of a digit."""
LETTERS = 22
"""Of a label beside a bar; the whole text belongs into its title."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """text: what the bar says at its end. x, y: its upper left corner."""

    label: str
    text: str
    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Bars:
    bars: tuple[Bar, ...]
    width: float
    height: float


def shares(values: Mapping[str, float], left: float = 132.0, step: float = 24.0) -> Bars:
    """Horizontal bars for shares between 0 and 1, the largest first."""
    room = WIDTH - left - 44
    ranked = sorted(values.items(), key=lambda item: (-item[1], item[0]))
    bars = [
        Bar(label=name, text=f"{share:.0%}", x=left, y=n * step + 4, width=round(room * share, 1), height=step - 9)
        for n, (name, share) in enumerate(ranked)
    ]
    return Bars(bars=tuple(bars), width=WIDTH, height=max(step, len(bars) * step))


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """value: counted, "rest" for what has no value. texts: its ticks, one per row, and "" where there is no room. x, y:
    of the upper left corner; middle: of the column."""

    value: str
    count: int
    shown: str
    texts: tuple[str, ...]
    is_rest: bool
    x: float
    y: float
    middle: float
    width: float
    height: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """rows: names of the rows of ticks, each with its y. base: y of the axis."""

    columns: tuple[Column, ...]
    rows: tuple[tuple[str, float], ...]
    left: float
    base: float
    width: float
    height: float


def columns(
    counts: Mapping[int, int],
    ticks: Mapping[str, Mapping[int, str]],
    rest: tuple[str, int] = ("", 0),
    tall: float = 130.0,
) -> Columns:
    """One column per whole number from 1 to the largest, as high as it is frequent, and a last one for the rest, which
    has a name and no number. ticks: name of a row of ticks -> value -> text. tall: height of the highest column and the
    number above it."""
    left = 66.0
    span: list[int | None] = list(range(min(1, *counts), max(counts) + 1)) if counts else []
    span += [None] if rest[1] else []
    step = (WIDTH - left) / max(len(span), 8)
    most = max(*counts.values(), rest[1], 1)
    longest = max([len(text) for row in ticks.values() for text in row.values()] or [1])
    every = math.ceil((longest * LETTER + 4) / step)

    def column(n: int, value: int | None) -> Column:
        count = rest[1] if value is None else counts.get(value, 0)
        height = round((tall - 18) * count / most, 1)
        is_ticked = value is not None and (n % every == 0)
        texts = tuple(row.get(value, "") if is_ticked and value is not None else "" for row in ticks.values())
        return Column(
            value="rest" if value is None else str(value),
            count=count,
            shown=str(count) if count and len(str(count)) * LETTER < step else "",
            texts=(rest[0],) if value is None else texts,
            is_rest=value is None,
            x=round(left + n * step + step * 0.12, 1),
            y=round(tall - height, 1),
            middle=round(left + (n + 0.5) * step, 1),
            width=round(step * 0.76, 1),
            height=height,
        )

    rows = tuple((name, tall + 16.0 * (n + 1)) for n, name in enumerate(ticks))
    made = tuple(column(n, value) for n, value in enumerate(span))
    return Columns(columns=made, rows=rows, left=left, base=tall, width=WIDTH, height=tall + 16.0 * len(rows) + 8)


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """Two scores between 0 and 1 of one thing. link: "" for none."""

    label: str
    link: str
    own: float
    other: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PairMark:
    compared: Compared
    y: float
    own: float
    other: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Pairs:
    """ticks: (x, text). is_labelled: whether there is room for names beside the rows."""

    marks: tuple[PairMark, ...]
    ticks: tuple[tuple[float, str], ...]
    chance: float
    left: float
    radius: float
    is_labelled: bool
    width: float
    height: float


def pairs(compared: Sequence[Compared], left: float = 132.0) -> Pairs:
    """A row per thing, its two scores joined by a line; the largest difference on top. Rows shrink as they multiply."""
    step = max(1.5, min(16.0, 520 / max(1, len(compared))))
    is_labelled = step >= 11
    left = left if is_labelled else 12.0
    room = WIDTH - left - 12

    def x(score: float) -> float:
        return round(left + room * min(1.0, max(0.0, score)), 1)

    ranked = sorted(compared, key=lambda c: (c.other - c.own, c.label))
    marks = [
        PairMark(compared=c, y=round((n + 0.5) * step + 4, 1), own=x(c.own), other=x(c.other))
        for n, c in enumerate(ranked)
    ]
    return Pairs(
        marks=tuple(marks),
        ticks=tuple((x(score), f"{score:g}") for score in (0, 0.25, 0.5, 0.75, 1)),
        chance=x(0.5),
        left=left,
        radius=round(min(4.0, step * 0.45), 1),
        is_labelled=is_labelled,
        width=WIDTH,
        height=round(len(marks) * step + 30, 1),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    label: str
    y: float
    dots: tuple[float, ...]
    mean: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Strips:
    rows: tuple[Row, ...]
    ticks: tuple[tuple[float, str], ...]
    left: float
    width: float
    height: float


def strips(groups: Mapping[str, Sequence[float]], width: float = 720.0, left: float = 170.0) -> Strips:
    """A row of dots per group on one common axis."""
    values = [value for group in groups.values() for value in group]
    low, high = (min(values), max(values)) if values else (0.0, 1.0)
    span = (high - low) or 1.0
    room = width - left - 40  # the last tick's text is wider than its place

    def x(value: float) -> float:
        return round(left + 8 + room * (value - low) / span, 1)

    rows = [
        Row(
            label=label,
            y=n * 30 + 18.0,
            dots=tuple(x(value) for value in group),
            mean=x(sum(group) / len(group)) if group else None,
        )
        for n, (label, group) in enumerate(groups.items())
    ]
    ticks = tuple((x(low + span * part), f"{low + span * part:.3g}") for part in (0, 0.25, 0.5, 0.75, 1))
    return Strips(rows=tuple(rows), ticks=ticks, left=left, width=width, height=len(rows) * 30 + 30.0)


def short(label: str) -> str:
    """A label that fits beside its bar; its end says more than its beginning."""
    return label if len(label) <= LETTERS else "…" + label[1 - LETTERS :]
