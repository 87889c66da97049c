"""Finds and reads the images in a folder and its subfolders."""

import hashlib
import os
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from openmaia.core.errors import UsageError
from openmaia.datasets import metadata
from openmaia.datasets.index import INDEX_FILE
from openmaia.datasets.reading import (
    MAX_BYTES,
    SkipReason,
    UnusableImage,
    UnusableSource,
    check_bytes,
    has_image_suffix,
)  # fmt: skip

_METADATA_FILES = frozenset({INDEX_FILE, "split.json"})
"""Files that datasets keep beside their images. They are not counted as skipped images."""

SAVED = ("dataset_dict.json", "state.json")
"""Files in a folder that Hugging Face's `save_to_disk` wrote, of several splits or of one."""


@dataclass(frozen=True, slots=True)
class FileSource:
    """A file that should hold an image. This is checked when it is read."""

    path: Path

    @property
    def name(self) -> str:
        """The path, for messages."""
        return str(self.path)

    def read(self) -> bytes:
        """Returns the content of the file, which is neither empty nor larger than `reading.MAX_BYTES`.

        Raises:
            UnusableImage: The file cannot be read, is empty or too large, or does not look like an image.
        """
        try:
            status = self.path.stat()
            if not stat.S_ISREG(status.st_mode):
                raise UnusableImage(f"{self.name} is not a regular file", reason=SkipReason.NOT_AN_IMAGE)
            check_bytes(self.name, 1 if status.st_size else 0)
            if not has_image_suffix(self.name) and not self._begins_like_an_image():
                raise UnusableImage(f"{self.name} is not an image", reason=SkipReason.NOT_AN_IMAGE)
            check_bytes(self.name, status.st_size)
            # Non-blocking, because the file may have been replaced by a pipe since its type was checked.
            descriptor = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK)
            with open(descriptor, "rb") as file:
                return file.read(MAX_BYTES)
        except OSError as error:
            raise UnusableImage(f"{self.name} cannot be read: {error}", reason=SkipReason.UNREADABLE) from error

    def _begins_like_an_image(self) -> bool:
        # Other files may be large, and are not read as a whole.
        with self.path.open("rb") as file:
            head = file.read(16)
        return head.startswith((b"\x89PNG", b"\xff\xd8\xff", b"GIF8", b"BM", b"II*\0", b"MM\0*")) or (
            head[:4] == b"RIFF" and head[8:12] == b"WEBP"
        )


@dataclass(frozen=True, slots=True)
class ImageFolder:
    """The images in a folder and its subfolders."""

    folder: Path

    @property
    def root(self) -> str:
        """The path, for messages."""
        return str(self.folder)

    @property
    def expected(self) -> str:
        """See `ImageCollection.expected`."""
        if any((self.folder / name).is_file() for name in SAVED):
            return f"image files; Dataset.save_to_disk wrote this folder: set pictures.kind=hf pictures.dataset={self.folder}"
        return "a folder with PNG, JPEG, WebP, GIF, BMP or TIFF files, flat or in subfolders"

    def stamp(self) -> str:
        """Returns a digest of the paths, sizes and modification times of the files in `sources`. No file is opened.

        Raises:
            UsageError: The folder does not exist, or it or a subfolder cannot be read.
        """
        files, _ = self._listing()
        lines = "\n".join(_stamps(self.folder, files))
        return hashlib.sha256(lines.encode("utf-8", "surrogateescape")).hexdigest()

    def sources(self) -> Iterable[FileSource | UnusableSource]:
        """Returns the files, sorted by path, then those that cannot be used.

        The latter are links to targets outside the folder and images that a metadata file lists and that do not exist. Links
        of a hub's cache to the `blobs` of the same repository are files of the folder. Hidden files and metadata are left
        out. Whether a file is an image is checked when it is read.

        Raises:
            UsageError: The folder does not exist, or it or a subfolder cannot be read.
        """
        files, outside = self._listing()
        names = {os.fspath(path): path for path in files}
        missing = metadata.find_missing({*names, *map(os.fspath, outside)}, lambda path: _content(names.get(path)))
        return [
            *(FileSource(path) for path in files if path.name not in metadata.METADATA_FILES),
            *(UnusableSource(str(path), SkipReason.OUTSIDE) for path in outside),
            *(UnusableSource(path, SkipReason.MISSING) for path in missing),
        ]

    def _listing(self) -> tuple[list[Path], list[Path]]:
        """Returns the files and the links to targets outside the folder, both sorted by path. Raises UsageError like `sources`."""
        if not self.folder.is_dir():
            problem = "is a file" if self.folder.exists() else "does not exist"
            raise UsageError(f"{self.folder} {problem}; expected a folder of images; name an existing folder")
        roots = _roots(self.folder.resolve())
        files: list[Path] = []
        outside: list[Path] = []
        for path, is_link in _walk(self.folder):
            if is_link and not _is_inside(path, roots):
                outside.append(path)
            elif not path.is_dir():
                files.append(path)
        return sorted(files, key=os.fsencode), sorted(outside, key=os.fsencode)


def _content(path: Path | None) -> bytes | None:
    try:
        return path.read_bytes() if path and path.is_file() and path.stat().st_size <= MAX_BYTES else None
    except OSError:
        return None


def _roots(folder: Path) -> list[Path]:
    # The cache of a hub keeps files in REPOSITORY/blobs, and names them by links in REPOSITORY/snapshots/REVISION.
    revisions = (each for each in (folder, *folder.parents) if each.parent.name == "snapshots")
    return [folder, *(revision.parents[1] / "blobs" for revision in revisions)]


def _is_inside(link: Path, roots: Iterable[Path]) -> bool:
    try:
        target = link.resolve()
    except (OSError, RuntimeError):  # a link that leads to itself, which counts as a file that cannot be read
        return True
    return any(target.is_relative_to(root) for root in roots)


def _stamps(root: Path, files: list[Path]) -> Iterator[str]:
    for path in files:
        name = path.relative_to(root).as_posix()
        try:
            status = path.stat()
        except OSError:
            yield name  # a dangling link is listed, too, as an image that cannot be read
            continue
        yield f"{name}\t{status.st_size}\t{status.st_mtime_ns}\t{stat.S_IFMT(status.st_mode)}"


def _walk(root: Path) -> Iterator[tuple[Path, bool]]:
    """Yields all files and all links to folders, each with a flag that says whether it is a link. Linked folders are not entered."""

    # Without the images of a folder that cannot be read, the dataset would be another one.
    def fail(error: OSError) -> None:
        raise UsageError(
            f"{error.filename} cannot be read ({error.strerror}); change its permissions or name another folder"
        ) from error

    for folder, folders, names in os.walk(root, onerror=fail, followlinks=False):
        parent = Path(folder)
        folders[:] = [name for name in folders if not name.startswith(".")]
        if {"blobs", "snapshots"} <= set(folders):  # a hub's cache, whose snapshots name the blobs by links
            folders.remove("blobs")
        for name in names + folders:
            path = parent / name
            is_link = path.is_symlink()
            is_metadata = parent == root and name in _METADATA_FILES
            if (name in folders and not is_link) or name.startswith(".") or is_metadata:
                continue
            yield path, is_link
