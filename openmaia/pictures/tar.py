"""The members of an uncompressed tar archive that nobody vouches for: ustar, with the extensions of GNU and pax.

Python's own tarfile ends silently at a damaged header, as if the archive ended there, keeps extension headers of any size
in memory and follows chains of them by recursion. Here damage is said, and everything is bounded.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

BLOCK = 512
MAX_EXTENSION = 1 << 20
"""Bytes of one extension header: a long name or a few pax records."""

_REGULAR = (b"0", b"\0", b"7")
_EMPTY = (b"1", b"2", b"3", b"4", b"5", b"6")
"""Links, devices, folders and pipes, whatever size they announce."""
_GNU_NAME, _PAX = b"L", b"x"
_EXTENSIONS = (_GNU_NAME, _PAX, b"K", b"g")


class Damaged(ValueError):
    """The archive cannot be read on from here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """name: as it stands there. offset, size: of its content, in bytes."""

    name: str
    offset: int
    size: int
    is_regular: bool


@dataclass(slots=True)
class _Extension:
    """What headers before the member's own say of it."""

    name: str | None = None
    size: int | None = None
    is_sparse: bool = False


def entries(stream: BinaryIO, length: int) -> Iterator[Entry]:
    """Whole members in their order; their content may be read in between. length: of the archive, in bytes.

    Raises Damaged where a header is none, where the content goes beyond the end, and where the end mark is missing.
    """
    at, known = 0, _Extension()
    while True:
        header = _read(stream, at, BLOCK)
        if not any(header):
            return
        _check(header, at)
        kind, at = header[156:157], at + BLOCK
        is_extension = kind in _EXTENSIONS
        size = 0 if kind in _EMPTY else _number(header[124:136])
        if known.size is not None and not is_extension:
            size = known.size
        if at + size > length:
            raise Damaged(f"a member of {size} bytes begins at byte {at} of {length}")
        if is_extension:
            if size > MAX_EXTENSION:
                raise Damaged(f"an extension header of {size} bytes at byte {at}; at most {MAX_EXTENSION} are read")
            _extend(known, kind, _read(stream, at, size))
        else:
            is_regular = kind in _REGULAR and not known.is_sparse
            yield Entry(name=known.name or _name(header), offset=at, size=size, is_regular=is_regular)
            known = _Extension()
        at += -(-size // BLOCK) * BLOCK


def _read(stream: BinaryIO, at: int, size: int) -> bytes:
    stream.seek(at)
    data = stream.read(size)
    if len(data) != size:
        raise Damaged(f"it ends at byte {at + len(data)}, without an end mark")
    return data


def _check(header: bytes, at: int) -> None:
    wanted = _number(header[148:156])
    blank = header[:148] + b" " * 8 + header[156:]
    # Some old writers summed signed bytes.
    if wanted not in (sum(blank), sum(byte - 256 if byte > 127 else byte for byte in blank)):
        raise Damaged(f"there is no header at byte {at}")


def _number(field: bytes) -> int:
    """Octal digits, or binary where the first bit is set."""
    if field[0] == 0x80:
        return int.from_bytes(field[1:])
    digits = field.split(b"\0", 1)[0].strip(b" ")
    if digits.strip(b"01234567"):
        raise Damaged(f"{field!r} is no number")
    return int(digits or b"0", 8)


def _name(header: bytes) -> str:
    name = _text(header[:100])
    # GNU archives, whose magic goes on with a blank, keep other things in the place of the prefix.
    prefix = _text(header[345:500]) if header[257:263] == b"ustar\0" else ""
    return f"{prefix}/{name}" if prefix else name


def _extend(known: _Extension, kind: bytes, data: bytes) -> None:
    if kind == _GNU_NAME:
        known.name = _text(data)
    elif kind == _PAX:
        for key, value in _records(data):
            if key == b"path":
                known.name = _text(value)
            elif key == b"size":
                known.size = _decimal(value)
            elif key.startswith(b"GNU.sparse."):
                known.is_sparse = True


def _records(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Each is `LENGTH KEY=VALUE` and a newline, where LENGTH counts all of it."""
    while data:
        digits, blank, _ = data[:16].partition(b" ")
        length = _decimal(digits)
        record = data[len(digits) + 1 : length]
        if not blank or not record.endswith(b"\n") or length > len(data):
            raise Damaged("a pax header is no list of records")
        key, _, value = record[:-1].partition(b"=")
        yield key, value
        data = data[length:]


def _decimal(digits: bytes) -> int:
    if not digits.isdigit() or len(digits) > 18:
        raise Damaged(f"{digits!r} is no number")
    return int(digits)


def _text(field: bytes) -> str:
    return field.split(b"\0", 1)[0].decode("utf-8", errors="replace")
