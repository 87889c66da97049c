"""Decodes untrusted images. Only a few raster formats are accepted, and sizes are checked before decoding."""

import hashlib
import io
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import PurePosixPath
from typing import NamedTuple

import numpy as np
from PIL import ExifTags, Image, ImageOps, UnidentifiedImageError

from openmaia.core.bombs import SCANS, has_many_scans
from openmaia.core.images import FORMATS, MAX_PIXELS, digest, flatten
from openmaia.datasets import depth
from openmaia.datasets.depth import Samples
from openmaia.datasets.quiet import silence

MAX_BYTES = 256 << 20

_MIN_SIDE = 16
"""Minimum length of the shorter side of an image in pixels."""

_SUFFIXES = frozenset(
    {".png", ".jpg", ".jpeg", ".jpe", ".webp", ".gif", ".bmp", ".tif", ".tiff", ".ppm", ".pgm", ".pbm"}
)


class SkipReason(StrEnum):
    """Why a file or a row of a dataset is not used."""

    EMPTY = "empty"
    NOT_AN_IMAGE = "not an image"
    CORRUPT = "corrupt"
    TOO_LARGE = "too large"
    TOO_SMALL = "too small"
    NOT_FINITE = "with values that are no numbers"
    UNSUPPORTED = "with unsupported kinds of samples"
    OUTSIDE = "link out of the folder"
    UNREADABLE = "unreadable"
    MISSING = "listed and missing"
    NO_IMAGE = "without an image"
    PATH = "path in the place of an image"
    BETWEEN = "left out between near-duplicates"


class UnusableImage(ValueError):
    """Raised for an image that cannot be used. The attribute `reason` classifies the error."""

    def __init__(self, message: str, *, reason: SkipReason = SkipReason.CORRUPT):
        super().__init__(message)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class UnusableSource:
    """An image of which is known, before it is read, that it cannot be used."""

    name: str
    reason: SkipReason

    def read(self) -> bytes:
        """Raises UnusableImage."""
        raise UnusableImage(f"{self.name}: {self.reason}", reason=self.reason)


class Decoded(NamedTuple):
    """A decoded image."""

    image: Image.Image
    """Upright, in RGB, or in RGBA if it has transparency."""
    digest: str
    """SHA-256 in hexadecimal. That of a PNG covers its pixels, because encoders differ; that of other formats covers the
    encoded data, because decoders of lossy formats differ between versions."""
    samples: Samples | None
    """The extreme values of an image whose range only its dataset tells (see `depth`). None for all others."""
    has_frames: bool
    """Whether the file has several frames or pages, of which this is the first."""


def read(data: bytes, name: str, scales: Iterable[Samples] = (), *, most: int = MAX_PIXELS) -> Decoded:
    """Decodes an image.

    Args:
        data: The encoded image.
        name: Name of the image. Data of an unknown format count as a damaged image if the name has the suffix of an
            image, and as no image otherwise.
        scales: The ranges of samples of more than 8 bits in the dataset, see `depth.find_scales`.
        most: The largest number of pixels.

    Raises:
        UnusableImage: The image cannot be used. No other exception is raised for any data.
    """
    silence()
    try:
        image = Image.open(io.BytesIO(data), formats=FORMATS)
        _check_header(name, image, most)
        if has_many_scans(data):  # whatever Pillow calls the format, such as MPO
            raise UnusableImage(f"{name} is corrupt: it has more than {SCANS} scans")
        is_png, has_frames = image.format == "PNG", bool(getattr(image, "is_animated", False))
        upright, samples = _decode(image, name, scales)
    except UnusableImage:
        raise
    except UnidentifiedImageError as error:
        if samples := depth.name_samples(data):
            raise UnusableImage(
                f"{name} has {samples} for each pixel, which is not supported; save it with 8 or 16 bits for each sample",
                reason=SkipReason.UNSUPPORTED,
            ) from error
        reason = SkipReason.CORRUPT if has_image_suffix(name) else SkipReason.NOT_AN_IMAGE
        raise UnusableImage(f"{name} is {reason}: expected one of {', '.join(FORMATS)}", reason=reason) from error
    except (Image.DecompressionBombError, Image.DecompressionBombWarning, MemoryError) as error:
        raise UnusableImage(f"{name} is too large: {error}", reason=SkipReason.TOO_LARGE) from error
    except Exception as error:
        # Pillow's decoders raise anything from struct.error to ZeroDivisionError on damaged files.
        raise UnusableImage(f"{name} is corrupt: {type(error).__name__}: {error}") from error
    hashed = digest(np.asarray(upright)) if is_png else hashlib.sha256(data).hexdigest()
    return Decoded(upright, hashed, samples, has_frames)


def has_image_suffix(name: str) -> bool:
    """Returns whether a file name has the suffix of an image format that can be read."""
    return PurePosixPath(name).suffix.lower() in _SUFFIXES


def check_bytes(name: str, size: int) -> None:
    """Raises UnusableImage for a size of 0, or above MAX_BYTES."""
    if size == 0:
        raise UnusableImage(f"{name} is empty", reason=SkipReason.EMPTY)
    if size > MAX_BYTES:
        raise UnusableImage(f"{name} has {size} bytes; at most {MAX_BYTES} bytes are read", reason=SkipReason.TOO_LARGE)


def _check_header(name: str, image: Image.Image, most: int) -> None:
    width, height = image.size
    if width * height > most:
        message = f"{name} has {width} x {height} pixels; at most {most:,} pixels are read"
        raise UnusableImage(message, reason=SkipReason.TOO_LARGE)
    if min(width, height) < _MIN_SIDE:
        message = f"{name} has {width} x {height} pixels; at least {_MIN_SIDE} pixels per side are needed"
        raise UnusableImage(message, reason=SkipReason.TOO_SMALL)


def _decode(image: Image.Image, name: str, scales: Iterable[Samples]) -> tuple[Image.Image, Samples | None]:
    """Decodes the first frame to RGB or RGBA, and returns it with the extreme values that its dataset has to scale."""
    deep = depth.read_samples(image)
    if deep is None:
        return make_upright(image), None
    if not np.isfinite(deep.values).all():
        raise UnusableImage(f"{name} has values that are no numbers", reason=SkipReason.NOT_FINITE)
    scaled = depth.to_eight_bits(deep.values, *depth.find_white_point(deep, scales))
    if orientation := image.getexif().get(ExifTags.Base.Orientation):
        scaled.getexif()[ExifTags.Base.Orientation] = orientation
    return make_upright(scaled), None if deep.declared else deep.samples


def make_upright(image: Image.Image) -> Image.Image:
    """Applies the EXIF orientation, and converts to RGB, or to RGBA if the image has transparency."""
    image.load()
    transparent = image.mode in ("RGBA", "LA", "PA", "RGBa", "La") or "transparency" in image.info
    turned = ImageOps.exif_transpose(image)
    return turned.convert("RGBA") if transparent else flatten(turned)
