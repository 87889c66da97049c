"""Estimates with their intervals, a row each, and figures of others beside them: as geometry, and drawn as PNG."""

import io
from collections.abc import Sequence
from dataclasses import dataclass

from PIL import Image, ImageDraw, ImageFont

WIDTH, LEFT, RIGHT, STEP, TOP = 720.0, 250.0, 24.0, 34.0, 14.0
SCALE = 2
INK, SOFT, LINE, OWN, OTHER = (27, 29, 33), (95, 101, 112), (228, 228, 224), (47, 98, 217), (196, 110, 20)
SMALLEST = 0.2
"""Of the axis, at least so much is shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """value: None where there is no such estimate. interval, spread, other: None where they are not known. note: below the
    label."""

    label: str
    note: str
    value: float | None
    interval: tuple[float, float] | None
    spread: tuple[float, float] | None
    other: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """Places on the axis."""

    given: Given
    y: float
    value: float | None
    interval: tuple[float, float] | None
    spread: tuple[float, float] | None
    other: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Intervals:
    marks: tuple[Mark, ...]
    ticks: tuple[tuple[float, str], ...]
    left: float
    width: float
    height: float


def intervals(rows: Sequence[Given]) -> Intervals:
    """On one axis in tenths that all values fit on."""
    ends = [row.interval or () for row in rows] + [row.spread or () for row in rows]
    points = [value for row in rows for value in (row.value, row.other) if value is not None]
    values = [*points, *(value for end in ends for value in end)]
    low = max(0.0, int(min(values, default=0.0) * 10) / 10)
    high = min(1.0, max(-int(-max(values, default=1.0) * 10 - 0.999) / 10, low + SMALLEST))

    def x(value: float) -> float:
        share = (min(max(value, low), high) - low) / (high - low)
        return round(LEFT + (WIDTH - LEFT - RIGHT) * share, 1)

    def span(ends: tuple[float, float] | None) -> tuple[float, float] | None:
        return (x(ends[0]), x(ends[1])) if ends else None

    marks = [
        Mark(
            given=row,
            y=TOP + (n + 0.5) * STEP,
            value=None if row.value is None else x(row.value),
            interval=span(row.interval),
            spread=span(row.spread),
            other=None if row.other is None else x(row.other),
        )
        for n, row in enumerate(rows)
    ]
    steps = round((high - low) * 10)
    ticks = tuple((x(low + n / 10), f"{low + n / 10:.1f}") for n in range(steps + 1))
    return Intervals(marks=tuple(marks), ticks=ticks, left=LEFT, width=WIDTH, height=TOP + len(rows) * STEP + 26)


def png(chart: Intervals, title: str, own: str, other: str) -> bytes:
    """own, other: the key."""
    above = 58.0
    image = Image.new("RGB", (round(chart.width * SCALE), round((chart.height + above) * SCALE)), "white")
    draw = ImageDraw.Draw(image)
    fonts = {size: ImageFont.load_default(size * SCALE) for size in (11, 12, 15)}

    def at(*places: float) -> list[float]:
        return [place * SCALE for place in places]

    def point(x: float, y: float) -> tuple[float, float]:
        return x * SCALE, y * SCALE

    draw.text(point(16, 14), title, INK, fonts[15])
    _dot(draw, 22, 44)
    draw.text(point(32, 44), own, SOFT, fonts[11], anchor="lm")
    start = 56 + draw.textlength(own, fonts[11]) / SCALE
    _diamond(draw, start, 44)
    draw.text(point(start + 10, 44), other, SOFT, fonts[11], anchor="lm")
    for x, text in chart.ticks:
        draw.line(at(x, above, x, above + chart.height - 22), LINE, SCALE)
        draw.text(point(x, above + chart.height - 10), text, SOFT, fonts[11], anchor="mm")
    for mark in chart.marks:
        y = above + mark.y
        draw.text(point(chart.left - 16, y - 7), mark.given.label, INK, fonts[12], anchor="rm")
        draw.text(point(chart.left - 16, y + 8), mark.given.note, SOFT, fonts[11], anchor="rm")
        if mark.spread:
            draw.line(at(mark.spread[0], y, mark.spread[1], y), (172, 192, 240), 7 * SCALE)
        if mark.interval:
            draw.line(at(mark.interval[0], y, mark.interval[1], y), OWN, 2 * SCALE)
        if mark.value is not None:
            _dot(draw, mark.value, y)
        if mark.other is not None:
            _diamond(draw, mark.other, y)
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    return buffer.getvalue()


def _dot(draw: ImageDraw.ImageDraw, x: float, y: float) -> None:
    draw.ellipse([place * SCALE for place in (x - 5, y - 5, x + 5, y + 5)], OWN)


def _diamond(draw: ImageDraw.ImageDraw, x: float, y: float) -> None:
    """Hollow, and larger than a dot: both are seen where they meet."""
    corners = [(x, y - 8), (x + 8, y), (x, y + 8), (x - 8, y)]
    draw.polygon([(a * SCALE, b * SCALE) for a, b in corners], None, OTHER, 2 * SCALE)
