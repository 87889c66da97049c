"""Reads one picture file that nobody vouches for: a few raster formats, bounded before it is decoded."""

import hashlib
import io
import os
import stat
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

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
    """Why a file of a folder is not used."""

    EMPTY = "empty"
    NOT_A_PICTURE = "not a picture"
    CORRUPT = "corrupt"
    TOO_LARGE = "too large"
    TOO_SMALL = "too small"
    OUTSIDE = "link out of the folder"
    UNREADABLE = "unreadable"


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


def read(path: Path) -> Decoded:
    """Raises Unusable, and nothing else, for whatever the file holds."""
    data = _bytes(path)
    try:
        image = Image.open(io.BytesIO(data), formats=FORMATS)
        _check_size(path, image)
        png = image.format == "PNG"
        upright = _decode(image)
    except Unusable:
        raise
    except UnidentifiedImageError as error:
        reason = Skipped.CORRUPT if path.suffix.lower() in SUFFIXES else Skipped.NOT_A_PICTURE
        raise Unusable(f"{path} is {reason}: one of {', '.join(FORMATS)} was expected", reason=reason) from error
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise Unusable(f"{path}: {error}", reason=Skipped.TOO_LARGE) from error
    except MemoryError as error:
        raise Unusable(f"{path} does not fit into memory", reason=Skipped.TOO_LARGE) from error
    except Exception as error:
        # Pillow's decoders raise anything from struct.error to ZeroDivisionError on damaged files.
        raise Unusable(f"{path} is corrupt: {type(error).__name__}: {error}", reason=Skipped.CORRUPT) from error
    return Decoded(image=upright, digest=digest(np.asarray(upright)) if png else hashlib.sha256(data).hexdigest())


def _bytes(path: Path) -> bytes:
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise Unusable(f"{path} is no regular file", reason=Skipped.NOT_A_PICTURE)
        if status.st_size == 0:
            raise Unusable(f"{path} is empty", reason=Skipped.EMPTY)
        if path.suffix.lower() not in SUFFIXES and not _begins_like_a_picture(path):
            raise Unusable(f"{path} is none of {', '.join(FORMATS)}", reason=Skipped.NOT_A_PICTURE)
        if status.st_size > MAX_BYTES:
            raise Unusable(f"{path} has {status.st_size} bytes: at most {MAX_BYTES} are read", reason=Skipped.TOO_LARGE)
        # Non-blocking, so that a file swapped for a pipe meanwhile cannot hold us.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        with open(descriptor, "rb") as file:
            return file.read(MAX_BYTES)
    except OSError as error:
        raise Unusable(f"{path} cannot be read: {error}", reason=Skipped.UNREADABLE) from error


def _begins_like_a_picture(path: Path) -> bool:
    """Spares reading gigabytes of archives and weights that lie between the pictures."""
    with path.open("rb") as file:
        head = file.read(16)
    return head.startswith((b"\x89PNG", b"\xff\xd8\xff", b"GIF8", b"BM", b"II*\0", b"MM\0*")) or (
        head[:4] == b"RIFF" and head[8:12] == b"WEBP"
    )


def _check_size(path: Path, image: Image.Image) -> None:
    width, height = image.size
    if width * height > MAX_PIXELS:
        message = f"{path} has {width} x {height} pixels: at most {MAX_PIXELS} are read"
        raise Unusable(message, reason=Skipped.TOO_LARGE)
    if min(width, height) < MIN_SIDE:
        raise Unusable(
            f"{path} has {width} x {height} pixels: {MIN_SIDE} a side are the least", reason=Skipped.TOO_SMALL
        )


def _decode(image: Image.Image) -> Image.Image:
    """The first frame, upright."""
    image.load()
    transparent = image.mode in ("RGBA", "LA", "PA") or "transparency" in image.info
    upright = ImageOps.exif_transpose(image)
    if transparent and not image.mode.startswith(("I", "F")):
        return upright.convert("RGBA")
    return flatten(upright)
