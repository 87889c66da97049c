"""What an image of a record costs in each lossless format: milliseconds to encode and to decode, and bytes.

    make bench only=image_formats

Drawn scenes, photographs and both with a mask drawn (outside darkened), as records hold them, at three sizes. Times are CPU of one
thread, medians over the images, each the best of some repeats; the formats of one image follow each other, so that what else the
machine does weighs on all. `cost` is the sum of encoding and decoding. Writes image_formats.csv beside this file, a row per format,
kind of picture and size.

"zstd" is what PNG does with another compression: rows of which the one above was subtracted, through Arrow's codec; it is no
file that another program reads. Pillow has no JPEG XL.
"""

import csv
import io
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import PIL
import pyarrow as pa
from PIL import Image

from measure.measuring import machine
from openmaia.core.images import Pixels, darken_outside, decode
from openmaia.datasets.library import ImageDataset
from openmaia.offline.packaged.library import fetch
from openmaia.offline.scenes.album import sample
from openmaia.offline.scenes.layout import settle
from openmaia.offline.scenes.render import render
from tests.prepare import CACHE

OUT = Path(__file__).with_suffix(".csv")
SIDES = (96, 224, 512)
COUNT, REPEATS = 16, 2
"""Pictures of each kind and size, and times that each is encoded and decoded."""

Codec = tuple[Callable[[Pixels], bytes], Callable[[bytes, int], Pixels]]
"""Encodes pixels, and decodes them by their side."""


def pillow(kind: str, **settings: Any) -> Codec:
    """A format of Pillow, read as the program reads it."""

    def encode(pixels: Pixels) -> bytes:
        buffer = io.BytesIO()
        Image.fromarray(pixels).save(buffer, kind, **settings)
        return buffer.getvalue()

    return encode, lambda data, _: np.asarray(decode(data))


def qoi() -> Codec:
    """QOI, which `decode` does not accept."""
    encode, _ = pillow("QOI")
    return encode, lambda data, _: np.asarray(Image.open(io.BytesIO(data), formats=("QOI",)).convert("RGB"))


def zstd(level: int) -> Codec:
    """Differences to the row above, compressed."""
    codec = pa.Codec("zstd", level)

    def encode(pixels: Pixels) -> bytes:
        rows = pixels.reshape(pixels.shape[0], -1).copy()
        rows[1:] -= pixels.reshape(pixels.shape[0], -1)[:-1]
        return codec.compress(rows.tobytes(), asbytes=True)

    def read(data: bytes, side: int) -> Pixels:
        rows = np.frombuffer(codec.decompress(data, side * side * 3, asbytes=True), np.uint8).reshape(side, -1)
        return np.add.accumulate(rows, axis=0, dtype=np.uint8).reshape(side, side, 3)

    return encode, read


FORMATS: Mapping[str, Codec] = {
    **{f"PNG, level {level}": pillow("PNG", compress_level=level) for level in (1, 3, 6)},
    "PNG, level 1, runs": pillow("PNG", compress_level=1, compress_type=3),
    **{
        f"WebP, method {method}, quality {quality}": pillow("WEBP", lossless=True, method=method, quality=quality)
        for method, quality in ((0, 0), (0, 25), (0, 75), (1, 0), (2, 0), (4, 80))
    },
    **{
        # 317 is the tag of differences to the pixel on the left.
        f"TIFF, {name}": pillow("TIFF", compression=name, tiffinfo={317: 2})
        for name in ("zstd", "tiff_lzw", "tiff_adobe_deflate")
    },
    "QOI": qoi(),
    **{f"zstd, level {level}": zstd(level) for level in (1, 3, 9)},
}
CHOSEN = "WebP, method 0, quality 0"
"""That of `EncodedImage.of`."""


def pictures(count: int, side: int) -> Iterator[tuple[str, Pixels]]:
    """Kinds and pictures of side x side pixels."""
    photographs = [item for item in ImageDataset.open(fetch(CACHE, print)).items if item.kind == "photo"]
    rows, columns = np.mgrid[:side, :side] / side - 0.5
    mask = (rows + 0.1) ** 2 + columns**2 < 0.07
    for number in range(count):
        drawn = render(settle(sample(f"format {number}", 0.5)), side)
        photograph = photographs[number % len(photographs)].load().convert("RGB")
        cut = min(photograph.size)
        real = np.asarray(photograph.resize((side, side), Image.Resampling.BICUBIC, (0, 0, cut, cut), reducing_gap=2))
        yield from (("scene", drawn), ("photograph", real))
        yield from (("masked scene", darken_outside(drawn, mask)), ("masked photograph", darken_outside(real, mask)))


def best_ms(call: Callable[[], Any], repeats: int) -> tuple[float, Any]:
    """The least milliseconds of CPU of this thread, and what the call returned."""
    took: list[float] = []
    found: Any = None
    for _ in range(repeats):
        began = time.thread_time()
        found = call()
        took.append(1000 * (time.thread_time() - began))
    return min(took), found


def rows(count: int, repeats: int) -> Iterator[dict[str, Any]]:
    """One row per format, kind and size."""
    for side in SIDES:
        found: dict[tuple[str, str], list[tuple[float, float, int]]] = {}
        for kind, pixels in pictures(count, side):
            for name, (encode, read) in FORMATS.items():
                encoding, data = best_ms(lambda pixels=pixels, encode=encode: encode(pixels), repeats)
                decoding, back = best_ms(lambda data=data, read=read, side=side: read(data, side), repeats)
                if not np.array_equal(back, pixels):
                    raise AssertionError(f"{name} is not lossless")
                found.setdefault((name, kind), []).append((encoding, decoding, len(data)))
        for (name, kind), figures in found.items():
            encoding, decoding, size = (statistics.median(each) for each in zip(*figures, strict=True))
            yield {
                "side": side,
                "kind": kind,
                "format": name,
                "encode_ms": round(encoding, 2),
                "decode_ms": round(decoding, 2),
                "cost_ms": round(encoding + decoding, 2),
                "kb": round(size / 1000, 1),
                "images": len(figures),
            }


def measure(smoke: bool) -> dict[str, Any]:
    """See `figures`. Writes the table."""
    table = list(rows(2 if smoke else COUNT, 1 if smoke else REPEATS))
    if not smoke:
        with OUT.open("w", newline="") as file:
            where = {"machine": machine(), "pillow": PIL.__version__, "date": date.today().isoformat()}
            writer = csv.DictWriter(file, [*table[0], *where])
            writer.writeheader()
            writer.writerows(row | where for row in table)
    return figures(table)


def figures(table: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Time and bytes of CHOSEN over those of others, by size, in means over the kinds of pictures."""

    def mean(name: str, side: int, key: str) -> float:
        mine = [row for row in table if row["format"] == name and int(row["side"]) == side]
        return statistics.mean(float(row[key]) for row in mine)

    return {
        f"{key} over {name}, {side}": round(mean(CHOSEN, side, key) / mean(name, side, key), 3)
        for name in ("PNG, level 1", "zstd, level 1")
        for side in SIDES
        for key in ("cost_ms", "kb")
    }
