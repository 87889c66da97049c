"""Reads the two file formats of the packaged images that no library reads: Qt resources and GIMP patterns."""

import struct
import zlib
from collections.abc import Iterator

import numpy as np
from PIL import Image

_COMPRESSED, _FOLDER = 1, 2


def read_resources(data: bytes, suffixes: tuple[str, ...]) -> Iterator[tuple[str, bytes]]:
    """Yields path and content of the entries of a Qt resource file (.rcc), in depth-first order; see Qt's qresource.cpp
    for the format.

    A path is such as "gcompris/src/core/logo.png".

    Raises:
        ValueError: The file is not a Qt resource.
        struct.error, zlib.error: The file is damaged.
    """
    magic, version, tree, payload, names = struct.unpack_from(">4s4I", data)
    if magic != b"qres":
        raise ValueError("the file does not begin with 'qres'; a compiled Qt resource was expected")
    node_size = 14 if version == 1 else 22

    def walk(index: int, folder: str) -> Iterator[tuple[str, bytes]]:
        node = tree + index * node_size
        name_offset, flags = struct.unpack_from(">IH", data, node)
        (length,) = struct.unpack_from(">H", data, names + name_offset)
        start = names + name_offset + 6  # a hash follows the length
        name = data[start : start + 2 * length].decode("utf-16-be")
        path = f"{folder}/{name}".lstrip("/") if index else ""  # the root has no name
        if flags & _FOLDER:
            count, first = struct.unpack_from(">II", data, node + 6)
            for child in range(first, first + count):
                yield from walk(child, path)
        elif path.endswith(suffixes):
            (offset,) = struct.unpack_from(">I", data, node + 10)
            (size,) = struct.unpack_from(">I", data, payload + offset)
            content = data[payload + offset + 4 : payload + offset + 4 + size]
            # qCompress writes the expected size in front of the zlib stream.
            yield path, zlib.decompress(content[4:]) if flags & _COMPRESSED else content

    return walk(0, "")


def read_pattern(data: bytes) -> Image.Image:
    """Reads a GIMP pattern (.pat) as RGB, without its transparency.

    Raises:
        ValueError, struct.error: The file is damaged.
    """
    header, _, width, height, channels = struct.unpack_from(">5I", data)
    pixels = np.frombuffer(data, np.uint8, width * height * channels, header).reshape(height, width, channels)
    colour = pixels[..., :3] if channels >= 3 else np.repeat(pixels[..., :1], 3, axis=2)
    return Image.fromarray(np.ascontiguousarray(colour))
