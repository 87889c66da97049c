"""Datasets of images with the kind, caption, category and split of each image."""

import json
import os
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, get_args

from PIL import Image

from openmaia.core.documents import parse_json
from openmaia.core.errors import UsageError
from openmaia.core.services import Split
from openmaia.datasets import index
from openmaia.datasets.depth import Samples
from openmaia.datasets.folder import ImageFolder
from openmaia.datasets.index import ImageKind, IndexEntry
from openmaia.datasets.reading import SkipReason, read
from openmaia.datasets.scanning import ImageSource, describe, scan
from openmaia.datasets.split import assign_splits

LISTING = ".openmaia-split.json"
"""Hidden file in which the digests and splits of a folder's images are cached. No dataset uses this name."""

_FORMAT = "openmaia-split-3"

_FEW = 10
"""Number of images of a split below which their number is said."""

_SMALLEST = 0.1
"""Share of the images that the smaller split must have."""

_HINTS = {
    SkipReason.OUTSIDE: "links out of a folder are not followed, because they may lead to any file: copy the files with "
    "cp -rL FOLDER COPY, or download them with --local-dir, and give that folder",
    SkipReason.BETWEEN: "frames or slices that resemble the next ones are divided into blocks, with a gap between them",
    SkipReason.PATH: "rows with paths of files are not followed: give the files as pictures.kind=folder, or store their "
    "content in the rows (Dataset.cast_column with datasets.Image, then Dataset.to_parquet)",
}
"""What a user should know about images that were skipped."""


class ImageCollection(Protocol):
    """A source of images, such as a folder."""

    @property
    def root(self) -> str:
        """Name for messages."""
        ...

    @property
    def expected(self) -> str:
        """What a usable collection must contain, as text for error messages."""
        ...

    def stamp(self) -> str:
        """Returns a value that changes whenever the images change, or an empty text if changes cannot be detected."""
        ...

    def sources(self) -> Iterable[ImageSource]:
        """Returns all images in a fixed order, including those that are known to be unusable."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetImage:
    """One image of a dataset. It holds no pixels; `load` reads them."""

    digest: str
    """See `reading.Decoded`."""
    source: ImageSource
    kind: ImageKind
    caption: str
    category: str
    split: Split
    scales: tuple[Samples, ...] = ()
    """Ranges of the dataset's samples of more than 8 bits; see `depth.find_scales`."""

    @property
    def recipe(self) -> str:
        """See `EncodedImage.recipe`."""
        return ""

    def load(self) -> Image.Image:
        """Returns an upright image, RGB, or RGBA if it has transparency.

        Raises:
            ValueError: The image was changed or removed after its dataset was opened.
        """
        decoded = read(self.source.read(), self.source.name, self.scales)
        if decoded.digest != self.digest:
            raise ValueError(f"{self.source.name} has changed since it was listed")
        return decoded.image


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageDataset:
    """Images that are divided into the explore and the test split."""

    root: str
    """Name of the collection, for messages."""
    items: tuple[DatasetImage, ...]
    """The usable images in the order of the collection."""
    skipped: dict[str, int]
    """Number of images that could not be used, by reason."""
    remarks: tuple[str, ...] = ()
    """What a user should know, one sentence each: which images were skipped, how values were scaled, and whether a split has
    few images."""

    @classmethod
    def open(cls, root: Path, *, is_divided: bool = True) -> "ImageDataset":
        """Opens a folder of images. Kinds, captions and categories come from its index.json if it has one.

        Raises:
            UsageError: The folder is missing or holds no usable image, or its images are all near-duplicates.
        """
        known = {str(root / path): entry for path, entry in index.load(root).items()}
        return cls.of(ImageFolder(root), root / LISTING, known, is_divided=is_divided)

    @classmethod
    def of(
        cls,
        collection: ImageCollection,
        path: Path | None,
        known: Mapping[str, IndexEntry] | None = None,
        *,
        is_divided: bool = True,
    ) -> "ImageDataset":
        """Opens a collection. All images are decoded to compute their digests and splits, unless these are cached.

        Args:
            collection: The collection.
            path: File in which digests and splits are cached until the collection changes. If it is None or cannot be
                written, they are computed each time.
            known: Kind, caption and category by `ImageSource.name`. Other images are photographs without a caption.
            is_divided: Whether the splits are used. If not, one of them may be empty.

        Raises:
            UsageError: The collection cannot be read or holds no usable image. Or nearly all of its images are
                near-duplicates of one another, so that they cannot be divided.
        """
        stamp, sources = collection.stamp(), list(collection.sources())
        try:
            listing: dict[str, Any] = parse_json(path.read_bytes() if path else b"{}")
            if listing["stamp"] != [_FORMAT, stamp]:
                raise ValueError("the listing is outdated")
            items = _items(sources, listing, known or {})
        except (OSError, ValueError, LookupError, TypeError, RecursionError):
            # A listing that is missing, outdated or damaged is computed again: it is only a cache.
            listing = _compute(collection, sources, stamp)
            if path:
                keep(path, json.dumps(listing, separators=(",", ":")).encode())
            items = _items(sources, listing, known or {})
        remarks = [*listing["remarks"], *(_division(collection.root, items) if is_divided else ())]
        return cls(root=collection.root, items=items, skipped=listing["skipped"], remarks=tuple(remarks))

    @property
    def left_out(self) -> str:
        """The number of skipped images by reason, such as "2 corrupt, 1 empty". Empty if none was skipped."""
        return describe(self.skipped)

    def photos(self, split: Split) -> list[DatasetImage]:
        """Returns the photographs of a split."""
        return self._of("photo", split)

    def cutouts(self, split: Split) -> list[DatasetImage]:
        """Returns the cut-outs of a split."""
        return self._of("cutout", split)

    def textures(self, split: Split) -> list[DatasetImage]:
        """Returns the textures of a split."""
        return self._of("texture", split)

    def _of(self, kind: ImageKind, split: Split) -> list[DatasetImage]:
        return [item for item in self.items if item.kind == kind and item.split == split]


def _division(root: str, items: Sequence[DatasetImage]) -> list[str]:
    """Returns a sentence if a split has few images. Raises UsageError if it has nearly none, because of near-duplicates."""
    splits = {item.digest: item.split for item in items}
    explore = sum(split == "explore" for split in splits.values())
    test = len(splits) - explore
    numbers = f"{explore} for exemplars (explore split), {test} for tests (test split)"
    if len(items) > 1 and min(explore, test) < _SMALLEST * len(splits):
        raise UsageError(
            f"{root} holds {len(splits)} different images, and most of them are near-duplicates of one another (copies, or "
            f"frames that hardly change), which cannot be divided: {numbers}; leave near-duplicates out, or add other images"
        )
    if min(explore, test) >= _FEW:
        return []
    return [
        f"{root} has few images: {numbers}; exemplars show little of what excites a unit, and tests on photographs are weak "
        "or missing"
    ]


def _items(
    sources: Sequence[ImageSource], listing: dict[str, Any], known: Mapping[str, IndexEntry]
) -> tuple[DatasetImage, ...]:
    """Returns the images of a cached listing. Raises ValueError, LookupError or TypeError if the listing is invalid."""
    scales = tuple(Samples(*each) for each in listing["scales"])
    if not all(isinstance(remark, str) for remark in listing["remarks"]) or not isinstance(listing["skipped"], dict):
        raise ValueError("a remark is no text, or the skipped images are not counted")

    def item(position: int, digest: str, split: Split) -> DatasetImage:
        if split not in get_args(Split):
            raise ValueError(f"image {position} cannot be in the split {split}")
        source = sources[position]
        entry = known.get(source.name) if known else None
        return DatasetImage(
            digest=digest,
            source=source,
            split=split,
            kind=entry.kind if entry else "photo",
            caption=entry.caption if entry else "",
            category=entry.category if entry else "",
            scales=scales,
        )

    return tuple(item(*image) for image in listing["images"])


def _compute(collection: ImageCollection, sources: Sequence[ImageSource], stamp: str) -> dict[str, Any]:
    found = scan(sources)
    images, skipped = found.images, dict(found.skipped)
    hints = [hint for reason, hint in _HINTS.items() if reason in skipped]
    examples = [f"for example: {'; '.join(found.examples.values())}"] if found.examples else []
    if not images:
        reasons = f" (skipped: {describe(skipped)})" if skipped else ""
        raise UsageError(
            "; ".join(
                [
                    f"{collection.root} holds no usable image{reasons}",
                    f"expected {collection.expected}",
                    *(hints or ["give another one"]),
                    *examples,
                ]
            )
        )
    halves = assign_splits({image.digest: image.fingerprint for image in images.values()})
    if between := sum(image.digest not in halves for image in images.values()):
        skipped[SkipReason.BETWEEN.value] = between
        hints.append(_HINTS[SkipReason.BETWEEN])
    remarks = [f"skipped images of {collection.root}: {describe(skipped)}"] if skipped else []
    remarks = ["; ".join([*remarks, *hints, *examples])] if remarks else []
    remarks += [
        f"{collection.root} has images of more than 8 bits ({kind}): values of {low:g} to {high:g} are scaled to 0 to 255"
        for kind, low, high in found.scales
        if (low, high) not in ((0, 255), (0, 65535))
    ]
    if frames := sum(image.has_frames for image in images.values()):
        remarks.append(f"{collection.root} has {frames} files of several frames or pages: the first of each is used")
    return {
        "stamp": [_FORMAT, stamp],
        "skipped": skipped,
        "remarks": remarks,
        "scales": found.scales,
        "images": [[n, each.digest, halves[each.digest]] for n, each in images.items() if each.digest in halves],
    }


def keep(path: Path, data: bytes) -> None:
    """Replaces a file of a cache, or does nothing if it cannot be written."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=".kept-")
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
            os.replace(temporary, path)
        finally:
            Path(temporary).unlink(missing_ok=True)
    except OSError:
        return
