"""Datasets of images with the kind, caption, category and split of each image."""

import json
import os
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, get_args

from PIL import Image

from openmaia.core.errors import UsageError
from openmaia.core.services import Split
from openmaia.datasets import index
from openmaia.datasets.folder import ImageFolder
from openmaia.datasets.index import ImageKind, IndexEntry
from openmaia.datasets.reading import SkipReason, read
from openmaia.datasets.scanning import ImageSource, describe, scan
from openmaia.datasets.split import assign_splits

LISTING = ".openmaia-split.json"
"""Name of the file in which the digests and splits of a folder's images are cached. It is hidden, and no dataset uses
this name."""

_FORMAT = "openmaia-split-2"


class ImageCollection(Protocol):
    """A source of images, such as a folder."""

    @property
    def root(self) -> str:
        """Name of the collection, for messages."""
        ...

    @property
    def expected(self) -> str:
        """What a usable collection must contain, as text for error messages."""
        ...

    def stamp(self) -> str:
        """Returns a value that changes whenever the images change."""
        ...

    def sources(self) -> Iterable[ImageSource | SkipReason]:
        """Returns all images in a fixed order. A SkipReason stands for an image that is known to be unusable."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetImage:
    """One image of a dataset. It holds no pixels; `load` reads them."""

    digest: str
    """SHA-256 of the image; see `reading.read`."""
    source: ImageSource
    kind: ImageKind
    caption: str
    """The caption in the dataset's index.json; empty without one."""
    category: str
    """The category in the dataset's index.json; empty without one."""
    split: Split

    def load(self) -> Image.Image:
        """Reads and decodes the image.

        Returns:
            An upright image, RGB, or RGBA if it has transparency.

        Raises:
            ValueError: The image was changed or removed after its dataset was opened.
        """
        image, digest = read(self.source.read(), self.source.name)
        if digest != self.digest:
            raise ValueError(f"{self.source.name} has changed since it was listed")
        return image


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageDataset:
    """Images that are divided into an explore and a test split.

    Hypotheses about units are formed on the explore split and tested on the test split.
    """

    root: str
    """Name of the collection from which the images come, for messages."""
    items: tuple[DatasetImage, ...]
    """The usable images in the order of the collection."""
    skipped: dict[str, int]
    """Number of images that could not be used, by reason."""

    @classmethod
    def open(cls, root: Path) -> "ImageDataset":
        """Opens a folder of images. Kinds, captions and categories come from its index.json if it has one.

        Raises:
            UsageError: The folder is missing or holds no usable image.
        """
        known = {str(root / path): entry for path, entry in index.load(root).items()}
        return cls.of(ImageFolder(root), root / LISTING, known)

    @classmethod
    def of(
        cls, collection: ImageCollection, path: Path | None, known: Mapping[str, IndexEntry] | None = None
    ) -> "ImageDataset":
        """Opens a collection. All images are decoded to compute their digests and splits, unless these are cached.

        Args:
            collection: The collection.
            path: File in which digests and splits are cached until the collection changes. If it is None or cannot be
                written, they are computed each time.
            known: Kind, caption and category of the images, by name (`ImageSource.name`). The name of a file is its
                path. Images without an entry are photographs without a caption.

        Raises:
            UsageError: The collection cannot be read or holds no usable image.
        """
        stamp, sources = collection.stamp(), list(collection.sources())
        try:
            listing: dict[str, Any] = json.loads(path.read_bytes() if path else b"{}")
            if listing["stamp"] != [_FORMAT, stamp]:
                raise ValueError("the listing is outdated")
            items = _items(sources, listing, known or {})
        except (OSError, ValueError, LookupError, TypeError, RecursionError):
            # A listing that is missing, outdated or damaged is computed again: it is only a cache.
            listing = _compute(collection, sources, stamp)
            if path:
                _write(path, listing)
            items = _items(sources, listing, known or {})
        return cls(root=collection.root, items=items, skipped=listing["skipped"])

    @property
    def left_out(self) -> str:
        """The number of skipped images by reason, as text such as "2 corrupt, 1 empty". Empty if none was skipped."""
        return describe(self.skipped)

    def photos(self, split: Split) -> list[DatasetImage]:
        """Returns the photographs of the explore or the test split."""
        return self._of("photo", split)

    def cutouts(self, split: Split) -> list[DatasetImage]:
        """Returns the cut-outs (objects on a transparent background) of the explore or the test split."""
        return self._of("cutout", split)

    def textures(self, split: Split) -> list[DatasetImage]:
        """Returns the images of textures (surfaces without objects) of the explore or the test split."""
        return self._of("texture", split)

    def _of(self, kind: ImageKind, split: Split) -> list[DatasetImage]:
        return [item for item in self.items if item.kind == kind and item.split == split]


def _items(
    sources: Sequence[ImageSource | SkipReason], listing: dict[str, Any], known: Mapping[str, IndexEntry]
) -> tuple[DatasetImage, ...]:
    """Returns the images of a cached listing. Raises ValueError, LookupError or TypeError if the listing is invalid."""

    def item(position: int, digest: str, split: Split) -> DatasetImage:
        source = sources[position]
        if isinstance(source, SkipReason) or split not in get_args(Split):
            raise ValueError(f"image {position} cannot be in the split {split}")
        entry = known.get(source.name) if known else None
        return DatasetImage(
            digest=digest,
            source=source,
            split=split,
            kind=entry.kind if entry else "photo",
            caption=entry.caption if entry else "",
            category=entry.category if entry else "",
        )

    return tuple(item(*image) for image in listing["images"])


def _compute(collection: ImageCollection, sources: Sequence[ImageSource | SkipReason], stamp: str) -> dict[str, Any]:
    images, skipped = scan(sources)
    if not images:
        reasons = f" (skipped: {describe(skipped)})" if skipped else ""
        raise UsageError(
            f"{collection.root} holds no usable image{reasons}; expected {collection.expected}; give another one"
        )
    halves = assign_splits({image.digest: image.fingerprint for image in images.values()})
    entries = [[position, image.digest, halves[image.digest]] for position, image in images.items()]
    return {"stamp": [_FORMAT, stamp], "skipped": skipped, "images": entries}


def _write(path: Path, document: dict[str, Any]) -> None:
    """Replaces the file by the document as JSON, or does nothing if it cannot be written."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=".split-")
        try:
            with os.fdopen(descriptor, "w") as file:
                file.write(json.dumps(document, separators=(",", ":")))
            os.replace(temporary, path)
        finally:
            Path(temporary).unlink(missing_ok=True)
    except OSError:
        return
