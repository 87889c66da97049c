"""Decodes untrusted images. Only a few raster formats are accepted, and sizes are checked before decoding."""

import hashlib
import io
from enum import StrEnum
from pathlib import PurePosixPath

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from openmaia.core.images import FORMATS, MAX_PIXELS, digest, flatten, has_unknown_range

MAX_BYTES = 256 << 20
"""Largest encoded image that is read, in bytes."""

MIN_SIDE = 16
"""Minimum length of the shorter side of an image in pixels. Smaller images are not used."""

SUFFIXES = frozenset(
    {".png", ".jpg", ".jpeg", ".jpe", ".webp", ".gif", ".bmp", ".tif", ".tiff", ".ppm", ".pgm", ".pbm"}
)


class SkipReason(StrEnum):
    """Why a file or a row of a dataset is not used."""

    EMPTY = "empty"
    NOT_AN_IMAGE = "not an image"
    CORRUPT = "corrupt"
    TOO_LARGE = "too large"
    TOO_SMALL = "too small"
    UNKNOWN_RANGE = "of 32 bits per pixel"
    OUTSIDE = "link out of the folder"
    UNREADABLE = "unreadable"


class UnusableImage(ValueError):
    """Raised for an image that cannot be used. The attribute `reason` classifies the error."""

    def __init__(self, message: str, *, reason: SkipReason = SkipReason.CORRUPT):
        super().__init__(message)
        self.reason = reason


def read(data: bytes, name: str) -> tuple[Image.Image, str]:
    """Decodes an image.

    Args:
        data: The encoded image.
        name: Name of the image, for messages. Data of an unknown format count as a damaged image if the name has the
            suffix of an image, and as no image otherwise.

    Returns:
        The upright image, in RGB, or in RGBA if it has transparency, and its SHA-256 in hexadecimal. The hash of a PNG
        covers its pixels, because encoders differ; that of other formats covers the encoded data, because decoders of
        lossy formats differ between versions.

    Raises:
        UnusableImage: The image cannot be used. No other exception is raised for any data.
    """
    try:
        image = Image.open(io.BytesIO(data), formats=FORMATS)
        _check_header(name, image)
        is_png = image.format == "PNG"
        upright = _decode(image)
    except UnusableImage:
        raise
    except UnidentifiedImageError as error:
        reason = SkipReason.CORRUPT if has_image_suffix(name) else SkipReason.NOT_AN_IMAGE
        raise UnusableImage(f"{name} is {reason}: expected one of {', '.join(FORMATS)}", reason=reason) from error
    except (Image.DecompressionBombError, Image.DecompressionBombWarning, MemoryError) as error:
        raise UnusableImage(f"{name} is too large: {error}", reason=SkipReason.TOO_LARGE) from error
    except Exception as error:
        # Pillow's decoders raise anything from struct.error to ZeroDivisionError on damaged files.
        raise UnusableImage(f"{name} is corrupt: {type(error).__name__}: {error}") from error
    return upright, digest(np.asarray(upright)) if is_png else hashlib.sha256(data).hexdigest()


def has_image_suffix(name: str) -> bool:
    """Returns whether a file name has the suffix of an image format that can be read, such as .png."""
    return PurePosixPath(name).suffix.lower() in SUFFIXES


def check_bytes(name: str, size: int) -> None:
    """Checks the size of an encoded image.

    Raises:
        UnusableImage: The image is empty, or too large (see `MAX_BYTES`).
    """
    if size == 0:
        raise UnusableImage(f"{name} is empty", reason=SkipReason.EMPTY)
    if size > MAX_BYTES:
        raise UnusableImage(f"{name} has {size} bytes; at most {MAX_BYTES} bytes are read", reason=SkipReason.TOO_LARGE)


def _check_header(name: str, image: Image.Image) -> None:
    width, height = image.size
    if width * height > MAX_PIXELS:
        message = f"{name} has {width} x {height} pixels; at most {MAX_PIXELS} pixels are read"
        raise UnusableImage(message, reason=SkipReason.TOO_LARGE)
    if min(width, height) < MIN_SIDE:
        message = f"{name} has {width} x {height} pixels; at least {MIN_SIDE} pixels per side are needed"
        raise UnusableImage(message, reason=SkipReason.TOO_SMALL)
    if has_unknown_range(image):
        message = f"{name} has 32 bits per pixel, whose range is unknown; save it with 8 or 16 bits"
        raise UnusableImage(message, reason=SkipReason.UNKNOWN_RANGE)


def _decode(image: Image.Image) -> Image.Image:
    """Decodes the first frame and applies the EXIF orientation."""
    image.load()
    transparent = image.mode in ("RGBA", "LA", "PA") or "transparency" in image.info
    ImageOps.exif_transpose(image, in_place=True)  # in place, because a copy has no format, by which PGM is known
    return image.convert("RGBA") if transparent and not image.mode.startswith("I") else flatten(image)
