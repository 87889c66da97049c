"""Where the parts of a risk-coverage figure stand; the template draws them."""

from collections.abc import Sequence
from dataclasses import dataclass

from openmaia.evaluate.selective import Selective

WIDTH, HEIGHT, LEFT, BASE = 440, 220, 52, 186


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """points: of a polyline; band: of the polygon of its interval, both as SVG writes them. number: of its colour."""

    name: str
    points: str
    band: str
    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """x, y: (place, text) of the ticks. random: height of the mean risk."""

    curves: tuple[Curve, ...]
    x: tuple[tuple[float, str], ...]
    y: tuple[tuple[float, str], ...]
    random: float
    width: int = WIDTH
    height: int = HEIGHT
    left: int = LEFT
    base: int = BASE


def coverage(found: Sequence[Selective]) -> Coverage | None:
    if not found:
        return None
    top = max(0.5, max(risk.high for curve in found for _, risk in curve.risks))

    def x(share: float) -> float:
        return round(LEFT + (WIDTH - LEFT - 16) * share, 1)

    def y(risk: float) -> float:
        return round(BASE - (BASE - 12) * risk / top, 1)

    def drawn(pairs: Sequence[tuple[float, float]]) -> str:
        return " ".join(f"{x(share)},{y(risk)}" for share, risk in pairs)

    curves = [
        Curve(
            name=curve.by,
            points=drawn([(share, risk.mean) for share, risk in curve.risks]),
            band=drawn(
                [(share, risk.low) for share, risk in curve.risks]
                + [(share, risk.high) for share, risk in reversed(curve.risks)]
            ),
            number=at,
        )
        for at, curve in enumerate(found)
    ]
    return Coverage(
        curves=tuple(curves),
        x=tuple((x(share), f"{share:.0%}") for share, _ in found[0].risks),
        y=tuple((y(risk), f"{risk:.2g}") for risk in (0.0, top / 2, top)),
        random=y(found[0].random),
    )
