"""Which pictures a folder tree holds, in whatever layout."""

import hashlib
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from openmaia.errors import UsageError
from openmaia.pictures import scanning
from openmaia.pictures.index import FILE as INDEX_FILE
from openmaia.pictures.places import File
from openmaia.pictures.reading import Skipped
from openmaia.pictures.scanning import Scan

_LISTS = frozenset({INDEX_FILE, "split.json"})
"""That datasets keep beside their pictures: nothing to report as a picture that cannot be read."""

WANTED = "a folder with PNG, JPEG, WebP, GIF, BMP or TIFF files, flat or in subfolders,"


@dataclass(frozen=True, slots=True)
class Folder:
    root: Path

    def stamp(self) -> str:
        """Changes when a file does; no file is opened for it."""
        files, _ = listing(self.root)
        lines = "\n".join(_stamps(self.root, files))
        return hashlib.sha256(lines.encode("utf-8", "surrogateescape")).hexdigest()

    def scan(self) -> Scan:
        """Decodes every picture below root once. One bad file is counted; UsageError where no picture is left."""
        files, outside = listing(self.root)
        found = [*map(File, files), *[Skipped.OUTSIDE] * outside]
        return scanning.scan(found, str(self.root), WANTED)

    def pack(self, source: Any) -> str:
        """A file's place, as JSON can hold it."""
        return source.path.relative_to(self.root).as_posix()

    def unpack(self, place: Any) -> File:
        """Raises ValueError for what leads out of the folder, TypeError for what is no place at all."""
        path = Path(place)
        if ".." in path.parts or path.is_absolute():
            raise ValueError(f"{place} lies outside {self.root}")
        return File(self.root / path)


def listing(root: Path) -> tuple[list[Path], int]:
    """(files below root sorted by path, number of links that leave it). Linked folders are not entered."""
    if not root.is_dir():
        what = "is a file" if root.exists() else "does not exist"
        raise UsageError(f"{root} {what}; a folder of pictures was expected; name an existing folder")
    real = root.resolve()
    files: list[Path] = []
    outside = 0
    for path, is_link in _walk(root):
        if is_link and not path.resolve().is_relative_to(real):
            outside += 1
        elif not path.is_dir():
            files.append(path)
    return sorted(files, key=os.fsencode), outside


def _stamps(root: Path, files: list[Path]) -> Iterator[str]:
    """Path, size and time of last change, one line a file."""
    for path in files:
        try:
            status = path.stat()
        except OSError:
            continue
        if stat.S_ISREG(status.st_mode):
            yield f"{path.relative_to(root).as_posix()}\t{status.st_size}\t{status.st_mtime_ns}"


def _walk(root: Path) -> Iterator[tuple[Path, bool]]:
    """(path, is it a link) of files, and of folders only where linked, without hidden ones, as our own
    listing is, and without lists."""
    for folder, folders, names in os.walk(root, followlinks=False):
        here = Path(folder)
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in names + folders:
            path = here / name
            is_link = path.is_symlink()
            is_list = here == root and name in _LISTS
            if (name in folders and not is_link) or name.startswith(".") or is_list:
                continue
            yield path, is_link
