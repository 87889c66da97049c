"""Encoded images, and functions on pixels and masks."""

import hashlib
import io
import struct
import warnings
from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property
from typing import TypeVar

import numpy as np
import numpy.typing as npt
from PIL import Image

from openmaia.core.bombs import SCANS, has_many_scans

NumberT = TypeVar("NumberT", bound=np.generic)
Pixels = npt.NDArray[np.uint8]

Mask = npt.NDArray[np.bool_]
"""Shape (height, width). True where the unit's activation exceeds its threshold."""

ViewBox = tuple[float, float, float, float]
"""The part of an image that a network sees after its preprocessing, which may crop: left, top, right, bottom in pixels
of the image."""

PixelBox = tuple[int, int, int, int]
"""A ViewBox in whole pixels."""


class Rendering(StrEnum):
    """How an image shows a mask: outside darkened to a quarter of its brightness, or edge drawn in red."""

    DARKEN = "darken"
    OUTLINE = "outline"


MAX_PIXELS = 64_000_000
"""Larger images are refused before they are decoded."""

# Not all that Pillow knows: for some, such as EPS, it starts external programs.
FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF", "PPM")

MAX_WEBP_SIDE = 16_383
"""Longest side in pixels that WebP knows."""

RED = np.array([255, 0, 0], dtype=np.uint8)
PNG = b"\x89PNG\r\n\x1a\n"

# What Pillow's decoders raise for damaged files, besides ValueError.
_DECODING = (OSError, SyntaxError, EOFError, struct.error, ArithmeticError, LookupError, Image.DecompressionBombError)


@dataclass(frozen=True, kw_only=True)
class EncodedImage:
    """An RGB image that can be sent to other processes."""

    data: bytes
    """Lossless WebP, as `of` encodes it, or another of FORMATS."""
    sources: tuple[str, ...] = ()
    """Digests of the dataset images that it shows, because no description is tested on what the agent has seen."""
    recipe: str = ""
    """What the editor needs besides the pixels, as the generator wrote it (often nothing). Agents never see it."""

    @classmethod
    def of(cls, pixels: Pixels, sources: Iterable[str] = (), recipe: str = "") -> "EncodedImage":
        """Encodes an image as records and exemplars store it.

        Args:
            pixels: RGB, shape (height, width, 3), uint8.
        """
        image = cls(data=_encode(pixels), sources=tuple(sorted(set(sources))), recipe=recipe)
        if pixels.shape[2:] == (3,):  # otherwise decoding gives other pixels
            # Nearly every image is looked up by it, and later it takes a decoding, too.
            image.__dict__["digest"] = digest(pixels)
        return image

    @property
    def png(self) -> bytes:
        """The bytes of a PNG file. Encodes again if `data` has another format."""
        return self.data if self.data.startswith(PNG) else _encode_png(self.decoded())

    @property
    def size(self) -> tuple[int, int]:
        """Width and height. Reads the header only."""
        with Image.open(io.BytesIO(self.data), formats=FORMATS) as image:
            return image.size

    def packed(self) -> "EncodedImage":
        """Returns the image as `of` encodes it. Decodes it only if it is encoded otherwise, as by a component of a user."""
        if self.data[:4] == b"RIFF" and self.data[12:16] == b"VP8L":
            return self
        packed = replace(self, data=_encode(self.decoded()))
        packed.__dict__["digest"] = self.digest
        return packed

    @cached_property
    def pixels(self) -> Pixels:
        """RGB, shape (height, width, 3), uint8, read-only. Stays in memory as long as the image."""
        array = np.asarray(decode(self.data))
        array.flags.writeable = False
        return array

    def decoded(self) -> Pixels:
        """Returns the array `pixels`, but does not keep it in memory: an investigation holds many images."""
        kept = self.__dict__.get("pixels")
        return np.asarray(decode(self.data)) if kept is None else kept

    @cached_property
    def digest(self) -> str:
        """SHA-256 of shape and pixels in hexadecimal, whatever the encoding."""
        return digest(self.decoded())

    def __getstate__(self) -> dict[str, object]:
        # Decoded pixels would travel uncompressed. The digest is small, and takes long to compute.
        return {key: value for key, value in self.__dict__.items() if key != "pixels"}

    def pil(self) -> Image.Image:
        return Image.fromarray(self.decoded())

    def webp(self, quality: int = 90) -> bytes:
        """Returns the image as lossy WebP, which is for looking at: another activation would be measured on it."""
        buffer = io.BytesIO()
        self.pil().save(buffer, "WEBP", quality=quality, method=0)
        return buffer.getvalue()


def _encode(pixels: Pixels) -> bytes:
    """See `EncodedImage.of`."""
    if max(pixels.shape[:2]) > MAX_WEBP_SIDE:
        return _encode_png(pixels)
    buffer = io.BytesIO()
    # The least effort, which is faster than the fastest PNG, also to decode, and smaller. What others cost:
    # measure/benchmarks/image_formats.csv.
    Image.fromarray(pixels).save(buffer, "WEBP", lossless=True, quality=0, method=0)
    return buffer.getvalue()


def _encode_png(pixels: Pixels) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG", compress_level=1)
    return buffer.getvalue()


def digest(pixels: Pixels) -> str:
    """Returns the SHA-256 of shape and pixels in hexadecimal."""
    return hashlib.sha256(repr(pixels.shape).encode() + np.ascontiguousarray(pixels).tobytes()).hexdigest()


def decode(data: bytes) -> Image.Image:
    """Decodes one of FORMATS to RGB. Raises ValueError if it is no image, truncated, larger than MAX_PIXELS, or has too many
    scans."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)
            image = Image.open(io.BytesIO(data), formats=FORMATS)
            if image.width * image.height > MAX_PIXELS:
                raise ValueError(
                    f"image of {image.width} x {image.height} pixels; at most {MAX_PIXELS} pixels are read"
                )
            if has_many_scans(data):
                raise ValueError(f"a JPEG of more than {SCANS} scans")
            image.load()
            is_plain = image.mode == "RGB" and image.format in ("PNG", "WEBP") and "transparency" not in image.info
            return image if is_plain else flatten(image)
    except _DECODING as error:
        raise ValueError(f"not a readable image: {error}") from error


def has_unknown_range(image: Image.Image) -> bool:
    """Returns whether pixels are 32-bit integers or floats, so that nobody knows which value is white."""
    # Pillow reads 16-bit PGM files as 32-bit integers, but their range is known.
    return image.mode == "F" or (image.mode == "I" and image.format != "PPM")


def flatten(image: Image.Image, background: tuple[int, int, int] = (255, 255, 255)) -> Image.Image:
    """Converts any mode to RGB. Transparency shows the background, 16 bits become 8, an animation its first frame.
    Raises ValueError for 32 bits, see `has_unknown_range`."""
    if has_unknown_range(image):
        raise ValueError("has 32 bits per pixel, whose range is unknown; save it with 8 or 16 bits")
    if image.mode.startswith("I"):
        values = np.clip(np.asarray(image, dtype=np.int64), 0, 65535) // 257
        return Image.fromarray(values.astype(np.uint8)).convert("RGB")
    if image.mode in ("RGBA", "LA", "PA") or "transparency" in image.info:
        rgba = image.convert("RGBA")
        canvas = Image.new("RGBA", rgba.size, (*background, 255))
        return Image.alpha_composite(canvas, rgba).convert("RGB")
    return image.convert("RGB")


def upsample(small: npt.NDArray[np.floating], height: int, width: int) -> npt.NDArray[np.float32]:
    """Resizes a map of shape (h, w): bilinear with half-pixel centres, as `torch.nn.functional.interpolate`; to a
    smaller size by averaging."""
    source = Image.fromarray(np.ascontiguousarray(small, dtype=np.float32))
    if small.shape[0] > height or small.shape[1] > width:
        return np.asarray(source.resize((width, height), Image.Resampling.BOX))
    return np.asarray(source.resize((width, height), Image.Resampling.BILINEAR))


def largest_channel(values: npt.NDArray[NumberT]) -> npt.NDArray[NumberT]:
    """As `values.max(axis=2)` of shape (height, width, 3), which takes fifty times as long."""
    return np.maximum(np.maximum(values[..., 0], values[..., 1]), values[..., 2])


def smallest_channel(values: npt.NDArray[NumberT]) -> npt.NDArray[NumberT]:
    """As `values.min(axis=2)`, see `largest_channel`."""
    return np.minimum(np.minimum(values[..., 0], values[..., 1]), values[..., 2])


def whole(pixels: Pixels) -> ViewBox:
    """Returns the box of a whole image."""
    return 0.0, 0.0, float(pixels.shape[1]), float(pixels.shape[0])


def seen_part(size: tuple[int, int], box: ViewBox) -> PixelBox | None:
    """Rounds a box to whole pixels. None if it is the whole image, whose `size` is (width, height)."""
    left, top, right, bottom = (round(edge) for edge in box)
    return None if (left, top, right, bottom) == (0, 0, *size) else (left, top, right, bottom)


def compute_mask(
    size: tuple[int, int], activations: npt.NDArray[np.floating] | None, box: ViewBox, threshold: float
) -> Mask | None:
    """Returns the mask of a whole image. None without a map.

    Args:
        size: Width and height of the image on which the unit was measured.
        activations: The map, shape (h, w). None if the layer has no spatial dimensions.
        box: The part of the image that the map covers.
    """
    if activations is None:
        return None
    left, top, right, bottom = (round(edge) for edge in box)
    mask = np.zeros(size[::-1], dtype=np.bool_)
    mask[top:bottom, left:right] = upsample(activations, bottom - top, right - left) > threshold
    return mask


def pack_mask(mask: Mask | None) -> bytes | None:
    """Returns one bit per pixel, packed row by row."""
    return None if mask is None else np.packbits(mask, axis=1).tobytes()


def unpack_mask(packed: bytes, size: tuple[int, int]) -> Mask:
    """Inverts `pack_mask`. `size` is (width, height)."""
    width, height = size
    rows = np.frombuffer(packed, dtype=np.uint8).reshape(height, -1)
    return np.unpackbits(rows, axis=1, count=width).astype(np.bool_)


def draw_frame(pixels: Pixels, seen: PixelBox) -> Pixels:
    """Draws a white line inside the edge of a part, on a copy of the image."""
    left, top, right, bottom = seen
    copy = pixels.copy()
    for line in (
        np.s_[top, left:right],
        np.s_[bottom - 1, left:right],
        np.s_[top:bottom, left],
        np.s_[top:bottom, right - 1],
    ):
        copy[line] = 255
    return copy


def render_mask(pixels: Pixels, mask: Mask, rendering: Rendering) -> Pixels:
    """Returns a copy of an image, shape (height, width, 3), that shows a mask."""
    return darken_outside(pixels, mask) if rendering is Rendering.DARKEN else draw_outline(pixels, mask)


def draw_outline(pixels: Pixels, mask: Mask, thickness: int = 2) -> Pixels:
    """Draws the edge of a mask in red on a copy of an image: inside the mask, also along the image's border."""
    inside = np.pad(mask, 1)
    for _ in range(thickness):
        inside = (
            inside & np.roll(inside, 1, 0) & np.roll(inside, -1, 0) & np.roll(inside, 1, 1) & np.roll(inside, -1, 1)
        )
    return np.where((mask & ~inside[1:-1, 1:-1])[..., None], RED, pixels)


def darken_outside(pixels: Pixels, mask: Mask) -> Pixels:
    """Returns a copy of an image that is a quarter as bright outside a mask of shape (height, width)."""
    return np.where(mask[..., None], pixels, pixels // 4).astype(np.uint8)
