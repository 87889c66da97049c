"""Reads images that the user's Python program passes: files, images or arrays in a list, a table, or a dataset."""

import io
import os
import struct
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Protocol, cast

import numpy as np
import numpy.typing as npt
from PIL import Image

from openmaia.core.errors import UsageError
from openmaia.core.paths import user_path
from openmaia.datasets.folder import FileSource
from openmaia.datasets.reading import SkipReason, UnusableImage, make_upright
from openmaia.datasets.remote import RemoteFile, is_url
from openmaia.datasets.scanning import ImageSource

_KEYS = ("image", "img", "pixel_values", "jpg", "png")
"""Names under which datasets keep the image of an item that is a mapping."""

_COLUMNS = (*_KEYS, "path", "file", "filename", "file_name", "filepath", "file_path", "image_path", "url")
"""Names of the column of a table that holds images or their files."""

_MOST = 100_000
"""Largest number of images that are read from an iterator, which may have no end."""


_Path = str | os.PathLike[str]


class IndexedImages(Protocol):
    """A list of images, or a dataset of PyTorch or Hugging Face whose items can be accessed by index."""

    def __len__(self) -> int: ...
    def __getitem__(self, index: int, /) -> Any: ...


class MemoryImages:
    """The images of a list, a table, an iterator or a dataset that the user's program passed.

    Items of a dataset with a length are read each time that they are needed, and are not kept in memory.
    """

    def __init__(self, given: Any):
        """Finds the items.

        Args:
            given: A list of what `_encoded` reads; a dataset with `len()` and indices; a pandas, polars or Arrow table
                with a column of images or files, or one of its columns; an array or tensor of several images; a mapping
                with images as values; or another iterable.

        Raises:
            UsageError: This is one image, a batch, a mapping of datasets, a table without such a column, or no collection.
        """
        self._type = type(given).__name__
        self.items = _items(given)

    @property
    def root(self) -> str:
        """Type and number of items, for messages."""
        return f"images (a {self._type} of {len(self.items)})"

    @property
    def expected(self) -> str:
        """See `ImageCollection.expected`."""
        return "files, Pillow images, or arrays of shape (height, width, 3) or tensors of shape (3, height, width)"

    def stamp(self) -> str:
        """Returns an empty text, because changes of a list or dataset cannot be detected."""
        return ""

    def sources(self) -> Iterable[ImageSource]:
        """Returns the images in the order of the list or dataset.

        Raises:
            UsageError: The first item is no image. Later items that are no images are skipped when they are read.
        """
        if len(self.items):
            try:
                _encoded(self.items[0], "images[0]")
            except UsageError as error:
                raise UsageError(f"{error.message}; expected {self.expected}") from error
            except UnusableImage:
                pass  # it is skipped like a later one
        return [self._source(number) for number in range(len(self.items))]

    def _source(self, number: int) -> ImageSource:
        # A list of paths is read like a folder. Items of a dataset are not loaded here.
        item = self.items[number] if type(self.items) in (list, tuple) else None
        return _file(cast(_Path, item)) if isinstance(item, str | os.PathLike) else ItemSource(self.items, number)


def _items(given: Any) -> IndexedImages:
    """Returns the items in an order that their indices follow. A label of pandas, for example, is no position."""
    if isinstance(given, Mapping):
        return _values(cast(Mapping[Any, Any], given))
    kind = type(given).__name__
    if isinstance(given, str | bytes | bytearray | os.PathLike | Image.Image):
        raise UsageError(f"images is one {kind}; give a folder, or a list of images")
    if hasattr(given, "columns") or (hasattr(given, "column_names") and hasattr(given, "to_pylist")):
        return _column(given)
    if hasattr(given, "to_pylist"):  # Arrow, whose scalars are no Python objects
        return given.to_pylist()
    if hasattr(given, "iloc") or isinstance(given, set | frozenset):
        return list(cast(Iterable[Any], given))
    if hasattr(given, "ndim") and hasattr(given, "shape"):
        return _stack(given)
    if hasattr(given, "__len__") and hasattr(given, "__getitem__"):
        return given
    if hasattr(given, "collate_fn"):
        raise UsageError(f"images is a {kind}, which gives batches; give its dataset (loader.dataset)")
    if not hasattr(given, "__iter__"):
        raise UsageError(
            f"images is a {kind}; expected a list or an iterator of files, images or arrays, a table with such "
            "a column, or a dataset with len() and indices"
        )
    items = list(islice(cast(Iterable[Any], given), _MOST + 1))
    if len(items) > _MOST:
        raise UsageError(
            f"images is a {kind} of more than {_MOST:,} items; give a dataset with len() and indices, or a part "
            f"of it (itertools.islice(images, {_MOST}))"
        )
    return items


def _values(given: Mapping[Any, Any]) -> IndexedImages:
    column = next((given[key] for key in _COLUMNS if key in given), None)
    if isinstance(column, list | tuple | np.ndarray):  # a batch of columns
        return _items(column)
    values = list(given.values())
    if values and all(hasattr(value, "column_names") for value in values):
        names = ", ".join(map(str, given))
        raise UsageError(f"images is a {type(given).__name__} of several datasets ({names}); give one of them")
    return values


def _column(table: Any) -> IndexedImages:
    names = list(map(str, getattr(table, "column_names", table.columns)))
    if hasattr(table, "features") and hasattr(table, "__len__"):  # a dataset of Hugging Face
        return table
    found = [name for name in _COLUMNS if name in names] or (names if len(names) == 1 else [])
    if hasattr(table, "features"):  # a stream
        return _items(iter(table))
    if not found:
        raise UsageError(
            f"images is a {type(table).__name__} with the columns {', '.join(names)[:300]}; give the column of images or files, "
            f"such as images=table[{names[0] if names else 'path'!r}]"
        )
    return _items(table[found[0]])


def _stack(given: Any) -> IndexedImages:
    """Returns the images of an array or tensor: one along the first axis, or objects in one dimension."""
    kind = getattr(given.dtype, "kind", "")
    if given.ndim == 1 and kind in "OUST":
        return given.tolist()
    shape = tuple(given.shape)
    if given.ndim == 4 or (given.ndim == 3 and shape[0] not in (1, 3, 4) and shape[2] not in (1, 3, 4)):
        return given
    raise UsageError(
        f"images is one {type(given).__name__} of shape {shape}; expected several images, of shape (images, height, width, "
        "channels) or (images, channels, height, width), or a list of images"
    )


def _file(item: _Path) -> ImageSource:
    name = os.fspath(item) if isinstance(item, Path) else str(item)
    return RemoteFile(name) if is_url(name) else FileSource(user_path(name))


@dataclass(frozen=True, slots=True)
class ItemSource:
    """One item of a list or dataset."""

    items: IndexedImages
    number: int

    @property
    def name(self) -> str:
        """Such as "images[3]", for messages."""
        return f"images[{self.number}]"

    def read(self) -> bytes:
        """Returns the encoded image. Raises UnusableImage if the item cannot be read or is no image."""
        try:
            return _encoded(self.items[self.number], self.name)
        except UnusableImage:
            raise
        except UsageError as error:
            raise UnusableImage(error.message, reason=SkipReason.NOT_AN_IMAGE) from error
        except Exception as error:  # the user's dataset may fail in any way
            raise UnusableImage(f"{self.name} cannot be read: {error}", reason=SkipReason.UNREADABLE) from error


def _encoded(item: Any, name: str) -> bytes:
    """Returns an item as the bytes of an image file.

    Args:
        item: A path, a URL, the bytes of a file, a Pillow image, an array, a tensor, a tuple whose first element is one
            of these, or a mapping with one of these under a name of _KEYS.
        name: Name for messages.

    Raises:
        UsageError: The item is no image.
        UnusableImage: The item is missing, or is the path of a file that cannot be used.
    """
    if item is None or isinstance(item, float):  # a missing value of a table
        raise UnusableImage(f"{name} is {item}", reason=SkipReason.EMPTY)
    if isinstance(item, tuple | list) and item:
        return _encoded(cast(Sequence[Any], item)[0], name)
    if isinstance(item, Mapping):
        fields = cast(Mapping[str, Any], item)
        found = [fields[key] for key in (*_KEYS, "bytes", "path") if fields.get(key) is not None]
        if not found:
            raise UsageError(
                f"{name} has the keys {', '.join(map(str, fields))}; expected an image under one of {', '.join(_KEYS)}"
            )
        return _encoded(found[0], name)
    if isinstance(item, str | os.PathLike):
        return _file(cast(_Path, item)).read()
    if isinstance(item, bytes | bytearray | memoryview):
        return bytes(cast(bytes, item))
    if isinstance(item, io.BytesIO):
        return item.getvalue()
    if isinstance(item, Image.Image):
        is_deep = item.mode == "F" or item.mode.startswith("I")
        return _saved(item, "TIFF") if is_deep else _saved(make_upright(item), "PNG")
    return _array(item, name)


def _saved(image: Image.Image, form: str) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, form, compress_level=1)
    return buffer.getvalue()


def _array(item: Any, name: str) -> bytes:
    """Returns an array or a tensor on the CPU, of shape (height, width) or with channels first or last, as a file."""
    expected = "expected a file, a Pillow image, or an array or tensor of pixels"
    try:
        values: npt.NDArray[Any] = np.asarray(item)
    except Exception as error:
        raise UsageError(f"{name} is a {type(item).__name__} that cannot be read as an array: {error}") from error
    if values.dtype.kind not in "uif" or values.ndim not in (2, 3):
        raise UsageError(f"{name} is a {type(item).__name__} ({values.dtype}, shape {values.shape}); {expected}")
    if values.ndim == 3 and values.shape[0] in (1, 3, 4) and values.shape[2] not in (1, 3, 4):
        values = values.transpose(1, 2, 0)
    if values.ndim == 3 and values.shape[2] == 1:
        values = values[:, :, 0]
    if values.ndim == 3 and values.shape[2] not in (3, 4):
        raise UsageError(f"{name} has the shape {values.shape}; expected one, three or four channels")
    low, high = float(values.min(initial=0)), float(values.max(initial=0))
    if values.dtype == np.uint8:
        return _saved(Image.fromarray(np.ascontiguousarray(values)), "PNG")
    if values.dtype.kind == "f" and low >= 0 and high <= 1:
        return _saved(Image.fromarray(np.ascontiguousarray((values * 255).round().astype(np.uint8))), "PNG")
    if values.dtype.kind in "ui" and low >= 0 and high <= 65535 and values.shape[2:] != (4,):
        return _deep_png(values)  # its dataset says which value means white
    if values.dtype.kind in "ui" and low >= 0 and high <= 255:
        return _saved(Image.fromarray(np.ascontiguousarray(values.astype(np.uint8))), "PNG")
    raise UsageError(
        f"{name} has values from {low:.3g} to {high:.3g}; expected pixels, not inputs of a network (integers from 0, or floats "
        "from 0 to 1): give the dataset without its normalisation, and the transform as preprocess"
    )


def _deep_png(values: npt.NDArray[Any]) -> bytes:
    """Returns integers of shape (height, width) or (height, width, 3) as a PNG of 16 bits, which Pillow does not write in RGB."""
    height, width = values.shape[:2]
    rows = np.ascontiguousarray(values.astype(">u2")).view(np.uint8).reshape(height, -1)
    body = zlib.compress(np.pad(rows, ((0, 0), (1, 0))).tobytes(), 1)
    header = struct.pack(">2I5B", width, height, 16, 2 if values.ndim == 3 else 0, 0, 0, 0)

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", body) + chunk(b"IEND", b"")
