"""Draws backgrounds, patterns and shapes by formulas."""

from itertools import product

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw, ImageFilter

from openmaia.core.images import flatten

Rng = np.random.Generator
Colour = tuple[int, int, int]

# Largest difference of a pixel of the even background from the corner of a photograph, summed over the channels.
_EVEN = 100
_MARK: Colour = (255, 0, 255)

PAINTS: dict[str, Colour] = {
    "red": (214, 32, 32),
    "orange": (240, 130, 20),
    "yellow": (242, 214, 36),
    "green": (36, 158, 52),
    "blue": (32, 74, 214),
    "purple": (132, 42, 172),
    "pink": (244, 140, 184),
    "brown": (122, 76, 40),
    "black": (18, 18, 18),
    "white": (246, 246, 246),
    "grey": (128, 128, 128),
}

GROUNDS: dict[str, tuple[Colour, Colour, tuple[int, int]]] = {
    "grass": ((52, 96, 30), (130, 168, 74), (64, 110)),
    "sand": ((186, 156, 108), (232, 210, 166), (120, 120)),
    "water": ((26, 74, 118), (116, 172, 204), (14, 70)),
    "sky": ((92, 148, 214), (236, 242, 250), (5, 3)),
    "snow": ((206, 216, 228), (252, 252, 255), (20, 20)),
    "wood": ((104, 66, 34), (182, 132, 82), (4, 90)),
    "stone": ((86, 86, 88), (178, 176, 172), (34, 34)),
    "brick": ((138, 62, 44), (178, 92, 68), (40, 40)),
}
"""By scene word: the two colours that are mixed, and the number of cells of noise across and down the image."""


def ground(name: str, size: int, rng: Rng) -> Image.Image:
    """Draws the background for one of the keys of GROUNDS."""
    dark, light, (columns, rows) = GROUNDS[name]
    coarse = _noise(size, max(columns // 4, 2), max(rows // 4, 2), rng)
    mixed = 0.65 * _noise(size, columns, rows, rng) + 0.35 * coarse
    image = _mix(dark, light, np.clip((mixed - mixed.mean()) * 1.6 + 0.5, 0, 1))
    if name == "brick":
        draw = ImageDraw.Draw(image)
        height, width = size // 14, size // 6
        for row in range(15):
            draw.line([(0, row * height), (size, row * height)], fill=(206, 198, 186), width=2)
            for column in range(8):
                x = column * width + (row % 2) * width // 2
                draw.line([(x, row * height), (x, (row + 1) * height)], fill=(206, 198, 186), width=2)
    return image


def plain(colour: Colour, size: int, rng: Rng) -> Image.Image:
    """Draws a background of one slightly uneven colour."""
    shade = 1 + 0.06 * (_noise(size, 3, 3, rng) - 0.5)
    values = np.clip(np.array(colour)[None, None] * shade[..., None], 0, 255)
    return Image.fromarray(values.astype(np.uint8))


def pattern(name: str, ink: Colour, paper: Colour, size: int, rng: Rng) -> Image.Image:
    """Draws a pattern; a name that is none gives noise."""
    period = int(rng.integers(size // 12, size // 7))
    rows, columns = np.mgrid[:size, :size] + rng.integers(0, period)
    half, wide = period // 2, 2 * period
    match name:
        case "horizontal stripes":
            on = rows % period < half
        case "vertical stripes":
            on = columns % period < half
        case "diagonal stripes":
            on = (rows + columns) % period < half
        case "checkerboard":
            on = (rows // period + columns // period) % 2 == 0
        case "dots":
            on = np.hypot(rows % wide - period, columns % wide - period) < half
        case "grid":
            on = (rows % period < max(period // 6, 2)) | (columns % period < max(period // 6, 2))
        case "rings":
            on = np.hypot(rows - size / 2, columns - size / 2) % period < half
        case _:
            on = rng.random((size, size)) < 0.5
    drawn = _mix(paper, ink, on.astype(np.float64))
    return drawn.filter(ImageFilter.GaussianBlur(0.7))


def shape(name: str, fill: Image.Image, side: int, rng: Rng) -> Image.Image:
    """Cuts a shape out of the image `fill`. Returns RGBA; a name that is no shape gives a star."""
    scale = 4
    big = side * scale
    mask = Image.new("L", (big, big), 0)
    draw = ImageDraw.Draw(mask)
    match name:
        case "circle":
            draw.ellipse([0, 0, big - 1, big - 1], fill=255)
        case "square":
            draw.rectangle([0, 0, big - 1, big - 1], fill=255)
        case "triangle":
            draw.polygon([(big // 2, 0), (big - 1, big - 1), (0, big - 1)], fill=255)
        case "cross":
            third = big // 3
            draw.rectangle([third, 0, big - third, big - 1], fill=255)
            draw.rectangle([0, third, big - 1, big - third], fill=255)
        case "bar":
            draw.rectangle([0, int(big * 0.38), big - 1, int(big * 0.62)], fill=255)
        case _:  # star
            angles = -np.pi / 2 + np.arange(10) * np.pi / 5
            radii = np.where(np.arange(10) % 2 == 0, 0.5, 0.2) * big
            points = zip(big / 2 + radii * np.cos(angles), big / 2 + radii * np.sin(angles), strict=True)
            draw.polygon([(float(x), float(y)) for x, y in points], fill=255)
    cut = fill.resize((side, side)).convert("RGBA")
    cut.putalpha(mask.resize((side, side), Image.Resampling.BOX))
    return cut


def without_ground(image: Image.Image, *, is_round: bool) -> Image.Image:
    """Makes the even background of a photograph transparent. Returns RGBA.

    Args:
        is_round: Whether the object is round and fills the photograph. Then everything outside of the largest ellipse
            is background.
            Otherwise the background is what has the colour of the corners and is connected with them.
    """
    cut = flatten(image)
    if is_round:
        mask = Image.new("L", cut.size, 0)
        ImageDraw.Draw(mask).ellipse((1, 1, cut.width - 2, cut.height - 2), fill=255)
    else:
        marked = cut.copy()
        for corner in product((0, cut.width - 1), (0, cut.height - 1)):
            if marked.getpixel(corner) != _MARK:
                ImageDraw.floodfill(marked, corner, _MARK, thresh=_EVEN)
        ground = (np.asarray(marked) == _MARK).all(axis=2)
        mask = Image.fromarray(np.where(ground, 0, 255).astype(np.uint8)).filter(ImageFilter.MinFilter(3))
    cut.putalpha(mask)
    return cut


def tinted(image: Image.Image, colour: Colour) -> Image.Image:
    """Returns a copy in shades of one colour. The transparency is kept."""
    rgba = image.convert("RGBA")
    values = np.asarray(rgba).astype(np.float64)
    grey = values[..., :3].mean(axis=2, keepdims=True) / 255
    # Mid-grey becomes the colour itself, and brightness keeps its order.
    toned = np.where(
        grey < 0.5, np.array(colour) * grey * 2, np.array(colour) + (255 - np.array(colour)) * (grey - 0.5)
    )
    return Image.fromarray(np.dstack([np.clip(toned, 0, 255), values[..., 3:]]).astype(np.uint8), "RGBA")


def _noise(size: int, columns: int, rows: int, rng: Rng) -> npt.NDArray[np.float64]:
    # Mostly between 0 and 1: rows x columns random values, scaled up smoothly.
    cells = Image.fromarray(rng.random((rows, columns)).astype(np.float32))
    return np.asarray(cells.resize((size, size), Image.Resampling.BICUBIC)).astype(np.float64)


def _mix(dark: Colour, light: Colour, share: npt.NDArray[np.float64]) -> Image.Image:
    values = np.array(dark) + (np.array(light) - np.array(dark)) * share[..., None]
    return Image.fromarray(np.clip(values, 0, 255).astype(np.uint8))
