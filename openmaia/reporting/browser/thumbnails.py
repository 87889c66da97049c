"""Small data URIs, so that a browser can show pages with hundreds of images."""

import base64
import io

import numpy as np
from PIL import Image

from openmaia.core.images import EncodedImage, Rendering, decode, draw_outline
from openmaia.reporting.browser.unit.claims import find_exemplar_images
from openmaia.reporting.browser.unit.pictures import DATA_URI_PREFIX
from openmaia.runs.records import Record

_TOP, _TOP_SIDE = 4, 64


class Thumbnails:
    """Encodes the images of one page, up to a total size of all data URIs in bytes. Further images are left out."""

    def __init__(self, allowance: int):
        self.left = allowance

    def uri(
        self,
        image: EncodedImage | None,
        side: int,
        mask: bytes | None = None,
        rendering: Rendering = Rendering.DARKEN,
    ) -> str:
        """Returns the data URI of an image with at most `side` pixels of width and height.

        Empty if the image was not stored, is damaged, or does not fit. `mask` has one bit per pixel, packed row by row.
        """
        if image is None or not image.data or self.left <= 0:
            return ""
        try:
            decoded = decode(image.data)
        except ValueError:
            return ""
        return self.of(_masked(_shrunk(decoded, side), _unpacked(mask, decoded.size), rendering))

    def of(self, image: Image.Image) -> str:
        """Returns the data URI of an image that is already small; empty if it does not fit."""
        if self.left <= 0:
            return ""
        uri = _encoded(image)
        self.left -= len(uri)
        return uri


def make_thumbnails(
    record: Record, thumbnails: Thumbnails, count: int = _TOP, side: int = _TOP_SIDE
) -> tuple[str, ...]:
    """Returns data URIs of at most `count` top exemplars, outlined; none if the agent requested none."""
    images = find_exemplar_images(record, count)
    uris = (thumbnails.uri(image, side, mask, Rendering.OUTLINE) for image, mask in images)
    return tuple(uri for uri in uris if uri)


def _unpacked(mask: bytes | None, size: tuple[int, int]) -> Image.Image | None:
    """Returns the mask as an image of 0 and 255; None without one, or if its size does not fit."""
    width, height = size
    if mask is None or len(mask) != height * ((width + 7) // 8):
        return None
    return Image.frombytes("1", size, mask).convert("L")


def _shrunk(image: Image.Image, side: int) -> Image.Image:
    small = image.copy()
    small.thumbnail((side, side), Image.Resampling.BILINEAR)
    return small


def _masked(small: Image.Image, mask: Image.Image | None, rendering: Rendering) -> Image.Image:
    """Draws a mask of the original size on a reduced image, which is faster and gives smooth edges."""
    if mask is None:
        return small
    share = mask.resize(small.size, Image.Resampling.BOX, reducing_gap=2.0)
    if rendering is Rendering.OUTLINE:
        return Image.fromarray(draw_outline(np.asarray(small.convert("RGB")), np.asarray(share) > 127))
    return Image.composite(small, small.point([value // 4 for value in range(256)] * 3), share)


def _encoded(image: Image.Image) -> str:
    buffer = io.BytesIO()
    image.save(buffer, "WEBP", quality=62, method=1)
    return DATA_URI_PREFIX + base64.b64encode(buffer.getvalue()).decode()
