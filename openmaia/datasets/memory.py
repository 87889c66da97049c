"""Reads images that the user's Python program passes: a list of files, images or arrays, or a dataset with a length."""

import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, cast

import numpy as np
import numpy.typing as npt
from PIL import Image

from openmaia.core.errors import UsageError
from openmaia.core.images import flatten
from openmaia.datasets.folder import FileSource
from openmaia.datasets.reading import SkipReason, UnusableImage
from openmaia.datasets.scanning import ImageSource

KEYS = ("image", "img", "pixel_values", "jpg", "png")
"""Names under which datasets keep the image of an item that is a mapping."""


class IndexedImages(Protocol):
    """A list of images, or a dataset of PyTorch or Hugging Face whose items can be accessed by index."""

    def __len__(self) -> int: ...
    def __getitem__(self, index: int, /) -> Any: ...


@dataclass(frozen=True, slots=True)
class MemoryImages:
    """The images of a list or dataset that the user's program passed.

    An image is read each time that it is needed, and is not kept in memory.
    """

    items: IndexedImages

    @property
    def root(self) -> str:
        """Name of the list or dataset for messages, with its type and its number of items."""
        return f"images (a {type(self.items).__name__} of {len(self.items)})"

    @property
    def expected(self) -> str:
        """The types of images that the list or dataset may hold, as text for error messages."""
        return "files, Pillow images, or arrays of shape (height, width, 3) or tensors of shape (3, height, width)"

    def stamp(self) -> str:
        """Returns an empty text, because changes of a list or dataset cannot be detected.

        Other collections of images return a text that changes whenever their images change, so that cached digests and
        splits can be invalidated. The digests and splits of these images must not be cached.
        """
        return ""

    def sources(self) -> Iterable[ImageSource | SkipReason]:
        """Returns the location of each image, in the order of the list or dataset that the user's program passed.

        Raises:
            UsageError: The first item is no image. Later items that are no images are skipped when they are read.
        """
        if len(self.items):
            try:
                _encoded(self.items[0], "images[0]")
            except UnusableImage as error:
                raise UsageError(f"images[0]: {error}; expected {self.expected}") from error
        return [self._source(number) for number in range(len(self.items))]

    def _source(self, number: int) -> ImageSource:
        # A list of paths is read like a folder. Items of a dataset are not loaded here.
        item = self.items[number] if type(self.items) in (list, tuple) else None
        return FileSource(Path(item)) if isinstance(item, str | Path) else ItemSource(self.items, number)


@dataclass(frozen=True, slots=True)
class ItemSource:
    """One item of the list or dataset that the user's program passes as images."""

    items: IndexedImages
    number: int
    """Index of the item, from 0."""

    @property
    def name(self) -> str:
        """Name of the item, such as "images[3]", for messages."""
        return f"images[{self.number}]"

    def read(self) -> bytes:
        """Returns the encoded image (the content of an image file).

        Raises:
            UnusableImage: The item cannot be read or is no image.
        """
        try:
            return _encoded(self.items[self.number], self.name)
        except UsageError as error:
            raise UnusableImage(error.message, reason=SkipReason.NOT_AN_IMAGE) from error
        except Exception as error:  # the user's dataset may fail in any way
            raise UnusableImage(f"{self.name} cannot be read: {error}", reason=SkipReason.UNREADABLE) from error


def _encoded(item: Any, name: str) -> bytes:
    """Returns an item as the bytes of an image file.

    Args:
        item: A path, the bytes of a file, a Pillow image, an array, a tensor, a tuple whose first element is one of
            these, or a mapping with one of these under a name of KEYS.
        name: Name for messages.

    Raises:
        UsageError: The item is no image.
        UnusableImage: The item is the path of a file that cannot be used.
    """
    if isinstance(item, tuple | list) and item:
        return _encoded(cast(Sequence[Any], item)[0], name)
    if isinstance(item, dict):
        found = [cast(dict[str, Any], item)[key] for key in KEYS if key in item]
        if not found:
            raise UsageError(
                f"{name} has the keys {', '.join(map(str, cast(dict[str, Any], item)))}; expected an image under one of "
                f"{', '.join(KEYS)}"
            )
        return _encoded(found[0], name)
    if isinstance(item, str | Path):
        return FileSource(Path(item)).read()
    if isinstance(item, bytes):
        return item
    image = item if isinstance(item, Image.Image) else Image.fromarray(_pixels(item, name))
    buffer = io.BytesIO()
    try:
        image.save(buffer, "PNG", compress_level=1)
    except OSError:  # PNG has not all modes of Pillow, such as CMYK
        buffer = io.BytesIO()
        flatten(image).save(buffer, "PNG", compress_level=1)
    return buffer.getvalue()


def _pixels(item: Any, name: str) -> npt.NDArray[np.uint8]:
    """Converts an array or a tensor on the CPU to uint8 pixels of shape (height, width) or (height, width, channels)."""
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
    if not (low >= 0 and high <= 255) or values.dtype.kind == "f":
        if not (low >= 0 and high <= 1):
            raise UsageError(
                f"{name} has values from {low:.3g} to {high:.3g}; expected pixels, not inputs of a network: give the dataset "
                "without its normalisation, and the transform as preprocess"
            )
        values = (values * 255).round()
    return np.ascontiguousarray(values.astype(np.uint8))
