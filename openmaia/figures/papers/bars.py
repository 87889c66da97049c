"""The chart of tool usage and of conversation lengths: horizontal bars in groups, ours filled, published ones hollow."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from openmaia.evaluate.bootstrap import Interval
from openmaia.figures.papers.levels import clipped, nice
from openmaia.figures.scene import INK, LINE, NEUTRAL, SOFT, Box, Mark, Scene, Segment, Words

WIDTH, LEFT, RIGHT = 720.0, 268.0, 110.0
STEP, HEAD, FOOT, TOP = 21.0, 24.0, 26.0, 34.0
COLOURS = ("#2f62d9", "#0f766e", "#b45309", "#9333ea", "#b3352c", "#5f6570")
"""Of our runs, in their order, starting over after the last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """value: of published numbers without low and high. text: at its end. colour: the place of its run in COLOURS. is_vague:
    printed as "about" or "more than"."""

    name: str
    value: Interval
    text: str
    colour: int = 0
    is_published: bool = False
    is_vague: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Bars:
    title: str
    bars: tuple[Bar, ...]


def chart(groups: Sequence[Bars], label: str, end: float | None = None) -> Scene:
    """end: of the axis, which begins at 0; None: as the bars ask for."""
    values = [v for group in groups for bar in group.bars for v in (bar.value.mean, bar.value.high) if math.isfinite(v)]
    step = nice((end or max([*values, 1e-9])) / 5)
    end = end or math.ceil(max([*values, step]) / step) * step
    marks: list[Mark] = list(_legend(any(bar.is_published for group in groups for bar in group.bars)))
    y = TOP
    for group in groups:
        bottom = y + HEAD + STEP * len(group.bars)
        for n in range(round(end / step) + 1):
            at = _x(step * n, end)
            marks.append(Segment(x1=at, y1=y + HEAD - 4, x2=at, y2=bottom, colour=LINE))
            if group is groups[-1]:
                text = f"{step * n:.0%}" if end == 1 else f"{step * n:g}"
                marks.append(Words(x=at, y=bottom + 13, text=text, colour=SOFT, anchor="middle"))
        marks.append(Words(x=16, y=y + 15, text=clipped(group.title), is_bold=True))
        for at, bar in enumerate(group.bars):
            marks += _bar(bar, y + HEAD + STEP * at, end)
        y = bottom + 4
    return Scene(label=label, width=WIDTH, height=y + FOOT, marks=tuple(marks))


def _x(value: float, end: float) -> float:
    return round(LEFT + (WIDTH - LEFT - RIGHT) * value / end, 1)


def _legend(is_published: bool) -> Iterator[Mark]:
    yield Box(x=16, y=8, width=18, height=9, colour=COLOURS[0])
    yield Words(x=40, y=16.5, text="ours, with 95 % interval", is_bold=True)
    if is_published:
        yield Box(x=218, y=8, width=18, height=9, colour=NEUTRAL, is_hollow=True, is_dashed=True)
        yield Words(x=242, y=16.5, text='paper (published; dashed: "about" or "more than")', is_bold=True)


def _bar(bar: Bar, top: float, end: float) -> Iterator[Mark]:
    colour = NEUTRAL if bar.is_published else COLOURS[bar.colour % len(COLOURS)]
    said = SOFT if bar.is_published else INK
    middle, right = top + STEP / 2, _x(bar.value.mean, end)
    yield Words(x=28, y=middle + 4, text=clipped(bar.name), colour=said)
    yield Box(
        x=LEFT,
        y=top + 4,
        width=round(right - LEFT, 1),
        height=STEP - 8,
        colour=colour,
        is_hollow=bar.is_published,
        is_dashed=bar.is_vague,
    )
    if math.isfinite(bar.value.low):
        low, high = _x(bar.value.low, end), _x(bar.value.high, end)
        yield Segment(x1=low, y1=middle, x2=high, y2=middle, colour=INK, width=1.2)
        for x in (low, high):
            yield Segment(x1=x, y1=middle - 3, x2=x, y2=middle + 3, colour=INK, width=1.2)
    yield Words(x=WIDTH - 12, y=middle + 4, text=bar.text, colour=said, anchor="end")
