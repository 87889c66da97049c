"""Pictures and archives for the tests of this folder, made of noise with a seed: no two seeds look alike."""

import struct
import zlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from PIL import Image

Tree = Mapping[str, "Tree | bytes | tuple[int, bytes]"]
"""Names to folders, contents, or (flags, stored bytes)."""


def picture(seed: int, size: tuple[int, int] = (96, 72)) -> Image.Image:
    """Smooth colourful blobs: what survives resizing and re-encoding, as in a photograph."""
    coarse = np.random.default_rng(seed).integers(0, 256, (6, 6, 3), dtype=np.uint8)
    return Image.fromarray(coarse).resize(size, Image.Resampling.BICUBIC)


def save(path: Path, image: Image.Image, **options: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    image.save(path, **options)  # pyright: ignore[reportArgumentType]
    return path


def huge_png() -> bytes:
    """A PNG of a few bytes that announces 60,000 x 60,000 pixels."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    header = struct.pack(">2I5B", 60_000, 60_000, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b"")


def resource(tree: Tree, version: int = 3) -> bytes:
    """A Qt resource file holding the tree; contents are stored as they are, or with the flags given."""
    nodes: list[bytes] = []
    payload, names = bytearray(), bytearray()
    head = 24 if version >= 3 else 20
    tail = b"" if version == 1 else bytes(8)
    queue: list[tuple[str, object]] = [("", tree)]
    reserved = 1
    while queue:
        name, content = queue.pop(0)
        label = struct.pack(">I", len(names))
        names += struct.pack(">HI", len(name.encode("utf-16-be")) // 2, 0) + name.encode("utf-16-be")
        if isinstance(content, Mapping):
            children: list[tuple[str, object]] = sorted(content.items())  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType, reportUnknownArgumentType]
            nodes.append(label + struct.pack(">HII", 2, len(children), reserved) + tail)
            reserved += len(children)
            queue += children
        else:
            flags, stored = content if isinstance(content, tuple) else (0, content)  # pyright: ignore[reportUnknownVariableType]
            assert isinstance(stored, bytes)
            nodes.append(label + struct.pack(">HHHI", flags, 0, 0, len(payload)) + tail)
            payload += struct.pack(">I", len(stored)) + stored
    table = b"".join(nodes)
    offsets = (head, head + len(table), head + len(table) + len(payload))
    front = b"qres" + struct.pack(">4I", version, *offsets) + (bytes(4) if version >= 3 else b"")
    return front + table + bytes(payload) + bytes(names)


def pattern(pixels: np.ndarray[tuple[int, ...], np.dtype[np.uint8]]) -> bytes:
    """A GIMP pattern of (height, width, channels)."""
    height, width, channels = pixels.shape
    name = b"test\0"
    return struct.pack(">5I4s", 24 + len(name), 1, width, height, channels, b"GPAT") + name + pixels.tobytes()
