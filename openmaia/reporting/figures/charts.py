"""The charts of the report: the behaviour of agents, and the scores of descriptions."""

# pyright: reportUnknownMemberType=false
# The type stubs of matplotlib do not type keyword arguments.

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from matplotlib.collections import LineCollection
from matplotlib.figure import Figure

from openmaia.core.text import percent, printable
from openmaia.evaluation.analysis.selective import RiskCoverage
from openmaia.reporting.figures.style import INK, LINE, NEUTRAL, POSITIVE, SOFT, WORSE, add_axes, new_figure, styled

_WIDTH, _WIDE, _LEFT = 360.0, 720.0, 132.0
_DIGIT = 6.8
"""Width of a digit, in points."""
_LETTERS = 19
"""Characters of a row's label."""
_CURVES = (POSITIVE, NEUTRAL, INK)
"""Colours of risk-coverage curves in their order. The page shows the names of the curves in the same colours."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScorePair:
    """Two scores between 0 and 1 of one unit, such as AUCs."""

    label: str
    link: str
    """The address of the unit's page; empty if it has none."""
    own: float
    """With images of the unit's own description."""
    other: float
    """With images of other units' descriptions."""


@styled()
def draw_share_bars(shares: Mapping[str, float]) -> Figure:
    """Draws shares between 0 and 1 as horizontal bars in descending order, by label."""
    ranked = sorted(shares.items(), key=lambda item: (-item[1], item[0]))
    figure = new_figure(_WIDTH, 24.0 * len(ranked) + 8)
    axes = add_axes(figure, _LEFT, 4, 46, 4)
    axes.grid(visible=False)
    axes.set(xlim=(0, 1), ylim=(len(ranked) - 0.5, -0.5), xticks=[])
    axes.set_yticks(range(len(ranked)), [_short(name) for name, _ in ranked], color=INK)
    axes.barh(range(len(ranked)), [share for _, share in ranked], height=0.62, color=POSITIVE)
    for row, (_, share) in enumerate(ranked):
        axes.annotate(percent(share), (share, row), (6, 0), textcoords="offset points", va="center", color=SOFT)
    return figure


@styled()
def draw_count_columns(
    counts: Mapping[int, int], ticks: Mapping[str, Mapping[int, str]], rest: tuple[str, int] = ("", 0)
) -> Figure:
    """Draws a column for each integer from 1 (or the smallest, if it is less) to the largest.

    Args:
        counts: How often each number occurs.
        ticks: Rows of labels below the columns: the name of each row, and its label for each number.
        rest: The name and height of a last column, for cases without a number. Height 0 leaves it out.
    """
    span = range(min(1, *counts), max(counts) + 1) if counts else range(0)
    columns = [*((number, counts.get(number, 0)) for number in span), *([(None, rest[1])] if rest[1] else [])]
    left, base = 70.0, 10.0 + 15 * len(ticks)
    figure = new_figure(_WIDTH, 124 + base)
    axes = add_axes(figure, left, 20, 6, base)
    step = (_WIDTH - left - 6) / max(len(columns), 8)
    every = -(-(max([1, *(len(text) for row in ticks.values() for text in row.values())]) * _DIGIT + 10) // step)
    axes.grid(visible=False)
    axes.set(xlim=(-0.5, max(len(columns), 8) - 0.5), ylim=(0, max(count for _, count in columns) or 1), yticks=[])
    axes.axhline(0, color=LINE, linewidth=2, clip_on=False)
    colours = [NEUTRAL if number is None else POSITIVE for number, _ in columns]
    axes.bar(range(len(columns)), [count for _, count in columns], width=0.76, color=colours)
    shown = {
        at: rest[0] if number is None else "\n".join(row.get(number, "") for row in ticks.values())
        for at, (number, _) in enumerate(columns)
        if number is None or at % every == 0
    }
    axes.set_xticks(list(shown), list(shown.values()))
    names = "\n".join(ticks)
    axes.annotate(names, (0, 0), (-8, -3.5), xycoords="axes fraction", textcoords="offset points", va="top", ha="right", color=SOFT)  # fmt: skip
    for at, (_, count) in enumerate(columns):
        if count and len(str(count)) * _DIGIT < step:
            axes.annotate(str(count), (at, count), (0, 4), textcoords="offset points", ha="center", color=SOFT)
    return figure


@styled()
def draw_score_pairs(pairs: Sequence[ScorePair]) -> Figure:
    """Draws the two scores of each unit as dots, connected by a line, in descending order of `own` minus `other`."""
    ranked = sorted(pairs, key=lambda pair: (pair.other - pair.own, pair.label))
    step = max(1.5, min(16.0, 520 / max(1, len(ranked))))
    is_labelled = step >= 11
    figure = new_figure(_WIDTH, round(len(ranked) * step) + 30)
    axes = add_axes(figure, _LEFT if is_labelled else 12.0, 4, 14, 22)
    axes.set(xlim=(-0.02, 1.02), ylim=(len(ranked) - 0.5, -0.5), xticks=(0, 0.25, 0.5, 0.75, 1))
    axes.set_xticklabels(["0", "0.25", "0.5", "0.75", "1"])
    axes.axvline(0.5, color=SOFT, linewidth=1, linestyle=(0, (3, 3)), zorder=1)
    axes.set_yticks(range(len(ranked)) if is_labelled else [], [_short(pair.label) for pair in ranked] if is_labelled else [], color=INK)  # fmt: skip
    for label, pair in zip(axes.get_yticklabels(), ranked, strict=False):
        label.set_url(pair.link or None)
    links = [pair.link or None for pair in ranked]
    lines = [((pair.own, row), (pair.other, row)) for row, pair in enumerate(ranked)]
    colours = [WORSE if pair.own < pair.other else POSITIVE for pair in ranked]
    axes.add_collection(LineCollection(lines, colors=colours, linewidths=1.5, alpha=0.45, urls=links))
    for colour, values in ((NEUTRAL, [pair.other for pair in ranked]), (POSITIVE, [pair.own for pair in ranked])):
        axes.scatter(values, range(len(ranked)), s=min(8.0, step * 0.9) ** 2, color=colour, linewidths=0, zorder=3, urls=links, clip_on=False)  # fmt: skip
    return figure


@styled()
def value_strips(groups: Mapping[str, Sequence[float]], first: str) -> Figure:
    """Draws a row of dots for each group of values, with its mean as a line. The group `first` is in colour."""
    values = [value for group in groups.values() for value in group]
    figure = new_figure(_WIDE, 30.0 * len(groups) + 30)
    axes = add_axes(figure, 170, 4, 40, 24)
    low, high = min(values, default=0.0), max(values, default=1.0)
    span = (high - low) or 1.0
    ticks = [low + span * part for part in (0, 0.25, 0.5, 0.75, 1)]
    axes.set(xlim=(low - 0.02 * span, low + 1.02 * span), ylim=(len(groups) - 0.5, -0.5))
    axes.set_xticks(ticks, [f"{tick:.3g}" for tick in ticks])
    axes.set_yticks(range(len(groups)), [printable(name) for name in groups], color=INK)
    axes.tick_params(axis="y", pad=10)
    for row, (name, group) in enumerate(groups.items()):
        colour = POSITIVE if name == first else NEUTRAL
        axes.scatter(group, [row] * len(group), s=100, color=colour, alpha=0.62, linewidths=0, zorder=2, clip_on=False)
        if group:
            axes.plot([sum(group) / len(group)] * 2, [row - 0.33, row + 0.33], color=INK, linewidth=2, zorder=3)
    return figure


@styled()
def draw_risk_coverage(curves: Sequence[RiskCoverage]) -> Figure:
    """Draws risk-coverage curves: the mean risk of the units that are kept, over their share."""
    figure = new_figure(440, 220)
    axes = add_axes(figure, 52, 10, 22, 32)
    top = max(0.5, max(risk.high for curve in curves for _, risk in curve.risks))
    axes.set(xlim=(0, 1), ylim=(0, top))
    axes.grid(axis="y")
    axes.grid(visible=False, axis="x")
    axes.set_xticks([share for share, _ in curves[0].risks], [percent(share) for share, _ in curves[0].risks])
    axes.set_yticks([0, top / 2, top], [f"{risk:.2g}" for risk in (0.0, top / 2, top)])
    axes.axhline(curves[0].random, color=SOFT, linewidth=1, linestyle=(0, (3, 3)))
    for number, curve in enumerate(curves):
        colour, shares = _CURVES[number % len(_CURVES)], [share for share, _ in curve.risks]
        low, high = [risk.low for _, risk in curve.risks], [risk.high for _, risk in curve.risks]
        axes.fill_between(shares, low, high, color=colour, alpha=0.12, linewidth=0)
        axes.plot(shares, [risk.mean for _, risk in curve.risks], color=colour, linewidth=2)
    return figure


def _short(label: str) -> str:
    """Shortens a label by leaving out its beginning, which is less specific than its end."""
    return printable(label if len(label) <= _LETTERS else "…" + label[1 - _LETTERS :])
