"""Qt resource files and GIMP patterns for tests."""

import struct
from collections.abc import Mapping
from typing import Any

import numpy as np

Tree = Mapping[str, Any]
"""Names to folders (Tree), contents (bytes), or (flags, stored bytes)."""


def resource(tree: Tree, version: int = 3) -> bytes:
    """Returns a Qt resource file that holds the tree."""
    nodes: list[bytes] = []
    payload, names = bytearray(), bytearray()
    tail = b"" if version == 1 else bytes(8)
    queue: list[tuple[str, Any]] = [("root", tree)]
    reserved = 1
    while queue:
        name, content = queue.pop(0)
        label = struct.pack(">I", len(names))
        names += struct.pack(">HI", len(name), 0) + name.encode("utf-16-be")
        if isinstance(content, Mapping):
            children = sorted(content.items())
            nodes.append(label + struct.pack(">HII", 2, len(children), reserved) + tail)
            reserved += len(children)
            queue += children
        else:
            flags, stored = content if isinstance(content, tuple) else (0, content)
            nodes.append(label + struct.pack(">HHHI", flags, 0, 0, len(payload)) + tail)
            payload += struct.pack(">I", len(stored)) + stored
    table, head = b"".join(nodes), 24 if version >= 3 else 20
    offsets = (head, head + len(table), head + len(table) + len(payload))
    front = b"qres" + struct.pack(">4I", version, *offsets) + (bytes(4) if version >= 3 else b"")
    return front + table + bytes(payload) + bytes(names)


def pattern(pixels: np.ndarray[tuple[int, ...], np.dtype[np.uint8]]) -> bytes:
    """Returns a GIMP pattern of (height, width, channels)."""
    height, width, channels = pixels.shape
    name = b"test\0"
    return struct.pack(">5I4s", 24 + len(name), 1, width, height, channels, b"GPAT") + name + pixels.tobytes()
