"""The wire format between the sandbox and its parent: JSON plus raw blobs, no pickle. Stdlib only: both sides run it.

A frame is `magic, JSON length, number of blobs`, the blobs' lengths, the JSON, the blobs. A `bytes` value anywhere in
the message travels as `{"$blob": index}`. The parent decodes what hostile code wrote, so decoding is strict: sizes are
checked before anything is allocated, and each blob is used exactly once.
"""

import math
import struct
from collections.abc import Iterable
from json import dumps, loads  # by name: the agent may put something else into the module
from typing import Any, cast

Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"] | bytes

MAGIC = b"OMF1"
PREFIX = struct.Struct("!4sII")
LENGTH = struct.Struct("!Q")
MAX_BLOBS = 4096
MAX_JSON = 8 << 20  # JSON grows up to about twenty times when parsed; blobs do not
MAX_DEPTH = 32
MAX_INT = 1 << 256
BLOB = "$blob"


class FrameError(ValueError):
    """A frame that is too large, or is not one."""


def encode(message: Json, limit: int) -> list[bytes]:
    """The buffers of one frame. TypeError or FrameError tell what cannot be sent; nothing is sent in part."""
    blobs: list[bytes] = []
    plain = _strip(message, blobs, limit, 0)
    text = dumps(plain, allow_nan=False, separators=(",", ":")).encode("ascii")
    check_sizes(len(text), [len(blob) for blob in blobs], limit)
    head = PREFIX.pack(MAGIC, len(text), len(blobs)) + b"".join(LENGTH.pack(len(blob)) for blob in blobs)
    return [head, text, *blobs]


def _strip(value: Any, blobs: list[bytes], limit: int, depth: int) -> Any:
    if depth > MAX_DEPTH:
        raise FrameError(f"the value is nested deeper than {MAX_DEPTH} levels")
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, int):
        if not -MAX_INT < value < MAX_INT:
            raise FrameError("the integer has more than 256 bits")
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else _refuse(str(value))
    if isinstance(value, (bytes, bytearray, memoryview)):
        return _blob(cast("bytes | bytearray | memoryview", value), blobs, limit)
    if isinstance(value, (list, tuple)):
        return [_strip(item, blobs, limit, depth + 1) for item in cast("Iterable[Any]", value)]
    if isinstance(value, dict):
        items = cast("dict[Any, Any]", value)
        if not all(isinstance(key, str) for key in items) or BLOB in items:
            raise TypeError(f"keys must be strings other than {BLOB!r}")
        return {key: _strip(item, blobs, limit, depth + 1) for key, item in items.items()}
    raise TypeError(f"cannot send a value of type {type(value).__name__}")


def _blob(value: "bytes | bytearray | memoryview", blobs: list[bytes], limit: int) -> dict[str, int]:
    size = value.nbytes if isinstance(value, memoryview) else len(value)
    if size > limit:  # before the copy below doubles it
        raise FrameError(f"the value has {size} bytes, at most {limit} can be sent at once")
    blobs.append(bytes(value))
    return {BLOB: len(blobs) - 1}


def check_sizes(json_size: int, blob_sizes: list[int], limit: int) -> None:
    total = json_size + sum(blob_sizes)
    if total > limit or json_size > MAX_JSON or len(blob_sizes) > MAX_BLOBS:
        raise FrameError(
            f"the message has {total} bytes ({json_size} outside {len(blob_sizes)} byte strings), "
            f"at most {limit} ({MAX_JSON} outside {MAX_BLOBS} byte strings) can be sent at once"
        )


def parse_prefix(data: bytes | bytearray) -> tuple[int, int]:
    """JSON length and number of blobs."""
    magic, json_size, count = PREFIX.unpack_from(data)
    if magic != MAGIC or count > MAX_BLOBS or json_size > MAX_JSON:
        raise FrameError("not a frame")
    return json_size, count


def parse_lengths(data: bytes | bytearray, offset: int, count: int) -> list[int]:
    return [LENGTH.unpack_from(data, offset + LENGTH.size * i)[0] for i in range(count)]


def decode(text: bytes, blobs: list[bytes]) -> Json:
    unused = set(range(len(blobs)))
    try:
        value = loads(text.decode("utf-8"), parse_constant=_refuse, parse_float=_finite)
        result = _fill(value, blobs, unused, 0)
    except (ValueError, RecursionError) as error:
        raise FrameError(f"malformed frame: {error}") from None
    if unused:
        raise FrameError("malformed frame: a blob that nothing refers to")
    return result


def _refuse(text: str) -> float:
    raise FrameError(f"numbers must be finite, got {text}")


def _finite(text: str) -> float:
    value = float(text)
    return value if math.isfinite(value) else _refuse(text[:20])


def _fill(value: Any, blobs: list[bytes], unused: set[int], depth: int) -> Json:
    if depth > MAX_DEPTH:
        raise FrameError("nested too deeply")
    if isinstance(value, str):
        value.encode("utf-8")  # a lone surrogate would fail later, in code that does not expect it
        return value
    if isinstance(value, list):
        return [_fill(item, blobs, unused, depth + 1) for item in cast("list[Any]", value)]
    if isinstance(value, dict):
        items = cast("dict[str, Any]", value)
        if BLOB in items:
            return _take(items, blobs, unused)
        for key in items:
            key.encode("utf-8")
        return {key: _fill(item, blobs, unused, depth + 1) for key, item in items.items()}
    if isinstance(value, int) and not -MAX_INT < value < MAX_INT:
        raise FrameError("an integer of more than 256 bits")
    return value


def _take(items: dict[str, Any], blobs: list[bytes], unused: set[int]) -> bytes:
    index = items[BLOB]
    if len(items) != 1 or type(index) is not int or index not in unused:
        raise FrameError("not a valid reference to a blob")
    unused.remove(index)
    return blobs[index]


class Decoder:
    """Frames out of a stream that arrives in pieces, never holding more than one frame and one piece."""

    def __init__(self, limit: int):
        self._limit = limit
        self._buffer = bytearray()

    def feed(self, data: bytes) -> None:
        self._buffer += data

    def next(self) -> tuple[bool, Json]:
        """(True, message), or (False, None) while the frame is incomplete."""
        buffer = self._buffer
        if len(buffer) < PREFIX.size:
            return False, None
        json_size, count = parse_prefix(buffer)
        start = PREFIX.size + LENGTH.size * count
        if len(buffer) < start:
            return False, None
        sizes = parse_lengths(buffer, PREFIX.size, count)
        check_sizes(json_size, sizes, self._limit)
        if len(buffer) < start + json_size + sum(sizes):
            return False, None
        parts: list[bytes] = []
        with memoryview(buffer) as view:
            for size in (json_size, *sizes):
                parts.append(bytes(view[start : start + size]))
                start += size
        del buffer[:start]
        return True, decode(parts[0], parts[1:])
