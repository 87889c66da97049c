"""Charts with a row for each estimate: name at the left, marks in the middle, numbers at the right.

Marks of our numbers are filled and have intervals. Those that the MAIA papers published are hollow.
"""

# pyright: reportUnknownMemberType=false
# The type stubs of matplotlib do not type keyword arguments.

from collections.abc import Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any

from cachetools import LRUCache, cached
from markupsafe import Markup
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator
from matplotlib.transforms import blended_transform_factory

from openmaia.core.text import printable
from openmaia.reporting.figures import style
from openmaia.reporting.figures.style import INK, LINE, NEUTRAL, PALE, POSITIVE, SOFT, WHITE, styled

_WIDTH, _LEFT, _RIGHT, _MARGIN, _INDENT = 720.0, 296.0, 100.0, 16.0, 28.0
_TOP, _FOOT = 36.0, 26.0
"""Heights of the legend and of the tick labels below an axis, in points."""
_LETTERS = 42
"""Characters of a row's name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowMark:
    """An estimate in a row, drawn as a point or as a bar."""

    value: float
    interval: tuple[float, float] | None = None
    colour: str = POSITIVE
    is_published: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ChartRow:
    """A row, or a heading above rows."""

    label: str
    note: str = ""
    """A second line below the label."""
    text: str = ""
    """At the right end."""
    marks: tuple[RowMark, ...] = ()
    spread: tuple[float, float] | None = None
    """The ends of a pale band behind the marks."""
    is_joined: bool = False
    """Whether a line joins the marks."""
    is_heading: bool = False

    @property
    def is_published(self) -> bool:
        """Whether all marks of the row were published."""
        return bool(self.marks) and all(mark.is_published for mark in self.marks)

    @property
    def numbers(self) -> list[float]:
        """All numbers that the row's axis has to cover."""
        return [end for mark in self.marks for end in (mark.value, *(mark.interval or ()))] + list(self.spread or ())


@dataclass(frozen=True, slots=True, kw_only=True)
class LegendEntry:
    """A kind of mark in the legend of a `RowChart`; hollow for published numbers."""

    label: str
    colour: str
    is_published: bool
    is_bar: bool

    @property
    def artist(self) -> Artist:
        """What matplotlib draws."""
        if self.is_bar:
            return Patch(label=self.label, **_bar(self.colour, self.is_published))
        return Line2D([], [], label=self.label, **_point(self.colour, self.is_published))


@dataclass(frozen=True, slots=True, kw_only=True)
class RowChart:
    """Panels of rows below each other, each with its own axis."""

    panels: Sequence[Sequence[ChartRow]]
    legend: Sequence[LegendEntry]
    """Results of `point_key` or `bar_key`."""
    step: float = 20.0
    """Height of a row in points."""
    is_bars: bool = False
    is_from_zero: bool = True
    ticks: Sequence[float] = ()
    """Empty for round ones that cover the numbers of each panel."""
    tick_format: str = "{:g}"
    letter: str = ""
    """Stands before the legend."""

    @property
    def height(self) -> float:
        """In points."""
        return _TOP + sum(self.step * len(rows) + _FOOT for rows in self.panels)


def row_chart(panels: Sequence[Sequence[ChartRow]], legend: Sequence[LegendEntry], **options: Any) -> Figure:
    """Draws one chart; `options` are the other fields of `RowChart`."""
    return draw_beside([RowChart(panels=panels, legend=legend, **options)])


@styled()
def draw_beside(charts: Sequence[RowChart]) -> Figure:
    """Draws charts side by side."""
    width, height = _WIDTH * len(charts), max(chart.height for chart in charts)
    figure = style.new_figure(width, height)
    for number, chart in enumerate(charts):
        _draw(figure, chart, _WIDTH * number, width, height)
    return figure


def _content(charts: Sequence[RowChart], label: str) -> str:
    return repr((charts, label))


@cached(LRUCache[str, Markup](64), key=_content, lock=Lock())
def svg_beside(charts: Sequence[RowChart], label: str) -> Markup:
    """Returns the figure of `draw_beside` by `style.svg`. One that this process has drawn before is not drawn again: it takes most
    of the time of a report, and a page that is made anew rarely has other numbers."""
    return style.svg(draw_beside(charts), label)


def _draw(figure: Figure, chart: RowChart, x: float, width: float, height: float) -> None:
    """Draws a chart at `x` points in a figure of this size."""
    top, step = _TOP, chart.step
    for rows in chart.panels:
        bottom = top + step * len(rows)
        axes = style.add_axes(figure, x + _LEFT, top, width - x - _WIDTH + _RIGHT, height - bottom)
        top = bottom + _FOOT
        numbers = [0.0] * chart.is_from_zero + [number for row in rows for number in row.numbers]
        shown = list(chart.ticks) or _round_ticks(numbers)
        axes.set(xlim=(shown[0], shown[-1]), ylim=(max(len(rows), 1), 0), yticks=[])
        ticks = [chart.tick_format.format(tick).replace("-", "−").replace("%", " %") for tick in shown]
        axes.set_xticks(shown, ticks)
        axes.grid(axis="x", clip_on=False)
        for number, row in enumerate(rows):
            _write(figure, axes, row, number + 0.5, 8 / step, x, width)
            (_draw_bars if chart.is_bars else _draw_points)(axes, row, number + 0.5)
    left = x + _MARGIN
    if chart.letter:
        figure.text(left / width, 1 - 9 / height, chart.letter, weight="bold", va="top")
        left = x + _INDENT
    place = (left / width, 1 - 9 / height)
    columns = max(len(chart.legend), 1)
    handles = [each.artist for each in chart.legend]
    figure.legend(handles=handles, loc="upper left", ncols=columns, bbox_to_anchor=place, borderpad=0)


def point_key(colour: str, is_published: bool, label: str) -> LegendEntry:
    """Returns a legend entry for points, which is hollow for published numbers."""
    return LegendEntry(label=label, colour=colour, is_published=is_published, is_bar=False)


def bar_key(colour: str, is_published: bool, label: str) -> LegendEntry:
    """Returns a legend entry for bars, which is hollow for published numbers."""
    return LegendEntry(label=label, colour=colour, is_published=is_published, is_bar=True)


def _point(colour: str, is_published: bool) -> dict[str, Any]:
    face, marker, size = (WHITE, "s", 7.2) if is_published else (colour, "o", 8.8)
    edge = 1.5 if is_published else 0.0
    return {"color": colour, "markerfacecolor": face, "marker": marker, "markersize": size, "markeredgewidth": edge, "linestyle": "none"}  # fmt: skip


def _bar(colour: str, is_published: bool) -> dict[str, Any]:
    hollow = {"facecolor": WHITE, "edgecolor": NEUTRAL, "linestyle": (0, (3, 3)), "linewidth": 1.5}
    return hollow if is_published else {"facecolor": colour}


def _draw_points(axes: Axes, row: ChartRow, y: float) -> None:
    if row.spread:
        axes.plot(row.spread, (y, y), color=PALE, linewidth=7)
    if row.is_joined:
        axes.plot([mark.value for mark in row.marks], [y] * len(row.marks), color=LINE, linewidth=2)
    for mark in row.marks:
        _draw_interval(axes, mark, y, mark.colour, 2.0)
        axes.plot([mark.value], [y], clip_on=False, zorder=3, **_point(mark.colour, mark.is_published))


def _draw_bars(axes: Axes, row: ChartRow, y: float) -> None:
    for mark in row.marks:
        axes.barh(y, mark.value, height=0.6, clip_on=False, **_bar(mark.colour, mark.is_published))
        _draw_interval(axes, mark, y, INK, 1.2)


def _draw_interval(axes: Axes, mark: RowMark, y: float, colour: str, width: float) -> None:
    if mark.interval:
        low, high = mark.interval
        error = [[max(mark.value - low, 0.0)], [max(high - mark.value, 0.0)]]
        axes.errorbar(mark.value, y, xerr=error, fmt="none", ecolor=colour, elinewidth=width, capsize=3, capthick=1.4)


def _write(figure: Figure, axes: Axes, row: ChartRow, y: float, offset: float, x: float, width: float) -> None:
    place = blended_transform_factory(figure.transFigure, axes.transData)
    left = (x + (_MARGIN if row.is_heading else _INDENT)) / width
    colour = SOFT if row.is_published else INK
    axes.text(
        (x + _WIDTH - _MARGIN) / width, y, printable(row.text), transform=place, va="center", ha="right", color=colour
    )
    y = y - offset if row.note else y
    axes.text(left, y, _shortened(row.label), transform=place, va="center", color=colour, weight="bold" if row.is_heading else "normal")  # fmt: skip
    axes.text(left, y + 2 * offset, printable(row.note), transform=place, va="center", color=SOFT)


def _shortened(name: str) -> str:
    """Shortens a long name by leaving out its middle, because both ends distinguish names."""
    half = (_LETTERS - 3) // 2
    return printable(name if len(name) <= _LETTERS else f"{name[:half]}...{name[-half:]}")


def _round_ticks(numbers: Sequence[float]) -> list[float]:
    low, high = min(numbers, default=0.0), max(numbers, default=1.0)
    ticks = MaxNLocator(5, steps=[1, 2, 5, 10]).tick_values(low, high if high > low else low + 1.0)
    return [float(tick) for tick in ticks]
