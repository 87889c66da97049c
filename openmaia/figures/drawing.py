"""A scene as SVG and as PNG."""

import io
import re
from functools import cache

import jinja2
from PIL import Image, ImageDraw, ImageFont

from openmaia.figures.scene import SIZE, WHITE, Box, Dot, Mark, Scene, Segment, Words

DENSITY = 2
"""Pixels of the PNG per unit of the scene."""
FINER = 2
"""It is drawn so much larger and scaled down, for smooth edges."""
DASH = 3.0
FONTS = ("DejaVuSans.ttf", "NotoSans-Regular.ttf", "NotoSansCJK-Regular.ttc", "Arial.ttf")
"""Looked for among the system's where a text is not plain ASCII, which is all that Pillow's own has."""


def svg(scene: Scene, *, is_alone: bool = True) -> bytes:
    """is_alone: as a file of its own. Colours stand in the marks, so that it looks the same in a page. XML has no room for control
    characters, not even as references."""
    drawn = _template().render(scene=scene, size=SIZE, white=WHITE, is_alone=is_alone)
    return re.sub(r"[\x00-\x08\x0b-\x1f\x7f\ud800-\udfff\ufffe\uffff]", "\ufffd", drawn).encode()


def png(scene: Scene) -> bytes:
    scale = DENSITY * FINER
    image = Image.new("RGB", (round(scene.width * scale), round(scene.height * scale)), WHITE)
    pen = ImageDraw.Draw(image)
    for mark in scene.marks:
        _draw(pen, mark, scale)
    buffer = io.BytesIO()
    dots = round(72 * DENSITY)
    image.reduce(FINER).save(buffer, "PNG", optimize=True, dpi=(dots, dots))
    return buffer.getvalue()


def _draw(pen: ImageDraw.ImageDraw, mark: Mark, scale: float) -> None:
    match mark:
        case Segment():
            ends = (mark.x1 * scale, mark.y1 * scale, mark.x2 * scale, mark.y2 * scale)
            _line(pen, ends, mark.colour, round(mark.width * scale), mark.is_dashed, scale)
        case Dot():
            r = mark.radius * scale
            pen.ellipse((mark.x * scale - r, mark.y * scale - r, mark.x * scale + r, mark.y * scale + r), mark.colour)
        case Box():
            _box(pen, mark, scale)
        case Words():
            anchor = {"start": "ls", "middle": "ms", "end": "rs"}[mark.anchor]
            thick = round(0.35 * scale) if mark.is_bold else 0
            font, text = _font(mark.text, SIZE * scale)
            pen.text((mark.x * scale, mark.y * scale), text, mark.colour, font, anchor, stroke_width=thick / 2)


def _box(pen: ImageDraw.ImageDraw, box: Box, scale: float) -> None:
    left, top, right, bottom = (v * scale for v in (box.x, box.y, box.x + box.width, box.y + box.height))
    if not box.is_hollow:
        pen.rectangle((left, top, right, bottom), box.colour)
        return
    pen.rectangle((left, top, right, bottom), WHITE)
    for ends in (
        (left, top, right, top),
        (right, top, right, bottom),
        (right, bottom, left, bottom),
        (left, bottom, left, top),
    ):
        _line(pen, ends, box.colour, round(1.5 * scale), box.is_dashed, scale)


def _line(
    pen: ImageDraw.ImageDraw,
    ends: tuple[float, float, float, float],
    colour: str,
    width: int,
    is_dashed: bool,
    scale: float,
) -> None:
    x1, y1, x2, y2 = ends
    length = max(abs(x2 - x1), abs(y2 - y1))
    step = DASH * scale if is_dashed else length
    at = 0.0
    while at < length:
        a, b = at / length, min(at + step, length) / length
        pen.line((x1 + (x2 - x1) * a, y1 + (y2 - y1) * a, x1 + (x2 - x1) * b, y1 + (y2 - y1) * b), colour, width)
        at += 2 * step


def _font(text: str, size: float) -> tuple[ImageFont.FreeTypeFont | ImageFont.ImageFont, str]:
    """A font, and the text as far as the font has its letters."""
    if not text.isascii():
        for name in FONTS:
            found = _named(name, size)
            if found is not None:
                return found, text
    return ImageFont.load_default(size), text.encode("ascii", "replace").decode()


@cache
def _named(name: str, size: float) -> ImageFont.FreeTypeFont | None:
    try:
        return ImageFont.truetype(name, size)
    except OSError:
        return None


@cache
def _template() -> jinja2.Template:
    return jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    ).from_string(_SVG)


_SVG = """<svg{% if is_alone %} xmlns="http://www.w3.org/2000/svg"{% endif %} width="{{ scene.width * 1.5 }}" height="{{ scene.height * 1.5 }}" \
viewBox="0 0 {{ scene.width }} {{ scene.height }}" role="img" aria-label="{{ scene.label }}" \
font-family="system-ui, -apple-system, 'Segoe UI', Roboto, 'Noto Sans', sans-serif" font-size="{{ size }}">
<title>{{ scene.label }}</title>
<rect width="{{ scene.width }}" height="{{ scene.height }}" fill="{{ white }}"/>
{% for m in scene.marks %}
{% if m.x1 is defined %}
<line x1="{{ m.x1 }}" y1="{{ m.y1 }}" x2="{{ m.x2 }}" y2="{{ m.y2 }}" stroke="{{ m.colour }}" stroke-width="{{ m.width }}"\
{% if m.is_dashed %} stroke-dasharray="3 3"{% endif %}/>
{% elif m.radius is defined %}
<circle cx="{{ m.x }}" cy="{{ m.y }}" r="{{ m.radius }}" fill="{{ m.colour }}"/>
{% elif m.text is defined %}
<text x="{{ m.x }}" y="{{ m.y }}" fill="{{ m.colour }}" text-anchor="{{ m.anchor }}"\
{% if m.is_bold %} font-weight="600"{% endif %}>{{ m.text }}</text>
{% else %}
<rect x="{{ m.x }}" y="{{ m.y }}" width="{{ m.width }}" height="{{ m.height }}"{% if m.is_hollow %} fill="{{ white }}" \
stroke="{{ m.colour }}" stroke-width="1.5"{% if m.is_dashed %} stroke-dasharray="3 3"{% endif %}\
{% else %} fill="{{ m.colour }}"{% endif %}/>
{% endif %}
{% endfor %}
</svg>
"""
