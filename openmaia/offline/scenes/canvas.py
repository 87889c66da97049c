"""The canvas: polygons, gradients, patterns and light, larger than the picture, which is reduced at the end."""

from collections.abc import Sequence
from functools import cache, lru_cache

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageChops, ImageDraw

from openmaia.offline.scenes.graph import Figure, Paint, Spot
from openmaia.offline.scenes.kinds import Kind, Points, kinds, split_ink

RGB = tuple[int, int, int]

COLOURS: dict[str, RGB] = {
    "red": (214, 58, 50),
    "orange": (242, 138, 46),
    "yellow": (248, 202, 62),
    "green": (76, 158, 84),
    "turquoise": (54, 184, 178),
    "blue": (48, 108, 194),
    "purple": (132, 82, 172),
    "pink": (243, 152, 182),
    "white": (251, 249, 243),
    "black": (44, 45, 56),
    "brown": (138, 90, 58),
    "grey": (146, 151, 160),
}
INKS: dict[str, RGB] = {
    **COLOURS,
    "dark": (46, 46, 58),
    "cream": (252, 244, 226),
    "wood": (142, 96, 62),
    "bark": (116, 80, 60),
    "tile": (178, 82, 62),
    "glass": (164, 212, 232),
    "steel": (206, 211, 218),
    "gold": (250, 200, 70),
    "leaf": (92, 160, 84),
    "navy": (44, 56, 92),
    "rock": (124, 120, 122),
    "sand": (226, 196, 148),
    "coffee": (88, 56, 42),
    "snow": (250, 252, 255),
    "lamp": (255, 226, 130),
}
_GLOWING = ("lamp",)
_INK = (48, 42, 52)
# How many times larger than the picture the canvas is, for pictures up to a size.
_SUPER = ((72, 4), (160, 3), (4096, 2))
# The detail of curves, for canvases up to a side.
_DETAIL = ((320, 1), (640, 2), (8192, 4))


def mix(a: RGB, b: RGB, share: float) -> RGB:
    """Returns the colour that lies at a share of the way from a to b."""
    return (
        round(a[0] + (b[0] - a[0]) * share),
        round(a[1] + (b[1] - a[1]) * share),
        round(a[2] + (b[2] - a[2]) * share),
    )


def shaded(colour: RGB, shade: int) -> RGB:
    """Returns a colour made darker (below 0) or lighter, in tenths."""
    # Shadows are bluish and lights are warm, which keeps the colours fresh.
    return mix(colour, (30, 24, 60), -shade / 11) if shade < 0 else mix(colour, (255, 252, 240), shade / 10)


def cells(pattern: str, u: npt.NDArray[np.floating], v: npt.NDArray[np.floating]) -> npt.NDArray[np.bool_]:
    """Returns where a pattern with period 1 shows its second colour."""
    match pattern:
        case "vertical stripes":
            return _part(u) < 0.5
        case "horizontal stripes":
            return _part(v) < 0.5
        case "diagonal stripes":
            return _part((u + v) * 0.75) < 0.5
        case "dots":
            return (_part(u + (np.floor(v) % 2) / 2) - 0.5) ** 2 + (_part(v) - 0.5) ** 2 < 0.1
        case "checks":
            return (_part(u) < 0.5) ^ (_part(v) < 0.5)
        case "zigzag":
            return _part(v + np.abs(_part(u) - 0.5)) < 0.5
        case "rings":
            return _part(np.hypot(u, v)) < 0.5
        case "bricks":
            row = np.floor(v * 2)
            return (_part(v * 2) < 0.16) | (_part(u + row % 2 / 2) < 0.08)
        case "grid":
            return (_part(u) < 0.17) | (_part(v) < 0.17)
        case _:
            return _part(v + 0.2 * np.sin(u * 2 * np.pi)) < 0.5


def _part(x: npt.NDArray[np.floating]) -> npt.NDArray[np.floating]:
    # What x % 1 is, but faster.
    return x - np.floor(x)


def _two_colours(shows: npt.NDArray[np.bool_], ink: RGB, paper: RGB) -> Image.Image:
    image = Image.fromarray(shows.view(np.uint8))
    image.putpalette([*paper, *ink])
    return image.convert("RGB")


@lru_cache(maxsize=64)
def _soft(percent: int) -> Image.Image:
    # A round spot that fades out.
    y, x = np.mgrid[-1:1:96j, -1:1:96j]
    return Image.fromarray((2.55 * percent * np.clip(1 - np.hypot(x, y), 0, 1) ** 1.4).astype(np.uint8))


@cache
def _slope(is_light: bool) -> Image.Image:
    # The light comes from the upper left.
    y, x = np.mgrid[0:1:48j, 0:1:48j]
    way = (1.3 - 1.5 * x - 0.9 * y) if is_light else (1.3 * x + 0.8 * y - 0.85)
    return Image.fromarray((np.clip(way, 0, 1) * (90 if is_light else 105)).astype(np.uint8))


class Canvas:
    """Draws in coordinates from 0 to 1; y points down."""

    def __init__(self, size: int, *, outlined: bool = False):
        self._reduce = next(factor for most, factor in _SUPER if size <= most)
        self.side = size * self._reduce
        self._detail = next(detail for most, detail in _DETAIL if self.side <= most)
        self.image = Image.new("RGB", (self.side, self.side))
        self._draw = ImageDraw.Draw(self.image)
        self.outlined = outlined
        self.light: RGB = (255, 255, 255)
        """The colour of the light, by which those of figures and places are multiplied."""
        self.haze: RGB = (255, 255, 255)
        self.shadow = 0.3

    def lit(self, colour: RGB, far: float = 0.0) -> RGB:
        """Returns how a colour looks in the light, at a distance."""
        r, g, b = (part * light // 255 for part, light in zip(colour, self.light, strict=True))
        return mix((r, g, b), self.haze, far)

    def fill(self, points: Points | Sequence[tuple[float, float]], colour: RGB) -> None:
        """Fills a polygon."""
        self._draw.polygon((np.asarray(points, float) * self.side).ravel().tolist(), fill=colour)

    def box(self, x0: float, y0: float, x1: float, y1: float, colour: RGB) -> None:
        self.fill([(x0, y0), (x1, y0), (x1, y1), (x0, y1)], colour)

    def line(self, points: Points | Sequence[tuple[float, float]], colour: RGB, width: float) -> None:
        scaled = (np.asarray(points, float) * self.side).ravel().tolist()
        self._draw.line(scaled, fill=colour, width=max(round(width * self.side), 1), joint="curve")

    def disc(self, x: float, y: float, r: float, colour: RGB) -> None:
        x, y, r = x * self.side, y * self.side, max(r * self.side, 1.0)
        self._draw.ellipse((x - r, y - r, x + r, y + r), fill=colour)

    def gradient(
        self, stops: Sequence[RGB], y0: float = 0.0, y1: float = 1.0, x0: float = 0.0, x1: float = 1.0
    ) -> None:
        """Fills a box with colours that change from top to bottom."""
        left, top, right, bottom = (round(each * self.side) for each in (x0, y0, x1, y1))
        if bottom <= top:
            return
        at = np.linspace(0, 1, bottom - top)
        column = np.stack([np.interp(at, np.linspace(0, 1, len(stops)), part) for part in zip(*stops, strict=True)], 1)
        band = Image.fromarray((column + 0.5).astype(np.uint8)[:, None])
        self.image.paste(band.resize((right - left, bottom - top), Image.Resampling.NEAREST), (left, top))

    def glow(self, x: float, y: float, rx: float, ry: float, colour: RGB, strength: float) -> None:
        """Draws a soft spot."""
        box = [round(each * self.side) for each in (x - rx, y - ry, x + rx, y + ry)]
        left, top = max(box[0], 0), max(box[1], 0)
        right, bottom = min(box[2], self.side), min(box[3], self.side)
        if left >= right or top >= bottom:
            return
        wide, tall = 95 / (box[2] - box[0]), 95 / (box[3] - box[1])
        part = ((left - box[0]) * wide, (top - box[1]) * tall, (right - box[0]) * wide, (bottom - box[1]) * tall)
        spot = _soft(min(round(strength * 100), 100)).resize(
            (right - left, bottom - top), Image.Resampling.BILINEAR, box=part
        )
        self.image.paste(colour, (left, top, right, bottom), spot)

    def fog(self, colour: RGB) -> None:
        """Covers the picture, most where it is far."""
        thick = np.interp(np.linspace(0, 1, self.side), (0, 0.3, 0.62, 1), (110, 150, 165, 60)).astype(np.uint8)
        self.image.paste(colour, (0, 0), Image.fromarray(thick[:, None]).resize(self.image.size))

    def ray(self, points: Sequence[tuple[float, float]], colour: RGB, strength: float) -> None:
        """Fills a polygon with light, which fades downwards."""
        mask = Image.new("L", self.image.size)
        ImageDraw.Draw(mask).polygon((np.asarray(points) * self.side).ravel().tolist(), fill=255)
        fade = Image.fromarray((255 * strength * np.linspace(1, 0, self.side)).astype(np.uint8)[:, None])
        self.image.paste(colour, (0, 0), ImageChops.multiply(mask, fade.resize(mask.size)))

    def pattern(self, paint: Paint, period: float, angle: float) -> None:
        """Fills the picture with a pattern."""
        at = np.arange(self.side).astype(np.float32) / self.side - 0.5
        u, v = at[None], at[:, None]
        cos, sin = np.cos(np.deg2rad(angle)) / period, np.sin(np.deg2rad(angle)) / period
        shows = cells(paint.pattern, u * cos + v * sin, v * cos - u * sin)
        ink, paper = COLOURS[paint.colour], COLOURS[paint.second]
        if paint.pattern == "bricks":
            ink, paper = paper, ink
        self.image.paste(_two_colours(shows, ink, paper))

    def figure(self, figure: Figure) -> tuple[Image.Image, tuple[int, int]] | None:
        """Draws a figure. Returns its mask, and where the mask lies. None if it is outside of the picture."""
        kind, spot = kinds(self._detail)[figure.kind], figure.spot
        assert spot is not None
        points = placed(kind, spot) * self.side
        left, top = np.maximum(np.floor(points.min(0)) - 2, 0).astype(int).tolist()
        right, bottom = np.minimum(np.ceil(points.max(0)) + 3, self.side).astype(int).tolist()
        if left >= right or top >= bottom:
            return None
        mask = Image.new("L", (right - left, bottom - top))
        draw = ImageDraw.Draw(mask)
        fabric = _Fabric(self, kind, spot, (left, top, right, bottom))
        start = 0
        for ink, shade, count in kind.shapes:
            outline = points[start : start + count]
            start += count
            flat, moved = outline.ravel().tolist(), (outline - (left, top)).ravel().tolist()
            paint, more = _paint(figure, kind, ink)
            shade += more
            if paint.pattern:
                fabric.paste(paint, shade, moved)
            else:
                glows = paint.colour in _GLOWING or kind.where == "sky"
                colour = shaded(INKS[paint.colour], shade)
                self._draw.polygon(flat, fill=colour if glows else self.lit(colour, spot.far))
            if self.outlined:
                self._draw.line([*flat, *flat[:4]], fill=_INK, width=max(self.side // 150, 2), joint="curve")
            draw.polygon(moved, fill=255)
        box = (left, top, right, bottom)
        for is_light, colour in ((False, (20, 16, 52)), (True, (255, 248, 226))):
            if not self.outlined and kind.where not in ("sky", "shape"):
                slope = _slope(is_light).resize(mask.size, Image.Resampling.BILINEAR)
                self.image.paste(self.lit(colour, spot.far), box, ImageChops.multiply(slope, mask))
        return mask, (left, top)

    def picture(self) -> Image.Image:
        """Returns the picture in its own size."""
        return self.image.reduce(self._reduce)

    def reduced(self, mask: Image.Image) -> npt.NDArray[np.bool_]:
        """Returns which pixels of the picture a mask covers by more than half."""
        return np.asarray(mask.reduce(self._reduce)) > 128


class _Fabric:
    """The patterns of one figure, which turn with it."""

    def __init__(self, canvas: Canvas, kind: Kind, spot: Spot, box: tuple[int, int, int, int]):
        self._canvas, self._box, self._spot = canvas, box, spot
        self._period = 0.2 * np.sqrt(kind.width * 100)
        self._tiles: dict[tuple[Paint, int], Image.Image] = {}

    def paste(self, paint: Paint, shade: int, outline: list[float]) -> None:
        tile = self._tiles.get((paint, shade)) or self._tile(paint, shade)
        self._tiles[paint, shade] = tile
        mask = Image.new("L", tile.size)
        ImageDraw.Draw(mask).polygon(outline, fill=255)
        self._canvas.image.paste(tile, self._box[:2], mask)

    def _tile(self, paint: Paint, shade: int) -> Image.Image:
        left, top, right, bottom = self._box
        spot, side = self._spot, self._canvas.side
        x = np.arange(left, right).astype(np.float32)[None]
        y = np.arange(top, bottom).astype(np.float32)[:, None]
        scale, turn = 100 / (spot.height * side), np.deg2rad(spot.angle)
        dx, dy = (x - spot.x * side) * scale, (spot.y * side - y) * scale
        u = (dx * np.cos(turn) + dy * np.sin(turn)) * (-1 if spot.flip else 1) / self._period
        v = (dy * np.cos(turn) - dx * np.sin(turn) - 50) / self._period
        shows = cells(paint.pattern, u + (0.25 if paint.pattern != "rings" else 0), v)
        ink, paper = (self._canvas.lit(shaded(COLOURS[each], shade), spot.far) for each in (paint.second, paint.colour))
        return _two_colours(shows, ink, paper)


def placed(kind: Kind, spot: Spot) -> Points:
    """Returns the points of a kind at its spot in the picture."""
    points = kind.points * (spot.height / 100)
    if spot.flip:
        points = points * (-1, 1)
    turn = np.deg2rad(spot.angle)
    x = points[:, 0] * np.cos(turn) - points[:, 1] * np.sin(turn)
    y = points[:, 0] * np.sin(turn) + points[:, 1] * np.cos(turn)
    return np.stack([spot.x + x, spot.y - y], 1)


def _paint(figure: Figure, kind: Kind, ink: str) -> tuple[Paint, int]:
    # The shade is that of the part, such as main-2.
    for name, paint in figure.parts:
        if name == ink:
            return paint, 0
    name, shade = split_ink(kind.parts.get(ink, ink))
    return (figure.paint if name == "main" else Paint(colour=name)), shade
