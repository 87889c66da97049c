"""Reads Qt's binary resource files (.rcc), in which GCompris keeps its pictures.

The format (Qt's rcc.cpp and qresource.cpp): "qres", big-endian version and offsets of the tree, the data and the
names; tree nodes of 14 bytes, 22 since version 2; a name is its length in UTF-16 units, a hash, UTF-16-BE text.
The files are untrusted: every offset is checked, sizes and counts are capped, damage raises ValueError.
"""

import struct
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

MAX_ENTRIES = 20_000
MAX_DEPTH = 32
MAX_ENTRY_BYTES = 64 << 20
"""Of one entry, after decompression."""

_COMPRESSED, _DIRECTORY, _ZSTD = 1, 2, 4


@dataclass(frozen=True, slots=True, kw_only=True)
class _Tables:
    data: bytes
    tree: int
    payload: int
    names: int
    node_size: int

    def unpack(self, layout: str, offset: int) -> tuple[int, ...]:
        size = struct.calcsize(layout)
        if offset < 0 or offset + size > len(self.data):
            raise ValueError(f"Qt resource: offset {offset} lies outside the {len(self.data)} bytes of the file")
        return struct.unpack_from(layout, self.data, offset)

    def slice(self, offset: int, length: int) -> bytes:
        if offset < 0 or length < 0 or offset + length > len(self.data):
            raise ValueError(f"Qt resource: {length} bytes at {offset} lie outside the file of {len(self.data)} bytes")
        return self.data[offset : offset + length]

    def name(self, node: int) -> str:
        (offset,) = self.unpack(">I", node)
        (units,) = self.unpack(">H", self.names + offset)
        try:
            name = self.slice(self.names + offset + 6, 2 * units).decode("utf-16-be")
        except UnicodeDecodeError as error:
            raise ValueError(f"Qt resource: a name is not UTF-16: {error}") from error
        if name in ("", ".", "..") or any(mark in name for mark in "/\\\0"):
            raise ValueError(f"Qt resource: {name!r} is no plain file name")
        return name


def read(data: bytes, wanted: Callable[[str], bool]) -> Iterator[tuple[str, bytes]]:
    """(path, content) of every file whose path, such as "gcompris/src/core/logo.png", is wanted; depth first.

    Raises ValueError for a damaged file, and for a wanted entry compressed with zstd: the pictures never are.
    """
    tables = _open(data)
    todo = [(0, "", 0)]
    seen = 0
    while todo:
        index, folder, depth = todo.pop()
        seen += 1
        if seen > MAX_ENTRIES or depth > MAX_DEPTH:
            raise ValueError(f"Qt resource: more than {MAX_ENTRIES} entries or deeper than {MAX_DEPTH} folders")
        node = tables.tree + index * tables.node_size
        (flags,) = tables.unpack(">H", node + 4)
        path = f"{folder}/{tables.name(node)}".lstrip("/") if depth else ""
        if flags & _DIRECTORY:
            count, first = tables.unpack(">II", node + 6)
            if count > MAX_ENTRIES:
                raise ValueError(f"Qt resource: a folder of {count} entries: at most {MAX_ENTRIES} are read")
            todo.extend((child, path, depth + 1) for child in reversed(range(first, first + count)))
        elif wanted(path):
            yield path, _content(tables, node, flags)


def _open(data: bytes) -> _Tables:
    if len(data) < 20 or data[:4] != b"qres":
        raise ValueError("Qt resource: the file does not begin with 'qres'; a compiled .rcc file was expected")
    version, tree, payload, names = struct.unpack_from(">4I", data, 4)
    if version not in (1, 2, 3):
        raise ValueError(f"Qt resource: version {version}: only 1 to 3 are known")
    return _Tables(data=data, tree=tree, payload=payload, names=names, node_size=14 if version == 1 else 22)


def _content(tables: _Tables, node: int, flags: int) -> bytes:
    (offset,) = tables.unpack(">I", node + 10)
    (length,) = tables.unpack(">I", tables.payload + offset)
    if length > MAX_ENTRY_BYTES:
        raise ValueError(f"Qt resource: an entry of {length} bytes: at most {MAX_ENTRY_BYTES} are read")
    raw = tables.slice(tables.payload + offset + 4, length)
    if flags & _ZSTD:
        raise ValueError("Qt resource: the entry is compressed with zstd, which this reader leaves out")
    if not flags & _COMPRESSED:
        return raw
    # qCompress puts the expected size before the zlib stream; it is as untrusted as the rest, so only the cap counts.
    inflater = zlib.decompressobj()
    try:
        content = inflater.decompress(raw[4:], MAX_ENTRY_BYTES)
    except zlib.error as error:
        raise ValueError(f"Qt resource: a damaged zlib stream: {error}") from error
    if not inflater.eof:
        raise ValueError(f"Qt resource: a zlib stream is cut short or exceeds {MAX_ENTRY_BYTES} bytes")
    return content
