"""Reads GIMP's pattern files (.pat): a header of six big-endian words, a name, then raw pixels."""

import struct

import numpy as np
from PIL import Image

MAX_SIDE = 4096


def decode(data: bytes) -> Image.Image:
    """Raises ValueError for what is no whole GIMP pattern. Grey patterns come back as RGB, transparency is dropped."""
    if len(data) < 24:
        raise ValueError(f"GIMP pattern: {len(data)} bytes are too few for its header of 24")
    header, version, width, height, channels = struct.unpack_from(">5I", data)
    if data[20:24] != b"GPAT" or version != 1 or header < 24:
        raise ValueError("GIMP pattern: the header is not of a version 1 pattern")
    if not (0 < width <= MAX_SIDE and 0 < height <= MAX_SIDE and 1 <= channels <= 4):
        raise ValueError(f"GIMP pattern: {width} x {height} x {channels}: at most {MAX_SIDE} x {MAX_SIDE} x 4 is read")
    size = width * height * channels
    if header + size > len(data):
        raise ValueError(f"GIMP pattern: {size} bytes of pixels were announced, {len(data) - header} are there")
    pixels = np.frombuffer(data, np.uint8, size, header).reshape(height, width, channels)
    colour = pixels[..., :3] if channels >= 3 else np.repeat(pixels[..., :1], 3, axis=2)
    return Image.fromarray(np.ascontiguousarray(colour))
