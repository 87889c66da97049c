"""Which pictures a folder tree holds, in whatever layout, and what was left out of it and why."""

import os
import stat
import warnings
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from openmaia.errors import UsageError
from openmaia.pictures.index import FILE as INDEX_FILE
from openmaia.pictures.reading import Skipped, Unusable, read
from openmaia.pictures.split import FILE as SPLIT_FILE
from openmaia.pictures.split import PictureFile, fingerprint

_OWN_FILES = frozenset({INDEX_FILE, SPLIT_FILE})


@dataclass(frozen=True, slots=True, kw_only=True)
class Scan:
    """files: in the order of their paths. skipped: number of files by reason, only reasons that occurred."""

    files: tuple[PictureFile, ...]
    skipped: dict[Skipped, int]

    def describe(self) -> str:
        left_out = ", ".join(f"{count} {reason}" for reason, count in sorted(self.skipped.items()))
        return f"{len(self.files)} pictures" + (f"; skipped: {left_out}" if left_out else "")


def scan(root: Path) -> Scan:
    """Decodes every picture below root once. One bad file is counted; UsageError where no picture is left."""
    candidates, outside = listing(root)
    with warnings.catch_warnings():
        # Pillow warns of large pictures and odd metadata; here, because the filter is no matter of one thread.
        warnings.simplefilter("ignore")
        with ThreadPoolExecutor(min(16, os.cpu_count() or 1)) as pool:  # decoding and hashing release the GIL
            results = list(pool.map(_examine, candidates))
    skipped = Counter(result for result in results if isinstance(result, Skipped))
    if outside:
        skipped[Skipped.OUTSIDE] = outside
    found = Scan(files=tuple(result for result in results if isinstance(result, PictureFile)), skipped=dict(skipped))
    if not found.files:
        raise UsageError(
            f"{root} holds no usable picture ({found.describe()}); a folder with PNG, JPEG, WebP, GIF, BMP or TIFF "
            "files was expected, flat or in subfolders; name another folder"
        )
    return found


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


def stamp(root: Path, files: list[Path]) -> list[str]:
    """What changes when a file does, without opening any: path, size and time of last change, one line a file."""
    lines: list[str] = []
    for path in files:
        try:
            status = path.stat()
        except OSError:
            continue
        if stat.S_ISREG(status.st_mode):
            lines.append(f"{path.relative_to(root).as_posix()}\t{status.st_size}\t{status.st_mtime_ns}")
    return lines


def _walk(root: Path) -> Iterator[tuple[Path, bool]]:
    """(path, is it a link) of files, and of folders only where linked, without hidden ones and our own files."""
    for folder, folders, names in os.walk(root, followlinks=False):
        here = Path(folder)
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in names + folders:
            path = here / name
            is_link = path.is_symlink()
            own = here == root and name in _OWN_FILES
            if (name in folders and not is_link) or name.startswith(".") or own:
                continue
            yield path, is_link


def _examine(path: Path) -> PictureFile | Skipped:
    try:
        decoded = read(path)
    except Unusable as error:
        return error.reason
    return PictureFile(path=path, digest=decoded.digest, fingerprint=fingerprint(decoded.image))
