"""Validates the arguments of tool calls, which may come from hostile code.

Each function that checks a value returns it, and raises ToolError, which the agent sees, if it is invalid.
"""

import re
import reprlib
import struct
from typing import Any, cast

import numpy as np

from openmaia.core.errors import ToolError
from openmaia.core.images import PNG, EncodedImage, decode

MAX_TEXT = 2_000
"""Characters of a prompt, an instruction or a title."""
_PLACEHOLDER = re.compile(r"<[^<>]*>")
_IHDR = struct.Struct("!8xI4sII")
"""The signature, the length and type of the first chunk, the width and the height."""
_CHUNK = struct.Struct("!I4s")
"""The length of the content of a chunk, and its type. A checksum of 4 bytes ends the chunk."""
_MAX_CHUNKS = 1_000
"""Pillow writes 64 KiB of pixels into each."""
_MAX_ASPECT = 8
"""Ratio of the sides of an image. More elongated ones become huge if a network's preprocessing enlarges the shorter
side and does not crop."""


# Only the beginning is made, because the whole may be large.
class _Beginnings(reprlib.Repr):
    def __init__(self) -> None:
        super().__init__()
        self.maxlist = self.maxdict = 60
        self.maxstring = self.maxlong = self.maxother = 200

    def repr_bytes(self, value: bytes, level: int) -> str:
        return repr(value[:60])


_BEGINNINGS = _Beginnings()


def abbreviate(value: Any) -> str:
    """Returns the repr of a value for an error message, shortened to 60 characters."""
    text = _BEGINNINGS.repr(value)
    return text if len(text) <= 60 else f"{text[:60]}…"


def check_list(values: Any) -> list[Any]:
    """Returns the value if it is a list."""
    if not isinstance(values, list):
        raise ToolError(f"expected a list, not {type(values).__name__}")
    return cast(list[Any], values)


def check_named(values: Any) -> dict[str, Any]:
    """Returns the value if it is a dict of keyword arguments."""
    if not isinstance(values, dict):
        raise ToolError(f"expected arguments by name, not {type(values).__name__}")
    return cast(dict[str, Any], values)


def check_texts(values: list[Any], tool: str) -> list[str]:
    """Returns a list of texts if it is not empty, each is valid (see `check_text`), and none holds a placeholder such as
    <object>.
    """
    if not values:
        raise ToolError(f"{tool}: an empty list; give at least one text")
    given = [check_text(value) for value in values]
    for each in given:
        if _PLACEHOLDER.search(each):
            raise ToolError(f"{tool}: {abbreviate(each)} holds a placeholder; write in words what the image shows")
    return given


def check_text(value: Any) -> str:
    """Returns the value if it is a text of 1 to MAX_TEXT characters that is not blank."""
    if not isinstance(value, str) or not value.strip() or len(value) > MAX_TEXT:
        raise ToolError(f"expected a text of 1 to {MAX_TEXT} characters, not {abbreviate(value)}")
    return value


def check_hypotheses(given: Any, count: int) -> list[str]:
    """Returns the hypothesis of each of `count` images, empty if there is none: one for all, or a list of `count`."""
    if not isinstance(given, list):
        return [_hypothesis(given)] * count
    names = check_list(given)
    if len(names) != count:
        raise ToolError(f"hypothesis: {len(names)} names for {count} images; give one for all, or one for each")
    return [_hypothesis(name) for name in names]


def _hypothesis(name: Any) -> str:
    return "" if name is None else check_text(name).strip()


def check_view(name: Any) -> str:
    """Returns the value if it is `original`, `masked`, or "" for the default of the tool."""
    if name not in ("", "original", "masked"):
        raise ToolError(f"view {abbreviate(name)}; expected original or masked")
    return name


def count_png_pixels(data: Any) -> int:
    """Returns the number of pixels of an image that the agent's code made. Nothing is decompressed.

    Raises:
        ToolError: The data are not a PNG file, a side has less than 8 or more than 2048 pixels, the ratio of the sides
            exceeds _MAX_ASPECT, or there are more chunks than an image needs, each of which costs time.
    """
    if not isinstance(data, bytes) or not data.startswith(PNG) or len(data) < _IHDR.size:
        raise ToolError(
            f"expected the bytes of a PNG file, not {abbreviate(data[:60] if isinstance(data, bytes) else data)}"
        )
    size, kind, width, height = _IHDR.unpack_from(data)
    if (size, kind) != (13, b"IHDR"):
        raise ToolError("not a readable image: a PNG file without a header")
    if min(width, height) < 8 or max(width, height) > 2048:
        raise ToolError(f"an image of {width} x {height} pixels; expected 8 to 2048 on each side")
    if max(width, height) > _MAX_ASPECT * min(width, height):
        raise ToolError(f"an image of {width} x {height} pixels; one side may be at most {_MAX_ASPECT} times the other")
    _check_chunks(data)
    return width * height


def _check_chunks(data: bytes) -> None:
    place, kinds = len(PNG), set[bytes]()
    for _ in range(_MAX_CHUNKS):
        if place + _CHUNK.size > len(data):
            return
        size, kind = _CHUNK.unpack_from(data, place)
        if kind in kinds and kind != b"IDAT":
            raise ToolError(f"not a readable image: a PNG file with two chunks of type {abbreviate(kind)}")
        if kind == b"IEND":
            return
        kinds.add(kind)
        place += _CHUNK.size + size + 4
    raise ToolError(f"not a readable image: a PNG file with more than {_MAX_CHUNKS} chunks")


def decode_png(data: Any) -> EncodedImage:
    """Decodes an image that the agent's code made, after the checks of `count_png_pixels`."""
    pixels = count_png_pixels(data)
    try:
        width, height = EncodedImage(data=data).size
        if width * height != pixels:
            raise ToolError("not a readable image: a PNG file with two headers")
        return EncodedImage.of(np.asarray(decode(data)))
    except ToolError:
        raise
    except Exception as error:  # hostile code wrote the file, and no decoder says which exceptions it may raise
        raise ToolError(f"not a readable image: {abbreviate(error)}") from error
