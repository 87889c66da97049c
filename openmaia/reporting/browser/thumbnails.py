"""Converts images to small data URIs, so that a browser can show pages with hundreds of images."""

import base64
import io

import numpy as np
from PIL import Image, ImageOps

from openmaia.core.images import EncodedImage, Rendering, decode, outlined
from openmaia.reporting.browser.unit.claims import exemplar_images
from openmaia.runs.records import Record

PREFIX = "data:image/webp;base64,"
TOP, TOP_SIDE = 4, 64
STRIP_SIDE = 88
"""Side of each exemplar in the strip (exemplars side by side) of a row of the table of units, in pixels."""


class Thumbnails:
    """Encodes the images of one page as data URIs. Images are left out once the total size reaches a maximum."""

    def __init__(self, allowance: int):
        """Sets the allowance, the total size of all data URIs in bytes. Further images are left out."""
        self.left = allowance

    def uri(
        self,
        image: EncodedImage | None,
        side: int,
        mask: bytes | None = None,
        rendering: Rendering = Rendering.DARKEN,
    ) -> str:
        """Returns the data URI of an image, reduced in size.

        Args:
            image: The image; None if it was not stored.
            side: The maximum width and height in pixels.
            mask: Where the unit responds: one bit per pixel of the image, packed row by row. None shows no mask.
            rendering: How the mask is shown.

        Returns:
            The data URI; empty if the image was not stored, is damaged, or the page's maximum size is used up.
        """
        if image is None or not image.data or self.left <= 0:
            return ""
        try:
            decoded = decode(image.data)
        except ValueError:
            return ""
        return self.of(_masked(_shrunk(decoded, side), _unpacked(mask, decoded.size), rendering))

    def of(self, image: Image.Image) -> str:
        """Returns the data URI of an image that is already small; empty if the page's maximum size is used up."""
        if self.left <= 0:
            return ""
        uri = _encoded(image)
        self.left -= len(uri)
        return uri


def top(record: Record, thumbnails: Thumbnails, count: int = TOP, side: int = TOP_SIDE) -> tuple[str, ...]:
    """Returns data URIs of a unit's top exemplars, the dataset images that activate it most.

    Outlines are drawn around the areas where the unit responds.
    The result is empty if the agent requested no exemplars.

    Args:
        record: The record of the unit's investigation.
        thumbnails: Makes the data URIs.
        count: Maximum number of exemplars.
        side: Maximum width and height of each, in pixels.
    """
    images = exemplar_images(record, count)
    uris = (thumbnails.uri(image, side, mask, Rendering.OUTLINE) for image, mask in images)
    return tuple(uri for uri in uris if uri)


def strip(record: Record) -> bytes:
    """Returns a WebP image that shows the top exemplars of a record's unit, the dataset images that activate it most.

    It has two rows with the same exemplars. Only in the lower row, the areas where the unit responds are outlined. The
    report's first page shows one row at a time. The result is empty if the record has no exemplars.
    """
    squares = [_squares(image, mask) for image, mask in exemplar_images(record, TOP)]
    squares = [pair for pair in squares if pair]
    if not squares:
        return b""
    sheet = Image.new("RGB", (TOP * STRIP_SIDE, 2 * STRIP_SIDE), "white")
    for column, pair in enumerate(squares):
        for line, square in enumerate(pair):
            sheet.paste(square, (column * STRIP_SIDE, line * STRIP_SIDE))
    buffer = io.BytesIO()
    sheet.save(buffer, "WEBP", quality=70, method=0)
    return buffer.getvalue()


def _squares(image: EncodedImage, mask: bytes | None) -> tuple[Image.Image, ...]:
    """Returns a small square of the image, and the same with the outlined mask; empty if the image is damaged."""
    try:
        decoded = decode(image.data)
    except ValueError:
        return ()
    small = _shrunk(decoded, STRIP_SIDE)
    both = (small, _masked(small, _unpacked(mask, decoded.size), Rendering.OUTLINE))
    return tuple(ImageOps.pad(each, (STRIP_SIDE, STRIP_SIDE), color="white") for each in both)


def _unpacked(mask: bytes | None, size: tuple[int, int]) -> Image.Image | None:
    """Returns the mask as an image of 0 and 255; None without a mask, or if its size does not fit."""
    width, height = size
    if mask is None or len(mask) != height * ((width + 7) // 8):
        return None
    return Image.frombytes("1", size, mask).convert("L")


def _shrunk(image: Image.Image, side: int) -> Image.Image:
    small = image.copy()
    small.thumbnail((side, side), Image.Resampling.BILINEAR)
    return small


def _masked(small: Image.Image, mask: Image.Image | None, rendering: Rendering) -> Image.Image:
    """Draws a mask on an image that was already reduced in size, which is faster and gives smooth edges.

    Args:
        small: The reduced image.
        mask: The mask in the original size; None draws nothing.
        rendering: How the mask is shown.
    """
    if mask is None:
        return small
    share = mask.resize(small.size, Image.Resampling.BOX, reducing_gap=2.0)
    if rendering is Rendering.OUTLINE:
        return Image.fromarray(outlined(np.asarray(small.convert("RGB")), np.asarray(share) > 127))
    return Image.composite(small, small.point([value // 4 for value in range(256)] * 3), share)


def _encoded(image: Image.Image) -> str:
    buffer = io.BytesIO()
    image.save(buffer, "WEBP", quality=62, method=1)
    return PREFIX + base64.b64encode(buffer.getvalue()).decode()
