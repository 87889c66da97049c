"""Reads one picture that nobody vouches for: a few raster formats, bounded before it is decoded."""

import hashlib
import io
from dataclasses import dataclass
from enum import StrEnum
from pathlib import PurePosixPath

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from openmaia.images import MAX_PIXELS, digest, flatten

MAX_BYTES = 256 << 20
MIN_SIDE = 16
"""Of the shorter side, in pixels: below it nothing is to be recognised."""

FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF", "PPM")
"""Others are left out on purpose: Pillow opens EPS by running Ghostscript."""

SUFFIXES = frozenset(
    {".png", ".jpg", ".jpeg", ".jpe", ".webp", ".gif", ".bmp", ".tif", ".tiff", ".ppm", ".pgm", ".pbm"}
)


class Skipped(StrEnum):
    """Why a file of a folder, or a picture of an archive, is not used."""

    EMPTY = "empty"
    NOT_A_PICTURE = "not a picture"
    CORRUPT = "corrupt"
    TOO_LARGE = "too large"
    TOO_SMALL = "too small"
    OUTSIDE = "link out of the folder"
    UNREADABLE = "unreadable"
    DAMAGED_ARCHIVE = "damaged archive"
    """Once per archive of which not everything could be read; what could be is used."""


class Unusable(ValueError):
    def __init__(self, message: str, *, reason: Skipped = Skipped.CORRUPT):
        super().__init__(message)
        self.reason = reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoded:
    """image: upright, RGB, or RGBA where the file has transparency.

    digest: of the pixels for PNG, because encoders of one and the same picture differ and cut-outs are encoded here;
    of the file's bytes for all others, because decoders of lossy formats differ from version to version.
    """

    image: Image.Image
    digest: str


def read(data: bytes, name: str) -> Decoded:
    """name: for messages, and its suffix tells a damaged picture from what never was one.

    Raises Unusable, and nothing else, for whatever the bytes are.
    """
    try:
        image = Image.open(io.BytesIO(data), formats=FORMATS)
        _check_size(name, image)
        png = image.format == "PNG"
        upright = _decode(image)
    except Unusable:
        raise
    except UnidentifiedImageError as error:
        reason = Skipped.CORRUPT if has_picture_suffix(name) else Skipped.NOT_A_PICTURE
        raise Unusable(f"{name} is {reason}: one of {', '.join(FORMATS)} was expected", reason=reason) from error
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise Unusable(f"{name}: {error}", reason=Skipped.TOO_LARGE) from error
    except MemoryError as error:
        raise Unusable(f"{name} does not fit into memory", reason=Skipped.TOO_LARGE) from error
    except Exception as error:
        # Pillow's decoders raise anything from struct.error to ZeroDivisionError on damaged files.
        raise Unusable(f"{name} is corrupt: {type(error).__name__}: {error}", reason=Skipped.CORRUPT) from error
    return Decoded(image=upright, digest=digest(np.asarray(upright)) if png else hashlib.sha256(data).hexdigest())


def has_picture_suffix(name: str) -> bool:
    return PurePosixPath(name).suffix.lower() in SUFFIXES


def check_bytes(name: str, size: int) -> None:
    """Before they are read. Raises Unusable for none and for too many."""
    if size == 0:
        raise Unusable(f"{name} is empty", reason=Skipped.EMPTY)
    if size > MAX_BYTES:
        raise Unusable(f"{name} has {size} bytes: at most {MAX_BYTES} are read", reason=Skipped.TOO_LARGE)


def _check_size(name: str, image: Image.Image) -> None:
    width, height = image.size
    if width * height > MAX_PIXELS:
        message = f"{name} has {width} x {height} pixels: at most {MAX_PIXELS} are read"
        raise Unusable(message, reason=Skipped.TOO_LARGE)
    if min(width, height) < MIN_SIDE:
        raise Unusable(
            f"{name} has {width} x {height} pixels: {MIN_SIDE} a side are the least", reason=Skipped.TOO_SMALL
        )


def _decode(image: Image.Image) -> Image.Image:
    """The first frame, upright."""
    image.load()
    transparent = image.mode in ("RGBA", "LA", "PA") or "transparency" in image.info
    upright = ImageOps.exif_transpose(image)
    if transparent and not image.mode.startswith(("I", "F")):
        return upright.convert("RGBA")
    return flatten(upright)
