"""Pictures as values: encoded bytes, the digest of the exact pixels, and where the pixels came from."""

import hashlib
import io
import struct
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

import numpy as np
import numpy.typing as npt
from PIL import Image

Pixels = npt.NDArray[np.uint8]


class Rendering(StrEnum):
    """How a mask is shown: what lies outside of it is darkened to a quarter, or its edge is drawn in red."""

    DARKEN = "darken"
    OUTLINE = "outline"


MAX_PIXELS = 64_000_000
"""A picture of more pixels is refused before it is decoded: 64 megapixels is beyond any camera we were shown."""

FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF", "PPM")
"""What is decoded. Pillow knows formats that start other programs; no picture gets to choose one."""

RED = np.array([255, 0, 0], dtype=np.uint8)
PNG = b"\x89PNG\r\n\x1a\n"

DECODING = (OSError, SyntaxError, EOFError, struct.error, ArithmeticError, LookupError, Image.DecompressionBombError)
"""What Pillow's decoders raise on damaged files, besides ValueError."""


@dataclass(frozen=True, kw_only=True)
class Picture:
    """An RGB image that can travel between processes.

    data: losslessly encoded (PNG or WebP). sources: digests of the files whose pixels went into it, so that a test can prove
    that no description is tested on pixels it came from. recipe: what its maker knows about it, for that maker's
    editor; neither agents nor the scripted experimenter get to see it.
    """

    data: bytes
    sources: tuple[str, ...] = ()
    recipe: str = ""

    @classmethod
    def of(
        cls, pixels: Pixels, sources: Iterable[str] = (), recipe: str = "", *, for_keeping: bool = False
    ) -> "Picture":
        """pixels: (height, width, 3) uint8 RGB. for_keeping: in fewer bytes, which takes longer."""
        buffer = io.BytesIO()
        image = Image.fromarray(pixels)
        if for_keeping:
            image.save(buffer, "WEBP", lossless=True, quality=40, method=2, exact=True)
        else:
            # Level 1: images cross process borders far more often than they rest on a disk.
            image.save(buffer, "PNG", compress_level=1)
        return cls(data=buffer.getvalue(), sources=tuple(sorted(set(sources))), recipe=recipe)

    @property
    def png(self) -> bytes:
        """As PNG, for those who take nothing else. Costs an encoding where the picture rests in another format."""
        return self.data if self.data.startswith(PNG) else Picture.of(self.pixels).data

    @property
    def size(self) -> tuple[int, int]:
        """(width, height) in pixels, from the header: nothing is decoded for it."""
        with Image.open(io.BytesIO(self.data), formats=FORMATS) as image:
            return image.size

    def packed(self) -> "Picture":
        """The same pixels in fewer bytes."""
        return Picture.of(self.pixels, self.sources, self.recipe, for_keeping=True)

    @cached_property
    def pixels(self) -> Pixels:
        """(height, width, 3) uint8 RGB, read-only."""
        array = np.asarray(decode(self.data))
        array.flags.writeable = False
        return array

    @cached_property
    def digest(self) -> str:
        """SHA-256 of shape and pixels, in hexadecimal: equal pictures have equal digests however encoded."""
        return digest(self.pixels)

    def __getstate__(self) -> dict[str, object]:
        """Decoded pixels do not travel; a digest that is known does."""
        return {key: value for key, value in self.__dict__.items() if key != "pixels"}

    def pil(self) -> Image.Image:
        return Image.fromarray(self.pixels)

    def webp(self, quality: int = 90) -> bytes:
        """Lossy, for keeping and showing."""
        buffer = io.BytesIO()
        self.pil().save(buffer, "WEBP", quality=quality, method=2)
        return buffer.getvalue()


def digest(pixels: Pixels) -> str:
    return hashlib.sha256(repr(pixels.shape).encode() + np.ascontiguousarray(pixels).tobytes()).hexdigest()


def decode(data: bytes) -> Image.Image:
    """Bytes of any format Pillow reads -> an RGB image.

    Raises ValueError for what is no picture, is truncated, or is larger than MAX_PIXELS.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)
            image = Image.open(io.BytesIO(data), formats=FORMATS)
            if image.width * image.height > MAX_PIXELS:
                raise ValueError(f"picture of {image.width} x {image.height} pixels: at most {MAX_PIXELS} are read")
            image.load()
            return image if image.mode == "RGB" and image.format == "PNG" else flatten(image)
    except DECODING as error:
        raise ValueError(f"not a readable picture: {error}") from error


def flatten(image: Image.Image, background: tuple[int, int, int] = (255, 255, 255)) -> Image.Image:
    """Any mode -> RGB: transparency on `background`, 16-bit scaled to 8, the first frame of an animation."""
    if image.mode.startswith(("I", "F")):
        values = np.asarray(image, dtype=np.float64)
        top = 65535.0 if values.max(initial=0) > 255 else 255.0
        return Image.fromarray(np.clip(values / top * 255, 0, 255).astype(np.uint8)).convert("RGB")
    if image.mode in ("RGBA", "LA", "PA") or "transparency" in image.info:
        rgba = image.convert("RGBA")
        canvas = Image.new("RGBA", rgba.size, (*background, 255))
        return Image.alpha_composite(canvas, rgba).convert("RGB")
    return image.convert("RGB")


def upsample(small: npt.NDArray[np.floating], height: int, width: int) -> npt.NDArray[np.float32]:
    """An activation map (h, w) -> (height, width), bilinear with clamped borders (no darkening towards the edge)."""
    source = Image.fromarray(np.ascontiguousarray(small, dtype=np.float32))
    if small.shape[0] > height or small.shape[1] > width:
        return np.asarray(source.resize((width, height), Image.Resampling.BOX))
    # Pillow's BILINEAR on enlargement is interpolation with half-pixel centres and renormalised borders.
    return np.asarray(source.resize((width, height), Image.Resampling.BILINEAR))


def rendered(pixels: Pixels, mask: npt.NDArray[np.bool_], rendering: Rendering) -> Pixels:
    """mask: (height, width)."""
    return darken_outside(pixels, mask) if rendering is Rendering.DARKEN else outlined(pixels, mask)


def outlined(pixels: Pixels, mask: npt.NDArray[np.bool_], thickness: int = 2) -> Pixels:
    """The edge of the mask in red, inside of it. Where the mask meets the border of the picture, the border is edge."""
    inside = np.pad(mask, 1)
    for _ in range(thickness):
        inside = (
            inside & np.roll(inside, 1, 0) & np.roll(inside, -1, 0) & np.roll(inside, 1, 1) & np.roll(inside, -1, 1)
        )
    return np.where((mask & ~inside[1:-1, 1:-1])[..., None], RED, pixels)


def darken_outside(pixels: Pixels, mask: npt.NDArray[np.bool_]) -> Pixels:
    """Outside the mask (height, width) the picture is darkened to a quarter."""
    return np.where(mask[..., None], pixels, pixels // 4).astype(np.uint8)
