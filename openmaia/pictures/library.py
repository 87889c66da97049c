"""A folder of pictures, joined with what is known about them and with the half that each belongs to."""

import hashlib
import json
import os
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from PIL import Image

from openmaia.pictures import folder, index, split
from openmaia.pictures.index import IndexEntry, Kind
from openmaia.pictures.reading import read
from openmaia.pictures.split import Half

_FORMAT = "openmaia-split-1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """caption, category: empty in a folder without index. digest: see reading.Decoded."""

    digest: str
    path: Path
    kind: Kind
    caption: str
    category: str
    half: Half

    def load(self) -> Image.Image:
        """Upright RGB, or RGBA where the file has transparency. Raises ValueError where it is another one meanwhile."""
        decoded = read(self.path)
        if decoded.digest != self.digest:
            raise ValueError(f"{self.path} is another picture than when the folder was listed")
        return decoded.image


@dataclass(frozen=True, slots=True, kw_only=True)
class Library:
    """items: in the order of their paths. skipped: number of files left out, by reason."""

    root: Path
    items: tuple[Item, ...]
    skipped: dict[str, int]

    @classmethod
    def open(cls, root: Path) -> "Library":
        """Decodes every picture the first time and whenever a file changed; otherwise none."""
        files, _ = folder.listing(root)
        stamp = hashlib.sha256("\n".join(folder.stamp(root, files)).encode("utf-8", "surrogateescape")).hexdigest()
        document = _saved(root, stamp) or _compute(root, stamp)
        known = index.load(root)
        items = [_item(root, path, digest, half, known) for path, digest, half in document["files"]]
        return cls(root=root, items=tuple(items), skipped=document["skipped"])

    def photos(self, half: Half) -> list[Item]:
        return self._of("photo", half)

    def cutouts(self, half: Half) -> list[Item]:
        return self._of("cutout", half)

    def textures(self, half: Half) -> list[Item]:
        return self._of("texture", half)

    def _of(self, kind: Kind, half: Half) -> list[Item]:
        return [item for item in self.items if item.kind == kind and item.half == half]


def _item(root: Path, path: str, digest: str, half: Half, known: dict[str, IndexEntry]) -> Item:
    entry = known.get(path)
    return Item(
        digest=digest, path=root / path, half=half, kind=entry.kind if entry else "photo",
        caption=entry.caption if entry else "", category=entry.category if entry else "",
    )  # fmt: skip


def _saved(root: Path, stamp: str) -> dict[str, Any] | None:
    """None where it is missing, stale or damaged: it is only a cache of what the files say."""
    try:
        document = json.loads((root / split.FILE).read_bytes())
        if document["format"] != _FORMAT or document["stamp"] != stamp:
            return None
        whole = all(
            isinstance(path, str) and isinstance(digest, str) and half in ("explore", "test")
            and ".." not in Path(path).parts and not Path(path).is_absolute()
            for path, digest, half in document["files"]
        )  # fmt: skip
        return document if whole and isinstance(document["skipped"], dict) else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _compute(root: Path, stamp: str) -> dict[str, Any]:
    found = folder.scan(root)
    halves = split.split(found.files)
    document: dict[str, Any] = {
        "format": _FORMAT,
        "stamp": stamp,
        "skipped": {str(reason): count for reason, count in sorted(found.skipped.items())},
        "files": [[file.path.relative_to(root).as_posix(), file.digest, halves[file.digest]] for file in found.files],
    }
    # Into a folder that we may not write to it is not saved, but computed each time, with the same outcome.
    with suppress(OSError):
        _write(root / split.FILE, json.dumps(document, indent=0))
    return document


def _write(path: Path, text: str) -> None:
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=".split-")
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(text)
        os.replace(temporary, path)
    finally:
        Path(temporary).unlink(missing_ok=True)
