"""Pictures of a folder or of archives, joined with what is known about them and with the half that each belongs to."""

import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from PIL import Image

from openmaia.pictures import index, split
from openmaia.pictures.folder import Folder
from openmaia.pictures.index import IndexEntry, Kind
from openmaia.pictures.places import Source
from openmaia.pictures.reading import read
from openmaia.pictures.scanning import Scan
from openmaia.pictures.split import Half

_FORMAT = "openmaia-split-1"


class Collection(Protocol):
    """Where pictures come from."""

    def stamp(self) -> str:
        """Changes when the pictures may have."""
        ...

    def scan(self) -> Scan: ...

    def pack(self, source: Any) -> Any:
        """A source of this collection, as JSON can hold it."""
        ...

    def unpack(self, place: Any) -> Source:
        """Raises ValueError, LookupError or TypeError for what is no place in this collection."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """caption, category: empty without an index. digest: see reading.Decoded."""

    digest: str
    source: Source
    kind: Kind
    caption: str
    category: str
    half: Half

    def load(self) -> Image.Image:
        """Upright RGB, or RGBA where there is transparency. Raises ValueError where it is another picture meanwhile."""
        decoded = read(self.source.read(), self.source.name)
        if decoded.digest != self.digest:
            raise ValueError(f"{self.source.name} is another picture than when it was listed")
        return decoded.image


@dataclass(frozen=True, slots=True, kw_only=True)
class Library:
    """root: for people. items: in the order of their sources. skipped: number of pictures left out, by reason."""

    root: str
    items: tuple[Item, ...]
    skipped: dict[str, int]

    @classmethod
    def open(cls, root: Path) -> "Library":
        """Decodes every picture the first time and whenever a file changed; otherwise none."""
        return cls.of(Folder(root), str(root), [root / split.FILE], index.load(root))

    @classmethod
    def of(
        cls, collection: Collection, root: str, kept: Sequence[Path], known: Mapping[str, IndexEntry] | None = None
    ) -> "Library":
        """kept: where the listing may be kept; it goes to the first that can be written. known: by packed source."""
        stamp = collection.stamp()
        found = next((saved for path in kept if (saved := _saved(path, stamp, collection, known or {}))), None)
        if found is None:
            document = _compute(collection, stamp)
            # Where none can be written the listing is computed each time, with the same outcome.
            next((path for path in kept if _written(path, document)), None)
            found = _items(document, collection, known or {}), document["skipped"]
        return cls(root=root, items=found[0], skipped=found[1])

    @property
    def left_out(self) -> str:
        """The reasons, each with its number of pictures; empty where every file was used."""
        return ", ".join(f"{count} {reason}" for reason, count in sorted(self.skipped.items()))

    def photos(self, half: Half) -> list[Item]:
        return self._of("photo", half)

    def cutouts(self, half: Half) -> list[Item]:
        return self._of("cutout", half)

    def textures(self, half: Half) -> list[Item]:
        return self._of("texture", half)

    def _of(self, kind: Kind, half: Half) -> list[Item]:
        return [item for item in self.items if item.kind == kind and item.half == half]


Known = Mapping[str, IndexEntry]


def _items(document: dict[str, Any], collection: Collection, known: Known) -> tuple[Item, ...]:
    """Raises ValueError, LookupError or TypeError for a listing that names what cannot be."""

    def item(place: Any, digest: str, half: Half) -> Item:
        if not isinstance(digest, str) or half not in ("explore", "test"):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ValueError(f"{place} has the digest {digest} and the half {half}")
        entry = known.get(place) if known else None
        return Item(
            digest=digest, source=collection.unpack(place), half=half, kind=entry.kind if entry else "photo",
            caption=entry.caption if entry else "", category=entry.category if entry else "",
        )  # fmt: skip

    return tuple(item(place, digest, half) for place, digest, half in document["files"])


def _saved(
    path: Path, stamp: str, collection: Collection, known: Known
) -> tuple[tuple[Item, ...], dict[str, int]] | None:
    """None where it is missing, stale or damaged: it is only a cache of what the pictures say."""
    try:
        document = json.loads(path.read_bytes())
        if document["format"] != _FORMAT or document["stamp"] != stamp or not isinstance(document["skipped"], dict):
            return None
        return _items(document, collection, known), document["skipped"]
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return None


def _compute(collection: Collection, stamp: str) -> dict[str, Any]:
    found = collection.scan()
    halves = split.split(found.files)
    return {
        "format": _FORMAT,
        "stamp": stamp,
        "skipped": {str(reason): count for reason, count in sorted(found.skipped.items())},
        "files": [[collection.pack(file.source), file.digest, halves[file.digest]] for file in found.files],
    }


def _written(path: Path, document: dict[str, Any]) -> bool:
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
        return False
    return True
