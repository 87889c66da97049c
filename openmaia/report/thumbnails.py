"""Pictures as data URIs, small enough that a page with hundreds of them stays readable by a browser."""

import base64
import io

import numpy as np
import numpy.typing as npt
from PIL import Image

from openmaia.images import Picture, decode
from openmaia.report.captions import arguments
from openmaia.store.records import Record

PREFIX = "data:image/webp;base64,"
TOP, TOP_SIDE = 4, 64


class Thumbnails:
    """allowance: bytes of all data URIs of one page together; pictures beyond it are left out."""

    def __init__(self, allowance: int):
        self.left = allowance

    def uri(self, picture: Picture | None, side: int, mask: bytes | None = None) -> str:
        """The picture within side x side pixels, outside the mask darkened to a quarter. "" where it cannot be shown:
        not kept, damaged, or beyond the allowance."""
        if picture is None or not picture.data or self.left <= 0:
            return ""
        try:
            image = decode(picture.data)
        except ValueError:
            return ""
        return self.of(_darkened(image, _unpacked(mask, image.size), side))

    def of(self, image: Image.Image) -> str:
        """An image that is small already. "" beyond the allowance."""
        if self.left <= 0:
            return ""
        found = _encoded(image)
        self.left -= len(found)
        return found


def top(record: Record, thumbnails: Thumbnails) -> tuple[str, ...]:
    """The unit's highest exemplars, as far as the agent asked for them."""
    pictures = record.pictures
    for call in (call for turn in record.turns for call in turn.calls):
        if call.name == "dataset_exemplars" and arguments(call) == ["top"]:
            shown = (thumbnails.uri(pictures.get(e.original), TOP_SIDE, e.mask) for e in call.entries[:TOP])
            return tuple(uri for uri in shown if uri)
    return ()


def _unpacked(mask: bytes | None, size: tuple[int, int]) -> npt.NDArray[np.uint8] | None:
    """(height, width) of 0 and 1; None also for a mask of another size than the picture."""
    width, height = size
    if mask is None or len(mask) != height * ((width + 7) // 8):
        return None
    rows = np.frombuffer(mask, dtype=np.uint8).reshape(height, -1)
    return np.unpackbits(rows, axis=1, count=width)


def _darkened(image: Image.Image, mask: npt.NDArray[np.uint8] | None, side: int) -> Image.Image:
    """Masked after shrinking: less work, and smooth edges."""
    small = image.copy()
    small.thumbnail((side, side), Image.Resampling.BILINEAR)
    if mask is None:
        return small
    share = Image.fromarray(mask * np.uint8(255)).resize(small.size, Image.Resampling.BOX)
    return Image.composite(small, small.point([value // 4 for value in range(256)] * 3), share)


def _encoded(image: Image.Image) -> str:
    buffer = io.BytesIO()
    image.save(buffer, "WEBP", quality=62, method=1)
    return PREFIX + base64.b64encode(buffer.getvalue()).decode()
