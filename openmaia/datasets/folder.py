"""Finds and reads the images in a folder and its subfolders."""

import hashlib
import os
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from openmaia.core.errors import UsageError
from openmaia.datasets.index import FILE as INDEX_FILE
from openmaia.datasets.reading import MAX_BYTES, SkipReason, UnusableImage, check_bytes, has_image_suffix

_METADATA_FILES = frozenset({INDEX_FILE, "split.json"})
"""Files without images that datasets keep beside their images. They are not counted as skipped images."""


@dataclass(frozen=True, slots=True)
class FileSource:
    """A file that should hold an image. This is checked when it is read."""

    path: Path

    @property
    def name(self) -> str:
        """The path of the file, as messages show it."""
        return str(self.path)

    def read(self) -> bytes:
        """Returns the content of the file, which is neither empty nor too large (see `reading.MAX_BYTES`).

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
        """Returns whether the first bytes are those of an image. The check avoids reading other, large files."""
        with self.path.open("rb") as file:
            head = file.read(16)
        return head.startswith((b"\x89PNG", b"\xff\xd8\xff", b"GIF8", b"BM", b"II*\0", b"MM\0*")) or (
            head[:4] == b"RIFF" and head[8:12] == b"WEBP"
        )


@dataclass(frozen=True, slots=True)
class ImageFolder:
    """A collection of the images in a folder and its subfolders."""

    folder: Path

    @property
    def root(self) -> str:
        """The path of the image folder, as messages show it."""
        return str(self.folder)

    @property
    def expected(self) -> str:
        """What a usable folder contains, in words, for error messages."""
        return "a folder with PNG, JPEG, WebP, GIF, BMP or TIFF files, flat or in subfolders"

    def stamp(self) -> str:
        """Returns a digest of the paths, sizes and modification times of the files in `sources`. No file is opened.

        Raises:
            UsageError: The folder does not exist, or it or a subfolder cannot be read.
        """
        files, _ = self._listing()
        lines = "\n".join(_stamps(self.folder, files))
        return hashlib.sha256(lines.encode("utf-8", "surrogateescape")).hexdigest()

    def sources(self) -> Iterable[FileSource | SkipReason]:
        """Returns the files, sorted by path, then `SkipReason.OUTSIDE` for each link to a target outside the folder.

        Files that are not images are included, because the content is only checked by `FileSource.read`. Hidden files
        and metadata such as index.json are left out.

        Raises:
            UsageError: The folder does not exist, or it or a subfolder cannot be read.
        """
        files, outside = self._listing()
        return [*map(FileSource, files), *[SkipReason.OUTSIDE] * outside]

    def _listing(self) -> tuple[list[Path], int]:
        """Returns the files sorted by path and the number of links to targets outside the folder.

        Raises:
            UsageError: The folder does not exist, or it or a subfolder cannot be read.
        """
        if not self.folder.is_dir():
            problem = "is a file" if self.folder.exists() else "does not exist"
            raise UsageError(f"{self.folder} {problem}; expected a folder of images; name an existing folder")
        real = self.folder.resolve()
        files: list[Path] = []
        outside = 0
        for path, is_link in _walk(self.folder):
            if is_link and not _is_inside(path, real):
                outside += 1
            elif not path.is_dir():
                files.append(path)
        return sorted(files, key=os.fsencode), outside


def _is_inside(link: Path, folder: Path) -> bool:
    try:
        return link.resolve().is_relative_to(folder)
    except (OSError, RuntimeError):  # a link that leads to itself, which counts as a file that cannot be read
        return True


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
    """Yields the paths of all files and of all links to folders, each with a flag that says whether it is a link.

    Linked folders are not entered. Hidden files, hidden folders and metadata files are left out.

    Raises:
        UsageError: A folder cannot be read. Without its images the dataset would be another one.
    """

    def fail(error: OSError) -> None:
        raise UsageError(
            f"{error.filename} cannot be read ({error.strerror}); change its permissions or name another folder"
        ) from error

    for folder, folders, names in os.walk(root, onerror=fail, followlinks=False):
        parent = Path(folder)
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in names + folders:
            path = parent / name
            is_link = path.is_symlink()
            is_metadata = parent == root and name in _METADATA_FILES
            if (name in folders and not is_link) or name.startswith(".") or is_metadata:
                continue
            yield path, is_link
