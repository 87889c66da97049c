"""The images of a report's page. Each is embedded once; masks are drawn as outlines above it."""

import base64
import io
from dataclasses import dataclass
from enum import StrEnum
from functools import cache

import contourpy
import numpy as np
import numpy.typing as npt
from markupsafe import Markup
from PIL import Image

from openmaia.core.images import EncodedImage, PixelBox, ViewBox, upsample
from openmaia.core.services import Map

_SIDE = 1000
"""Side of the square in which outlines are drawn. Coordinates are whole numbers, which is fast to format."""
OUTLINE_SIDE = 48
"""Rows and columns of the grid on which an outline is traced."""
SMALL = 96
"""Longest side in pixels of pictures that are shown small."""
DATA_URI_PREFIX = "data:image/webp;base64,"


class Origin(StrEnum):
    """Where an image comes from, which decides whether it may be published."""

    DATASET = "dataset"
    """From the dataset, or made of an image of it, or unknown."""
    DRAWN = "drawn"
    """The generator made it from a prompt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """An image on a page of a report."""

    number: int | None
    """Its number on the page; None if it was not stored or the page would become too large."""
    uri: str = ""
    """The data URI at the first occurrence; empty at later ones, to which the page's script copies it."""
    outline: str = ""
    """The outline of the mask as an SVG path in a square of side _SIDE; empty without a mask."""
    frame: str = ""
    """The edge of the part that the network sees, as such a path; empty if this is the whole image or unknown."""


MISSING = Picture(number=None)


class PagePictures:
    """The images of one page, up to a total size of all data URIs in bytes. Further images are left out, and those of the
    origins `withheld`. No copy has a side of more than `largest` pixels, unless that is 0."""

    def __init__(self, allowance: int, withheld: frozenset[Origin] = frozenset(), largest: int = 0):
        self.left, self._number, self.withheld, self._largest = allowance, 0, withheld, largest
        self._shown: dict[str, tuple[int, tuple[int, int]] | None] = {}
        """Number and size by digest; None for an image that does not fit or is damaged."""
        self._outlines: dict[tuple[str, bytes], str] = {}
        self._uris: dict[int, str] = {}
        """The data URIs that the page has not shown yet, by number."""

    def once(self, picture: Picture) -> str:
        """Returns the data URI where the page shows a picture for the first time, and an empty string later."""
        return "" if picture.number is None else self._uris.pop(picture.number, "")

    def picture(
        self,
        digest: str,
        data: bytes,
        mask: bytes | None = None,
        seen: PixelBox | None = None,
        *,
        side: int = 0,
        origin: Origin = Origin.DATASET,
    ) -> Picture:
        """Returns an image for the page; MISSING if it was not stored, is damaged, withheld, or does not fit.

        The page holds a lossy copy, because the stored one would be several times as large.

        Args:
            digest: Equal digests share one data URI.
            data: The image file; empty if it was not stored.
            mask: One bit per pixel, packed row by row.
            seen: The part that the network sees; None if this is the whole image or unknown.
            side: Longest side in pixels of the copy, where the page holds none yet. 0: that of the image.
        """
        if not data or origin in self.withheld:
            return MISSING
        uri = "" if digest in self._shown else self._embedded(digest, EncodedImage(data=data), side)
        if (shown := self._shown[digest]) is None:
            return MISSING
        number, size = shown
        outline = self._outline(digest, size, mask) if mask else ""
        return Picture(number=number, uri=uri, outline=outline, frame=trace_frame(seen, size))

    def _embedded(self, digest: str, image: EncodedImage, side: int) -> str:
        self._shown[digest] = None
        side = side or self._largest
        try:
            copy = _shrink(image, side) if side else image.webp()
            uri = Markup(DATA_URI_PREFIX + base64.b64encode(copy).decode())  # Nothing in it has to be escaped.
        except ValueError:
            return ""
        if len(uri) > self.left:
            return ""
        self.left -= len(uri)
        self._number += 1
        self._shown[digest] = self._number - 1, image.size
        self._uris[self._number - 1] = uri
        return uri

    def _outline(self, digest: str, size: tuple[int, int], mask: bytes) -> str:
        key = (digest, mask)
        if key not in self._outlines:
            self._outlines[key] = trace_mask(mask, *size)
        return self._outlines[key]


def _shrink(image: EncodedImage, side: int) -> bytes:
    small, buffer = image.pil(), io.BytesIO()
    small.thumbnail((side, side))
    small.save(buffer, "WEBP", quality=80, method=0)
    return buffer.getvalue()


def trace_map(small: Map, box: ViewBox, size: tuple[int, int], threshold: float) -> str:
    """Returns the outline of the area where an activation map exceeds a threshold, as an SVG path in a square of side _SIDE.

    Args:
        small: The map, which covers `box` of the image.
        box: In pixels of the image.
        size: Width and height of the image.
        threshold: The activation.
    """
    width, height = size
    scales = (OUTLINE_SIDE / width, OUTLINE_SIDE / height) * 2
    left, top, right, bottom = (round(edge * scale) for edge, scale in zip(box, scales, strict=True))
    field = np.full((OUTLINE_SIDE, OUTLINE_SIDE), min(threshold - 1, float(small.min())), np.float32)
    field[top:bottom, left:right] = upsample(small, bottom - top, right - left)
    return trace(field, threshold)


def trace_frame(seen: PixelBox | None, size: tuple[int, int]) -> str:
    """Returns the edge of a part of an image as an SVG path in a square of side _SIDE; empty for None.

    `size` is width and height of the image.
    """
    if seen is None:
        return ""
    left, top, right, bottom = (edge * _SIDE // side for edge, side in zip(seen, size * 2, strict=True))
    return f"M{left} {top}H{right}V{bottom}H{left}Z"


def trace_mask(mask: bytes, width: int, height: int) -> str:
    """Returns the outline of a mask (one bit per pixel, packed row by row) as an SVG path in a square of side _SIDE.

    Empty if the mask does not fit the size, or covers nothing.
    """
    if not mask or len(mask) != height * ((width + 7) // 8):
        return ""
    bits = Image.frombytes("1", (width, height), mask).convert("L")
    # The gap makes Pillow halve the mask first, which is faster.
    grid = np.asarray(bits.resize((OUTLINE_SIDE, OUTLINE_SIDE), Image.Resampling.BOX, reducing_gap=2.0))
    return trace(grid.astype(np.float32), 127.5)


def _generator(field: npt.NDArray[np.float64]) -> contourpy.SerialContourGenerator:
    x, y = _axes(len(field))
    # `contourpy.contour_generator` would take five times as long, because it also supports masked arrays.
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
    """Returns the outline of the area in which a square field, (n, n), exceeds a level, as an SVG path in a square of
    side _SIDE."""
    # A frame closes the outline at the border of the image.
    framed = np.full((len(field) + 2, len(field) + 2), min(level - 1, float(field.min())))
    framed[1:-1, 1:-1] = field
    lines = _generator(framed).lines(level)
    scale, edge = _SIDE / len(field), _SIDE // 160
    parts: list[str] = []
    for line in lines:
        points = np.clip((np.asarray(line)[::2] - 0.5) * scale, edge, _SIDE - edge).astype(int).ravel().tolist()
        parts.append(f"M{' '.join(map(str, points))}Z")  # After M, further points are ends of lines.
    return "".join(parts)
