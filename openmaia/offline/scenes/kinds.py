"""The kinds of objects, read from kinds.txt."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt

Points = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A kind of object. Lengths are in hundredths of its height."""

    name: str
    aliases: tuple[str, ...]
    wider: tuple[str, ...]
    where: str
    """`ground`, `air`, `far` (in the sky or on the horizon), `water` (on it) or `swim` (in it)."""
    homes: tuple[str, ...]
    colours: tuple[str, ...]
    """Usual colours. Empty: it has its own colours."""
    width: float
    height: float
    """Usual height as a share of the side of the picture."""
    top: float
    """Where something can stand on it."""
    parts: Mapping[str, str]
    """The ink of each part that a prompt can colour."""
    shapes: tuple[tuple[str, int, int], ...]
    """Ink and its shade, and the number of points, of each shape from back to front."""
    points: Points
    """The points of all shapes, (n, 2); y points up and the foot is at (0, 0)."""


def _smooth(control: Points, detail: int, *, is_open: bool) -> Points:
    # Catmull-Rom: the curve passes through the control points.
    before, after = np.roll(control, 1, 0), np.roll(control, -1, 0)
    if is_open:
        before[0], after[-1] = control[0], control[-1]
    tangents = (after - before) / 2
    parts: list[Points] = []
    for n in range(len(control) - is_open):
        end = (n + 1) % len(control)
        t = np.arange(5 * detail)[:, None] / (5 * detail)
        ease, rise, fall = 3 * t**2 - 2 * t**3, t - 2 * t**2 + t**3, t**3 - t**2
        parts.append(control[n] * (1 - ease) + control[end] * ease + tangents[n] * rise + tangents[end] * fall)
    return np.concatenate([*parts, control[-1:]] if is_open else parts)


def _stroke(points: Points, width: float, detail: int) -> Points:
    # The outline of a smooth line with round ends.
    line = _smooth(points, detail, is_open=True) if len(points) > 2 else points
    along = np.gradient(line, axis=0)
    along /= np.maximum(np.hypot(along[:, 0], along[:, 1]), 1e-9)[:, None]
    side = np.stack([-along[:, 1], along[:, 0]], 1) * width / 2
    cap = [line[-1] + side[-1] * np.cos(a) + along[-1] * np.sin(a) * width / 2 for a in (0.6, 1.2, 1.9, 2.5)]
    start = [line[0] - side[0] * np.cos(a) - along[0] * np.sin(a) * width / 2 for a in (0.6, 1.2, 1.9, 2.5)]
    return np.concatenate([line + side, np.array(cap), (line - side)[::-1], np.array(start)])


def _oval(detail: int, x: float, y: float, rx: float, ry: float, angle: float = 0.0) -> Points:
    t, turn = np.linspace(0, 2 * np.pi, 28 * detail, endpoint=False), np.deg2rad(angle)
    dx, dy = rx * np.cos(t), ry * np.sin(t)
    return np.stack([x + dx * np.cos(turn) - dy * np.sin(turn), y + dx * np.sin(turn) + dy * np.cos(turn)], 1)


def _arc(detail: int, width: float, x: float, y: float, r: float, turn: float) -> Points:
    t = np.linspace(0, turn, 40 * detail)[:, None]
    unit = np.concatenate([np.cos(t), np.sin(t)], 1)
    return np.concatenate([unit * (r + width / 2), unit[::-1] * (r - width / 2)]) + np.array([x, y])


def _box(detail: int, x0: float, y0: float, x1: float, y1: float, radius: float) -> Points:
    r = min(radius, abs(x1 - x0) / 2, abs(y1 - y0) / 2)
    if not r:
        return np.array([(x0, y0), (x1, y0), (x1, y1), (x0, y1)], float)
    corners = ((x1 - r, y1 - r), (x0 + r, y1 - r), (x0 + r, y0 + r), (x1 - r, y0 + r))
    turns = np.linspace(0, np.pi / 2, 5 * detail)
    return np.array(
        [(x + r * np.cos(a), y + r * np.sin(a)) for n, (x, y) in enumerate(corners) for a in turns + n * np.pi / 2]
    )


def split_ink(ink: str) -> tuple[str, int]:
    """Returns the name and the shade of an ink such as main-2."""
    for sign in "+-":
        name, found, digits = ink.partition(sign)
        if found:
            return name, int(sign + digits)
    return ink, 0


def _outlines(letter: str, numbers: list[float], detail: int) -> Iterator[Points]:
    match letter:
        case "o":
            x, y, rx, ry, *angle = numbers
            yield _oval(detail, x, y, rx, ry, *angle)
        case "r":
            x, y, x1, y1, radius = numbers
            yield _box(detail, x, y, x1, y1, radius)
        case "c" | "h":
            width, x, y, r = numbers
            yield _arc(detail, width, x, y, r, 2 * np.pi if letter == "c" else np.pi)
        case "a":
            n, x, y, distance, rx, ry = numbers
            for turn in np.arange(n) * 360 / n + 90:
                yield _oval(
                    detail,
                    x + distance * np.cos(np.deg2rad(turn)),
                    y + distance * np.sin(np.deg2rad(turn)),
                    rx,
                    ry,
                    turn,
                )
        case "l":
            yield _stroke(np.reshape(numbers[1:], (-1, 2)), numbers[0], detail)
        case _:
            points = np.reshape(np.array(numbers, float), (-1, 2))
            yield _smooth(points, detail, is_open=False) if letter == "s" else points


def _shape(line: str, detail: int) -> Iterator[tuple[str, int, Points]]:
    letter, ink, *numbers = line.split()
    name, shade = split_ink(ink)
    for points in _outlines(letter[0], [float(each) for each in numbers], detail):
        yield name, shade, points
        if letter.endswith("2"):
            yield name, shade, points * (-1, 1)


def _kind(block: str, detail: int) -> Kind:
    heading, facts, *lines = block.strip().splitlines()
    name, _, rest = heading.partition(" (")
    aliases, _, wider = rest.partition(")")
    places, colours, sizes, parts = (part.split() for part in facts.split("|"))
    shapes = [shape for line in lines for shape in _shape(line, detail)]
    return Kind(
        name=name,
        aliases=tuple(each.strip() for each in aliases.split(",") if each.strip()),
        wider=tuple(each.strip() for each in wider.split(",") if each.strip()),
        where=places[0],
        homes=tuple(places[1:]),
        colours=tuple(colours),
        width=float(sizes[0]),
        height=float(sizes[1]) / 100,
        top=float(sizes[2]),
        parts=dict(part.split("=") for part in parts),
        shapes=tuple((ink, shade, len(points)) for ink, shade, points in shapes),
        points=np.concatenate([points for _, _, points in shapes]),
    )


@cache
def kinds(detail: int = 1) -> Mapping[str, Kind]:
    """Returns all kinds by name. Curves have `detail` times as many points as a small picture needs."""
    text = (Path(__file__).parent / "kinds.txt").read_text()
    lines = "\n".join(line for line in text.splitlines() if line and not line.startswith("#"))
    # A heading is the only line that is not indented.
    found = [_kind(block, detail) for block in re.split(r"\n(?=\S)", lines)]
    return {each.name: each for each in found}
