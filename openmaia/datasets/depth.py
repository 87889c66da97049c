"""Reads images with more than 8 bits for each sample: integers of 12, 16 and 32 bits, and floats.

A file rarely says which of its values means white: 12 bits are stored in 16, and floats have any range. Images whose
file does not say it are scaled by the values of their whole dataset, so that a dark image stays darker than a bright
one.
"""

import io
from collections.abc import Iterable
from typing import Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt
from PIL import Image, TiffImagePlugin

_FLOATS = 3
"""Value of a TIFF file's tag SampleFormat."""

_DEPTHS = (8, 10, 12, 14, 16)
"""Numbers of bits that integers may have. The smallest that holds all values of a dataset is taken."""


_ROWS = 256
"""Rows that are converted at once: with 8 bytes for each sample, a large image would take gigabytes."""


class Samples(NamedTuple):
    """Type, such as "uint16", and extreme values of the samples of an image, or of a dataset's images of this type."""

    kind: str
    low: float
    high: float


class Deep(NamedTuple):
    """The samples of an image with more than 8 bits for each."""

    values: npt.NDArray[Any]
    """Shape (height, width) or (height, width, channels)."""
    declared: float | None
    """The value that means white, if the file says it. Black is 0 then."""

    @property
    def samples(self) -> Samples:
        """Type and extreme values."""
        return Samples(self.values.dtype.name, float(self.values.min()), float(self.values.max()))


def read_samples(image: Image.Image) -> Deep | None:
    """Loads an image, and returns its samples if they have more than 8 bits."""
    if image.mode.startswith("I"):
        values = np.asarray(image)
        is_short = image.mode.startswith("I;16") or image.format == "PPM"
        declared = 65535.0 if image.format == "PPM" else _declared(image)
        return Deep(values.astype(np.uint16 if is_short else np.int32), declared)
    if image.mode == "F":
        return Deep(np.asarray(image), None)
    # Of three channels of 16 bits, Pillow decodes the high bytes only. With exchanged byte order it decodes the low ones.
    low = _low_bytes(image)
    if low is None:
        return None
    return Deep(np.asarray(image).astype(np.uint16) * 256 + low, _declared(image))


def _declared(image: Image.Image) -> float | None:
    """Returns the value of white that a TIFF file says by its bits for each sample, or by its tag MaxSampleValue."""
    tags = cast(dict[int, Any], getattr(image, "tag_v2", {}))
    bits, given = tags.get(258, ()), tags.get(281)
    if isinstance(bits, tuple) and bits and isinstance(bits[0], int) and 8 < bits[0] < 16:
        return float(2 ** bits[0] - 1)
    largest = max(cast(tuple[int, ...], given)) if isinstance(given, tuple) and given else cast(object, given)
    return float(largest) if isinstance(largest, int) and 0 < largest < 65535 else None


def _low_bytes(image: Image.Image) -> npt.NDArray[np.uint8] | None:
    tiles = cast(list[Any], getattr(image, "tile", []))
    raw = {tile.args if isinstance(tile.args, str) else next(iter(tile.args or ()), "") for tile in tiles}
    names = {f"RGB;16{order}": order for order in "BLN"}
    if len(raw) != 1 or (given := raw.pop()) not in names:
        return None
    low_first = names[given] == "L" or (names[given] == "N" and np.little_endian)
    swapped = "RGB;16B" if low_first else "RGB;16L"
    file = cast(Any, image).fp
    position = file.tell()
    other = cast(Any, Image.open(file, formats=[str(image.format)]))
    other.tile = [
        tile._replace(args=swapped if isinstance(tile.args, str) else (swapped, *tile.args[1:])) for tile in other.tile
    ]
    low = np.asarray(other)
    file.seek(position)
    return low


def name_samples(data: bytes) -> str:
    """Returns the kind of the samples of a TIFF file that Pillow does not open, such as "3 samples of 12 bits".

    Empty for other data, if the header is damaged, and for kinds that Pillow does open, because such a file is damaged.
    """
    file = io.BytesIO(data)
    try:
        tags = TiffImagePlugin.ImageFileDirectory_v2(file.read(8))
        file.seek(tags.next)
        tags.load(file)
        bits, count, kind = (_first(tags.get(tag, 1)) for tag in (258, 277, 339))
    except Exception:  # Pillow's readers raise anything on damaged files
        return ""
    if bits <= 8 or (bits == 16 and kind != _FLOATS):
        return ""
    return f"{count} sample{'s' * (count != 1)} of {bits} bits{' (floats)' * (kind == _FLOATS)}"


def _first(value: Any) -> int:
    return int(value[0] if isinstance(value, tuple) else value)  # pyright: ignore[reportUnknownArgumentType]


def find_white_point(deep: Deep, scales: Iterable[Samples]) -> tuple[float, float]:
    """Returns the values that mean black and white: what the file says, else the range of its dataset (see `find_scales`).

    Without either, integers of 16 bits have the full range of the type, and others the range of the image.
    """
    if deep.declared:
        return 0.0, deep.declared
    known = next((each for each in scales if each.kind == deep.samples.kind), None)
    if known is None:
        known = Samples("", 0.0, 65535.0) if deep.values.dtype == np.uint16 else find_scales([deep.samples])[0]
    return known.low, known.high


def find_scales(samples: Iterable[Samples]) -> tuple[Samples, ...]:
    """Returns for each type of samples the values that mean black and white, from the extremes of all images.

    Integers without a negative value range from 0 to the largest number of the smallest possible depth (see _DEPTHS),
    floats from 0 to 1 or 255 if they lie between. Others range from their smallest value, or 0, to their largest one.
    """
    found: dict[str, Samples] = {}
    for each in samples:
        before = found.get(each.kind, each)
        found[each.kind] = Samples(each.kind, min(before.low, each.low), max(before.high, each.high))
    return tuple(_scale(each) for _, each in sorted(found.items()))


def _scale(extremes: Samples) -> Samples:
    kind, low, high = extremes
    limits = (1.0, 255.0) if kind.startswith("float") else tuple(2.0**depth - 1 for depth in _DEPTHS)
    fitting = [limit for limit in limits if low >= 0 and high <= limit]
    black = min(low, 0.0)
    return Samples(kind, 0.0, fitting[0]) if fitting else Samples(kind, black, max(high, black + 1))


def to_eight_bits(values: npt.NDArray[Any], low: float, high: float) -> Image.Image:
    """Returns samples as an image of 8 bits in which `low` is black and `high` is white."""
    made = np.empty(values.shape, np.uint8)
    for first in range(0, len(values), _ROWS):
        rows = slice(first, first + _ROWS)
        scaled = (values[rows].astype(np.float64) - low) * (255 / (high - low))
        # Half a thousandth keeps exact multiples whole in spite of rounding errors.
        made[rows] = np.clip(scaled + 0.0005, 0, 255).astype(np.uint8)
    return Image.fromarray(made)
