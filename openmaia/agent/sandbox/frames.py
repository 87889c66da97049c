"""Encodes and decodes messages between the sandbox and its parent, as JSON and raw bytes without pickle.

A frame consists of the magic number, the length of the JSON, the length of the blobs, the JSON, and the blobs. A
`bytes` value is encoded as `{"$blob": length}` in the JSON, and its content is a blob; blobs are in the order of these
references. The parent decodes frames of hostile code, so decoding is strict: sizes are checked before memory is
allocated, and each byte of the blobs must belong to exactly one reference. The source of this module is sent to the
sandbox, so it may import only the standard library.
"""

import math
import struct
from collections.abc import Iterable
from json import dumps, loads  # by name, because the agent may replace attributes of the module
from typing import Any, cast

Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"] | bytes

MAGIC = b"OMF1"
PREFIX = struct.Struct("!4sII")
_MAX_FRAME = (1 << 32) - 1
_MAX_JSON = 8 << 20  # JSON grows up to about twenty times when parsed; blobs do not
MAX_VALUES = 1 << 19  # separators in the JSON, those in its texts included
MAX_DEPTH = 32
MAX_INT = 1 << 256
_BLOB = "$blob"


class FrameError(ValueError):
    """A frame is too large or malformed."""


def encode(message: Json, limit: int) -> list[bytes]:
    """Encodes a message as one frame: a list of buffers, which are written one after the other. `limit` is the maximum
    of the JSON and the blobs together, in bytes.

    Raises TypeError if a value has a type that cannot be sent, and FrameError if the message is too large, too deep, or
    holds a number or a text that cannot be sent.
    """
    blobs: list[bytes] = []
    plain = _strip(message, blobs, limit, 0)
    text = dumps(plain, allow_nan=False, separators=(",", ":")).encode("ascii")
    check_values(text)
    blob_size = sum(map(len, blobs))
    check_sizes(len(text), blob_size, limit)
    return [PREFIX.pack(MAGIC, len(text), blob_size), text, *blobs]


def _strip(value: Any, blobs: list[bytes], limit: int, depth: int) -> Any:
    """Returns a copy of a value in which references replace the byte strings, and appends the byte strings to `blobs`."""
    if depth > MAX_DEPTH:
        raise FrameError(f"the value is nested deeper than {MAX_DEPTH} levels")
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return _whole(value)
    if isinstance(value, int):
        if not -MAX_INT < value < MAX_INT:
            raise FrameError("the integer has more than 256 bits")
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else _refuse(str(value))
    if isinstance(value, (bytes, bytearray, memoryview)):
        data = cast("bytes | bytearray | memoryview", value)
        size = data.nbytes if isinstance(data, memoryview) else len(data)
        if size > limit:  # before the copy below doubles it
            raise FrameError(f"the value has {size} bytes, at most {limit} can be sent at once")
        blobs.append(bytes(data))
        return {_BLOB: size}
    if isinstance(value, (list, tuple)):
        return [_strip(item, blobs, limit, depth + 1) for item in cast("Iterable[Any]", value)]
    if isinstance(value, dict):
        items = cast("dict[Any, Any]", value)
        if not all(isinstance(key, str) for key in items) or _BLOB in items:
            raise TypeError(f"keys must be strings other than {_BLOB!r}")
        return {_whole(key): _strip(item, blobs, limit, depth + 1) for key, item in items.items()}
    raise TypeError(f"cannot send a value of type {type(value).__name__}")


def _whole(text: str) -> str:
    """Returns a text if UTF-8 can represent it: if it holds no halves of characters (surrogates)."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        half, place = text[error.start], error.start
        raise FrameError(
            f"{half!r} at position {place} of a text is half a character (a surrogate); write the character itself, as "
            "'\\U0001f600' in place of '\\ud83d\\ude00'"
        ) from None
    return text


def check_values(text: bytes) -> None:
    """Raises FrameError if the JSON of a message has more than MAX_VALUES values, whose objects take more memory than
    the text.
    """
    count = text.count(b",") + text.count(b"[") + text.count(b"{")
    if count > MAX_VALUES:
        raise FrameError(f"the message has {count} values, at most {MAX_VALUES} can be sent at once")


def check_sizes(json_size: int, blob_size: int, limit: int) -> None:
    """Raises FrameError if the parts of a frame are too large. Sizes in bytes; `limit` applies to the sum."""
    total, limit = json_size + blob_size, min(limit, _MAX_FRAME)
    if total > limit or json_size > _MAX_JSON:
        raise FrameError(
            f"the message has {total} bytes ({json_size} outside of byte strings), "
            f"at most {limit} ({_MAX_JSON} outside of byte strings) can be sent at once"
        )


def parse_prefix(data: bytes | bytearray) -> tuple[int, int]:
    """Returns the lengths of the JSON and of the blobs in bytes. Raises FrameError if the data are not the beginning of
    a frame.
    """
    magic, json_size, blob_size = PREFIX.unpack_from(data)
    if magic != MAGIC or json_size > _MAX_JSON:
        raise FrameError("not a frame")
    return json_size, blob_size


def decode(text: bytes, blobs: bytes | bytearray | memoryview) -> Json:
    """Decodes a message from the JSON and the blobs of a frame. Raises FrameError if they do not form one."""
    rest = memoryview(blobs)

    def fill(value: Any, depth: int) -> Json:
        nonlocal rest
        if depth > MAX_DEPTH:
            raise FrameError("nested too deeply")
        if isinstance(value, str):
            value.encode("utf-8")  # raises here for a lone surrogate; later code does not expect the error
        elif isinstance(value, list):
            return [fill(item, depth + 1) for item in cast("list[Any]", value)]
        elif isinstance(value, dict):
            items = cast("dict[str, Any]", value)
            if _BLOB not in items:
                return {str(fill(key, depth)): fill(item, depth + 1) for key, item in items.items()}
            size = items[_BLOB]
            if len(items) != 1 or type(size) is not int or not 0 <= size <= len(rest):
                raise FrameError("not a valid reference to a blob")
            blob, rest = bytes(rest[:size]), rest[size:]
            return blob
        elif isinstance(value, int) and not -MAX_INT < value < MAX_INT:
            raise FrameError("an integer of more than 256 bits")
        return value

    try:
        check_values(text)
        result = fill(loads(text.decode("utf-8"), parse_constant=_refuse, parse_float=_finite), 0)
    except (ValueError, RecursionError) as error:
        raise FrameError(f"malformed frame: {error}") from None
    if len(rest):
        raise FrameError("malformed frame: nothing refers to the end of its blobs")
    return result


def _refuse(text: str) -> float:
    raise FrameError(f"numbers must be finite, got {text}")


def _finite(text: str) -> float:
    value = float(text)
    return value if math.isfinite(value) else _refuse(text[:20])


class Decoder:
    """Reads frames of at most `limit` bytes from a stream that arrives in pieces. It holds at most one frame and one
    piece: the sender has to wait for the answer to a message before it sends the next one.
    """

    def __init__(self, limit: int):
        self._limit = limit
        self._buffer = bytearray()

    def feed(self, data: bytes) -> None:
        """Adds the next piece of the stream."""
        self._buffer += data

    def next(self) -> tuple[bool, Json]:
        """Returns (True, message) and removes the frame, or (False, None) while it is incomplete. Raises FrameError if
        it is invalid or too large, or if data follow it.
        """
        if len(self._buffer) < PREFIX.size:
            return False, None
        json_size, blob_size = parse_prefix(self._buffer)
        check_sizes(json_size, blob_size, self._limit)
        start, end = PREFIX.size + json_size, PREFIX.size + json_size + blob_size
        if len(self._buffer) < end:
            return False, None
        if len(self._buffer) > end:
            raise FrameError("another message before the answer to the first")
        frame, self._buffer = memoryview(self._buffer), bytearray()
        return True, decode(bytes(frame[PREFIX.size : start]), frame[start:])
