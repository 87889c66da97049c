"""Durations of predicted sweeps over numbers of GPUs, as an SVG file."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import jinja2

from openmaia.costs.estimate import Prediction

WIDTH, HEIGHT = 720.0, 360.0
LEFT, RIGHT, TOP, BOTTOM = 64.0, 150.0, 40.0, 64.0
COLOURS = ("#2563eb", "#b45309", "#0f766e", "#9333ea")
TICKS = (
    (60.0, "1 min"),
    (600.0, "10 min"),
    (3600.0, "1 h"),
    (36e3, "10 h"),
    (864e2, "1 d"),
    (864e3, "10 d"),
    (864e4, "100 d"),
    (864e5, "1,000 d"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """points: (x, y, what it says); serial: the same work one by one, in the same order."""

    label: str
    colour: str
    points: tuple[tuple[float, float, str], ...]
    serial: tuple[tuple[float, float], ...]


def scaling(predictions: Sequence[Prediction], source: str) -> bytes:
    """Both axes are logarithmic; a line per number of units. Raises ValueError for fewer than two numbers of GPUs."""
    cards = sorted({prediction.gpus for prediction in predictions})
    if len(cards) < 2 or cards[0] <= 0:
        raise ValueError("a figure of scaling needs predictions for two numbers of GPUs at least")
    times = [t for p in predictions for t in (p.duration.value, p.serial or p.duration.value)]
    low, high = math.log(min(times) / 1.6), math.log(max(times) * 1.6)

    def x(gpus: float) -> float:
        share = math.log(gpus / cards[0]) / math.log(cards[-1] / cards[0])
        return round(LEFT + 24 + (WIDTH - LEFT - RIGHT - 24) * share, 1)

    def y(seconds: float) -> float:
        return round(TOP + (HEIGHT - TOP - BOTTOM) * (high - math.log(seconds)) / (high - low), 1)

    def line(number: int, units: int) -> Line:
        own = sorted((p for p in predictions if p.units == units), key=lambda p: p.gpus)
        return Line(
            label=f"{units:,} units",
            colour=COLOURS[number % len(COLOURS)],
            points=tuple((x(p.gpus), y(p.duration.value), _said(p.duration.value)) for p in own),
            serial=tuple((x(p.gpus), y(p.serial)) for p in own if p.serial),
        )

    return (
        jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True)
        .from_string(_SVG)
        .render(
            width=WIDTH,
            height=HEIGHT,
            left=LEFT,
            right=WIDTH - RIGHT,
            bottom=HEIGHT - BOTTOM,
            ticks=[(y(seconds), text) for seconds, text in TICKS if low <= math.log(seconds) <= high],
            cards=[(x(gpus), f"{gpus:g}") for gpus in cards],
            lines=[line(n, units) for n, units in enumerate(sorted({p.units for p in predictions}))],
            source=source,
        )
        .encode()
    )


def _said(seconds: float) -> str:
    if seconds < 2 * 3600:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 72 * 3600 else f"{seconds / 86400:.1f} d"


_SVG = """<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {{ width }} {{ height }}" role="img"
 aria-label="Predicted duration of a sweep by number of GPUs" font-family="system-ui, sans-serif" font-size="12">
<rect width="{{ width }}" height="{{ height }}" fill="#ffffff"/>
<text x="16" y="22" font-weight="600" fill="#111827">Predicted duration of a sweep, by number of GPUs</text>
{% for y, text in ticks %}
<line x1="{{ left }}" x2="{{ right }}" y1="{{ y }}" y2="{{ y }}" stroke="#e5e7eb"/>
<text x="{{ left - 8 }}" y="{{ y + 4 }}" text-anchor="end" fill="#6b7280">{{ text }}</text>
{% endfor %}
{% for x, text in cards %}
<text x="{{ x }}" y="{{ bottom + 18 }}" text-anchor="middle" fill="#6b7280">{{ text }} GPUs</text>
{% endfor %}
{% for line in lines %}
<polyline fill="none" stroke="{{ line.colour }}" stroke-width="1.5" stroke-dasharray="3 4" opacity="0.7" points="{% for x, y in line.serial %}{{ x }},{{ y }} {% endfor %}"/>
<polyline fill="none" stroke="{{ line.colour }}" stroke-width="2.5" points="{% for x, y, _ in line.points %}{{ x }},{{ y }} {% endfor %}"/>
{% for x, y, text in line.points %}
<circle cx="{{ x }}" cy="{{ y }}" r="4.5" fill="{{ line.colour }}"/>
<text x="{{ x }}" y="{{ y + 20 }}" text-anchor="middle" fill="#111827">{{ text }}</text>
{% endfor %}
<text x="{{ right + 14 }}" y="{{ line.points[-1][1] + 4 }}" fill="{{ line.colour }}" font-weight="600">{{ line.label }}</text>
{% endfor %}
<text x="16" y="{{ height - 24 }}" fill="#6b7280">Solid: pools, replicas balanced. Dotted: each GPU holds all models and runs one investigation after the other.</text>
<text x="16" y="{{ height - 8 }}" fill="#6b7280">Service times {{ source }}</text>
</svg>
"""
