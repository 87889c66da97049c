"""What a figure consists of, as marks on a plane: one description for the SVG and for the PNG."""

from dataclasses import dataclass
from typing import Literal

Anchor = Literal["start", "middle", "end"]

WHITE = "#ffffff"
INK, SOFT, LINE = "#1b1d21", "#5f6570", "#e0e0dc"
POSITIVE, NEUTRAL = "#2f62d9", "#8b919c"
SIZE = 11.5
"""Of letters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    x1: float
    y1: float
    x2: float
    y2: float
    colour: str
    width: float = 1.0
    is_dashed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    """is_hollow: an outline alone, which is how published numbers are drawn."""

    x: float
    y: float
    width: float
    height: float
    colour: str
    is_hollow: bool = False
    is_dashed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Dot:
    x: float
    y: float
    radius: float
    colour: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Words:
    """y: of the letters' base."""

    x: float
    y: float
    text: str
    colour: str = INK
    anchor: Anchor = "start"
    is_bold: bool = False


Mark = Segment | Box | Dot | Words


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """label: the figure for who cannot see it. marks: later ones on top."""

    label: str
    width: float
    height: float
    marks: tuple[Mark, ...]


def point(x: float, y: float, colour: str, is_published: bool) -> Mark:
    if is_published:
        return Box(x=x - 3.6, y=y - 3.6, width=7.2, height=7.2, colour=colour, is_hollow=True)
    return Dot(x=x, y=y, radius=4.4, colour=colour)
