"""The images of a report's page. Each is embedded once, as in the record; masks are drawn as outlines above it."""

import base64
import io
import struct
from dataclasses import dataclass
from functools import cache

import contourpy
import numpy as np
import numpy.typing as npt
from markupsafe import Markup
from PIL import Image

from openmaia.core.images import FORMATS

SIDE = 1000
"""Side of the square that contains the outlines of masks. Coordinates are whole numbers, which is fast to format."""
OUTLINE_SIDE = 48
"""Number of rows and columns of the grid on which the outline of a mask is traced."""
PREFIX = "data:image/webp;base64,"


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """An image on a page of a report."""

    number: int | None
    """The number of the image on the page; None if the image was not stored or the page would become too large."""
    uri: str = ""
    """The data URI at the first occurrence of the image; empty at later ones, to which the page's script copies it."""
    outline: str = ""
    """The outline of the mask as an SVG path in a square of side SIDE; empty without a mask."""


MISSING = Picture(number=None)


class PagePictures:
    """The images of one page of a report, up to a maximum total size."""

    def __init__(self, allowance: int):
        """Sets the allowance, the total size of all data URIs in bytes. Further images are left out."""
        self.left = allowance
        self._numbers: dict[str, int] = {}
        self._outlines: dict[tuple[str, bytes], str] = {}

    def picture(self, digest: str, data: bytes, mask: bytes | None = None) -> Picture:
        """Returns an image, with the outline of its mask, for the page.

        Returns the empty picture MISSING if the image was not stored, or if the page's images would become too large.

        Args:
            digest: The key of the image: equal digests share one data URI.
            data: The image file; empty if it was not stored.
            mask: Where the unit responds: one bit per pixel, packed row by row. None without a mask.
        """
        if not data:
            return MISSING
        number, uri = self._numbers.get(digest), ""
        if number is None:
            uri = Markup(PREFIX + base64.b64encode(data).decode())  # Nothing in it has to be escaped.
            if len(uri) > self.left:
                return MISSING
            self.left -= len(uri)
            number = self._numbers[digest] = len(self._numbers)
        return Picture(number=number, uri=uri, outline=self._outline(digest, data, mask) if mask else "")

    def _outline(self, digest: str, data: bytes, mask: bytes) -> str:
        key = (digest, mask)
        if key not in self._outlines:
            self._outlines[key] = mask_outline(mask, *_size(data))
        return self._outlines[key]


def _size(data: bytes) -> tuple[int, int]:
    """Returns width and height of an image file, or zeros if it cannot be read. Only its header is read."""
    if data[:4] == b"RIFF" and data[12:16] == b"VP8 ":
        width, height = struct.unpack("<HH", data[26:30])
        return width & 0x3FFF, height & 0x3FFF
    try:
        with Image.open(io.BytesIO(data), formats=FORMATS) as image:
            return image.size
    except (OSError, ValueError, SyntaxError):
        return 0, 0


def mask_outline(mask: bytes, width: int, height: int) -> str:
    """Returns the outline of a mask, the region where a unit responds, as an SVG path in a square of side SIDE.

    Args:
        mask: One bit per pixel, packed row by row.
        width: Width of the image in pixels.
        height: Height of the image in pixels.

    Returns:
        The path; empty if the mask does not fit the size, or covers nothing.
    """
    if not mask or len(mask) != height * ((width + 7) // 8):
        return ""
    bits = Image.frombytes("1", (width, height), mask).convert("L")
    # The gap makes Pillow halve the mask first, which is faster.
    grid = np.asarray(bits.resize((OUTLINE_SIDE, OUTLINE_SIDE), Image.Resampling.BOX, reducing_gap=2.0))
    return trace(grid.astype(np.float32), 127.5)


def _generator(field: npt.NDArray[np.float64]) -> contourpy.SerialContourGenerator:
    """Returns a contour generator for a square field.

    `contourpy.contour_generator` would take five times as long, because it also supports masked arrays.
    """
    x, y = _axes(len(field))
    return contourpy.SerialContourGenerator(
        x, y, field, None,  # pyright: ignore[reportArgumentType]  # None means that no point is masked
        corner_mask=False, line_type=contourpy.LineType.Separate, fill_type=contourpy.FillType.OuterCode,
        quad_as_tri=False, z_interp=contourpy.ZInterp.Linear, x_chunk_size=0, y_chunk_size=0,
    )  # fmt: skip


@cache
def _axes(side: int) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    x, y = np.meshgrid(np.arange(side, dtype=np.float64), np.arange(side, dtype=np.float64))
    return x, y


def trace(field: npt.NDArray[np.float32], level: float) -> str:
    """Returns the outline of the area in which a square field exceeds a level, as an SVG path in a square of side SIDE.

    Args:
        field: The values on a square grid, (n, n).
        level: The level, on the same scale as the values.
    """
    # A frame closes the outline at the border of the image.
    framed = np.full((len(field) + 2, len(field) + 2), min(level - 1, float(field.min())))
    framed[1:-1, 1:-1] = field
    lines = _generator(framed).lines(level)
    scale, edge = SIDE / len(field), SIDE // 160
    parts: list[str] = []
    for line in lines:
        points = np.clip((np.asarray(line)[::2] - 0.5) * scale, edge, SIDE - edge).astype(int).ravel().tolist()
        parts.append(f"M{' '.join(map(str, points))}Z")  # After M, further points are ends of lines.
    return "".join(parts)
