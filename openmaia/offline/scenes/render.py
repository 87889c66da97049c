"""Draws a settled scene, and the masks of its figures."""

from collections.abc import Mapping

import numpy as np
from PIL import Image, ImageChops, ImageDraw, ImageFilter, ImageOps

from openmaia.core.images import Mask, Pixels
from openmaia.offline.scenes.canvas import Canvas, mix
from openmaia.offline.scenes.graph import Figure, Scene
from openmaia.offline.scenes.kinds import kinds
from openmaia.offline.scenes.layout import ordered
from openmaia.offline.scenes.places import paint_place, paint_weather

GREY_STYLES = ("pencil drawing", "night vision", "greyscale")
"""Styles that show no colours."""


def render(scene: Scene, size: int) -> Pixels:
    """Draws a settled scene as a square with sides of `size` pixels."""
    return _styled(_drawn(scene, size, None), scene, size)


def masks(scene: Scene, size: int) -> Mapping[int, Mask]:
    """Returns the visible pixels of each figure, by id. A figure that is hidden has none."""
    return render_with_masks(scene, size)[1]


def render_with_masks(scene: Scene, size: int) -> tuple[Pixels, Mapping[int, Mask]]:
    """Returns what `render` and `masks` return, in the time of one of them."""
    layers: dict[int, Image.Image] = {}
    canvas = _drawn(scene, size, layers)
    return _styled(canvas, scene, size), {each: canvas.reduced(layers[each]) for each in layers}


def _styled(canvas: Canvas, scene: Scene, size: int) -> Pixels:
    return np.asarray(_STYLES[scene.style](canvas.picture(), size))


def _drawn(scene: Scene, size: int, layers: dict[int, Image.Image] | None) -> Canvas:
    canvas = Canvas(size, outlined=scene.style in ("outlined", "pencil drawing"))
    paint_place(canvas, scene)
    # Figures are a little lighter than their place, so that they are seen at night.
    canvas.light = mix(canvas.light, (255, 255, 255), 0.45)
    for figure in ordered(scene):
        _shadow(canvas, scene, figure)
        covered = canvas.figure(figure)
        if layers is not None and covered is not None:
            mask = Image.new("L", canvas.image.size)
            mask.paste(*covered)
            layers.update({each: ImageChops.subtract(layer, mask) for each, layer in layers.items()})
            layers[figure.id] = mask
    paint_weather(canvas, scene)
    return canvas


def _shadow(canvas: Canvas, scene: Scene, figure: Figure) -> None:
    spot, kind = figure.spot, kinds()[figure.kind]
    if spot is None or kind.where in ("sky", "horizon"):
        return
    wide = kind.width * spot.height / 200
    if kind.name == "moon" or spot.floats:
        return
    if scene.place == "sea":
        for n in range(4):
            tone = mix(canvas.lit((20, 70, 120)), canvas.haze, 0.1)
            canvas.glow(spot.x, spot.y + 0.012 + 0.016 * n, wide * (1.05 - 0.16 * n), 0.016, tone, 0.62 - 0.1 * n)
        return
    dark = mix(canvas.lit((40, 34, 70)), (24, 20, 44), 0.4)
    tall = min(max(wide * 0.22, 0.014), 0.05)
    canvas.glow(spot.x + wide * 0.16, spot.y, wide * 1.3, tall * 1.35, dark, canvas.shadow * 1.6)


def _flat(picture: Image.Image, size: int) -> Image.Image:
    return picture


def _pencil(picture: Image.Image, size: int) -> Image.Image:
    grey = ImageOps.autocontrast(picture.convert("L"), 0.5)
    edges = ImageOps.expand(grey, 2).filter(ImageFilter.FIND_EDGES).crop((2, 2, size + 2, size + 2))
    edges = ImageChops.subtract(edges, Image.new("L", (size, size), 40))
    ImageDraw.Draw(edges).rectangle((0, 0, size - 1, size - 1), outline=0, width=2)
    y, x = np.mgrid[0:size, 0:size].astype(np.float32) / size
    dark = 1 - np.asarray(grey.filter(ImageFilter.GaussianBlur(size / 180)), np.float32) / 255
    line = np.sin((x + y) * 2 * np.pi * min(44, size / 5)) * 0.5 + 0.5
    cross = np.sin((x - y) * 2 * np.pi * min(44, size / 5)) * 0.5 + 0.5
    # In a small picture a line is as wide as the details, and would hide them.
    fine = min(size / 320, 1)
    tone = 0.3 * dark + 0.34 * fine * dark * line + 0.3 * fine * np.clip(dark - 0.45, 0, 1) * cross
    drawn = np.clip(1.04 - tone - np.asarray(edges, np.float32) / (220 - 60 * fine), 0.12, 1)
    return Image.fromarray((drawn[..., None] * (251, 248, 240)).astype(np.uint8))


def _night_vision(picture: Image.Image, size: int) -> Image.Image:
    grey = np.asarray(ImageOps.autocontrast(picture.convert("L"), 1), np.float32) / 255
    y, x = np.mgrid[-1 : 1 : size * 1j, -1 : 1 : size * 1j].astype(np.float32)
    lines = 0.93 + 0.07 * np.sin(y * np.pi * min(90, size / 3))
    bright = np.clip((0.1 + 0.9 * grey) * lines * (1.1 - 0.55 * np.hypot(x, y) ** 2), 0, 1)
    return Image.fromarray((bright[..., None] ** (1.9, 0.85, 1.7) * (190, 255, 170)).astype(np.uint8))


def _greyscale(picture: Image.Image, size: int) -> Image.Image:
    return ImageOps.autocontrast(picture.convert("L"), 0.5).convert("RGB")


def _pixelated(picture: Image.Image, size: int) -> Image.Image:
    small = picture.resize((32, 32), Image.Resampling.BOX).quantize(28).convert("RGB")
    return small.resize((size, size), Image.Resampling.NEAREST)


def _blurred(picture: Image.Image, size: int) -> Image.Image:
    return picture.filter(ImageFilter.GaussianBlur(size / 36))


_STYLES = {
    "flat": _flat,
    "outlined": _flat,
    "pencil drawing": _pencil,
    "night vision": _night_vision,
    "greyscale": _greyscale,
    "pixelated": _pixelated,
    "blurred": _blurred,
}
