"""Files below one root, on a local disk or an object store. Writing is atomic: no incomplete file is ever visible."""

import copy
import os
import shutil
import stat
import tempfile
import urllib.parse
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import fs

from openmaia.core.documents import parse_json
from openmaia.core.errors import StoreError, UsageError
from openmaia.core.paths import user_path

_UMASK = os.umask(0o077)
"""The process's mask of permissions, which can only be read by setting another one."""
os.umask(_UMASK)

_IN_MEMORY = 16 * 2**20
"""Maximum size in bytes of a file that is buffered in memory until it is uploaded to an object store. A larger file is
buffered on the local disk."""


_GOOGLE = "retry_limit_seconds=20"
_OPTIONS = {"s3": "allow_delayed_open=true", "gs": _GOOGLE, "gcs": _GOOGLE}
"""Options by scheme of URL. S3: a small object is written with one request instead of three. Google: how long a request
is tried again where the store cannot be reached; otherwise it is a quarter of an hour."""


def safe(name: str) -> str:
    """Encodes any name as one path component. Special characters and leading dots are percent-encoded."""
    quoted = urllib.parse.quote(name, safe=" ,=+@")
    return "%2E" + quoted[1:] if quoted.startswith(".") else quoted


def unsafe(component: str) -> str:
    """Decodes a name that `safe` encoded."""
    return urllib.parse.unquote(component)


def joined(root: str, name: str) -> str:
    """Returns the path, or the URL, of a name below a root. In a URL, special characters are percent-encoded."""
    address, options = _split(root)
    below = urllib.parse.quote(name, safe="/,=+@") if _is_encoded(root) else name
    return f"{address.rstrip('/')}/{below}{options}"


def _split(root: str) -> tuple[str, str]:
    """Returns the address in a URL and its options, such as "?endpoint_override=storage.example.org"."""
    address, mark, options = root.partition("?") if _is_encoded(root) else (root, "", "")
    return address, mark + options


def _is_encoded(root: str) -> bool:
    return "://" in root and not root.startswith("fsspec+")


def _with_options(url: str) -> str:
    option = _OPTIONS.get(url.partition("://")[0], "")
    if not option or option.partition("=")[0] in _split(url)[1]:
        return url
    return f"{url}{'&' if '?' in url else '?'}{option}"


@contextmanager
def naming(path: str) -> Generator[None]:
    """Context manager that puts the path of a file before the message of a StoreError raised in its block."""
    try:
        yield
    except StoreError as error:
        if error.message.startswith(path):
            raise
        raise StoreError(f"{path}: {error.message}", detail=error.detail) from error


class Files:
    """Reads and writes files by their names relative to a root: a local path, or a URL that pyarrow reads, such as
    s3://bucket/runs. Raises UsageError if no file system is known for the URL."""

    def __init__(self, root: str):
        self.root = root
        self._within: str | None = None
        if "://" in root:
            try:
                self._fs, self._base = fs.FileSystem.from_uri(_with_options(root))
            except (OSError, pa.ArrowException) as error:
                reason = str(error).partition("\n")[0]  # without Java, the message for hdfs:// has a hundred lines
                raise UsageError(
                    f"{root} cannot be used for files ({reason}); give a folder or an s3:// URL"
                ) from error
        else:
            self._fs, self._base = fs.LocalFileSystem(), str(user_path(root).absolute())

    @property
    def name(self) -> str:
        """The name of the root folder."""
        return self._base.rstrip("/").rpartition("/")[2]

    @property
    def local(self) -> Path | None:
        """The root as a path, or None on an object store."""
        return Path(self._base) if isinstance(self._fs, fs.LocalFileSystem) else None

    def path(self, name: str) -> str:
        """Returns the full path of a file (of the root for ""), for messages and for other programs."""
        return f"{self._base}/{name}" if name else self._base

    def confined(self) -> "Files":
        """Returns a `Files` object whose methods raise StoreError for a file outside of this root.

        A link within a run directory, which somebody else may have made, could lead to any file of this user. The root
        itself may be a link.
        """
        moved = self._moved(self.root, self._base)
        moved._within = None if self.local is None else os.path.realpath(self._base)
        return moved

    def inside(self, name: str) -> "Files":
        """Returns a `Files` object whose root is a folder below this root, which need not exist."""
        return self._moved(joined(self.root, name), self.path(name))

    def above(self, levels: int) -> "Files":
        """Returns a `Files` object whose root is an ancestor of this root; 1 is the parent."""
        address, options = _split(self.root)
        folder, *names = address.rstrip("/").rsplit("/", levels)
        base = self._base.rsplit("/", levels)[0]
        moved = self._moved(folder + options if len(names) == levels else base, base)
        moved._within = None
        return moved if self._within is None else moved.confined()

    def _place(self, name: str) -> str:
        return self._below(self.path(name), self.path(name))

    def _target(self, name: str) -> str:
        path = self.path(name)
        # Only its folder is checked: a link itself is replaced, moved or deleted, and not followed.
        return self._below(path, os.path.dirname(path))

    def _below(self, path: str, followed: str) -> str:
        if self._within is None:
            return path
        real = os.path.realpath(followed)
        if real != self._within and not real.startswith(f"{self._within.rstrip('/')}/"):
            raise StoreError(
                f"{path} leads out of {self._within} by a link (to {real}), and is not used; put the files themselves there"
            )
        return path

    def _moved(self, root: str, base: str) -> "Files":
        moved = copy.copy(self)
        moved.root, moved._base = root, base
        return moved

    def lock_file(self, name: str) -> Path | None:
        """Returns the path of a local file to lock, which need not exist, or None on an object store.

        Raises StoreError for a link: opening the file to lock it would empty what the link leads to.
        """
        if self.local is None:
            return None
        path = Path(self._target(name))
        if path.is_symlink():
            raise StoreError(f"{path} is a link, and is not used; remove it")
        return path

    def create(self) -> None:
        """Creates the root. Raises UsageError if it cannot be written."""
        try:
            if self.local:
                self.local.mkdir(parents=True, exist_ok=True)
            self.write(".canary", b"openmaia")
            self.delete(".canary")
        except (OSError, StoreError) as error:
            reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
            raise UsageError(
                f"{self.root} cannot be written ({reason}); give another folder or change its permissions"
            ) from error

    def write(self, name: str, data: bytes) -> None:
        """Writes or replaces a whole file. Raises StoreError if it cannot be written."""
        with self.writing(name) as stream:
            stream.write(data)

    @contextmanager
    def writing(self, name: str) -> Generator[Any]:
        """Context manager that opens a binary stream. The file appears when the block ends without an error.

        Raises StoreError if it could not be written.
        """
        target = self._target(name)
        try:
            if self.local is None:
                # A stream of pyarrow publishes the object even if the block fails, so that it is opened at the end.
                with tempfile.SpooledTemporaryFile(_IN_MEMORY) as collected:
                    yield collected
                    collected.seek(0)
                    with self._fs.open_output_stream(target) as stream:
                        shutil.copyfileobj(collected, stream)
                return
            Path(target).parent.mkdir(parents=True, exist_ok=True)
            descriptor, temporary = tempfile.mkstemp(dir=Path(target).parent, prefix=".writing-")
            try:
                with os.fdopen(descriptor, "wb") as stream:
                    yield stream
                    stream.flush()
                    os.fchmod(stream.fileno(), 0o666 & ~_UMASK)  # a temporary file is readable by its owner alone
                    os.fsync(stream.fileno())
                os.replace(temporary, target)
            except BaseException:
                Path(temporary).unlink(missing_ok=True)
                raise
        except (OSError, pa.ArrowException) as error:
            raise StoreError(f"{target} could not be written: {error}") from error

    def read(self, name: str) -> bytes | None:
        """Returns the content of a file, or None if it does not exist. Raises StoreError if it cannot be read."""
        try:
            with self._fs.open_input_stream(self._place(name)) as stream:
                return stream.read()
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (OSError, pa.ArrowException) as error:
            raise StoreError(f"{self.path(name)} could not be read: {error}") from error

    def read_json(self, name: str, remedy: str = "remove it, and the command that wrote it writes it again") -> Any:
        """Returns the value in a JSON file, or None if the file does not exist.

        Raises StoreError, with `remedy` at the end of the message, if the file is damaged.
        """
        data = self.read(name)
        try:
            return None if data is None else parse_json(data)
        except ValueError as error:
            raise StoreError(f"{self.path(name)} is damaged ({error}); {remedy}") from error

    @contextmanager
    def _reading(self, path: str) -> Generator[None]:
        try:
            yield
        except (OSError, pa.ArrowException) as error:
            raise StoreError(f"{path} could not be read: {error}") from error

    def open(self, name: str) -> pa.NativeFile:
        """Opens a file for random access. Raises OSError if it cannot be opened, StoreError if a link leads out."""
        return self._fs.open_input_file(self._place(name))

    def mapped(self, name: str) -> pa.NativeFile:
        """Like `open`, but a local file is memory-mapped."""
        return self.open(name) if self.local is None else pa.memory_map(self._place(name))

    def names(self, folder: str) -> list[str]:
        """Returns the sorted names of all files below a folder, relative to the root, without hidden ones. Empty
        without the folder."""
        return list(self.sizes(folder))

    def sizes(self, folder: str) -> dict[str, int]:
        """Returns the sizes in bytes of the files of `names`, by name. Raises StoreError if a folder cannot be read."""
        with self._reading(self.path(folder)):
            if self._within is None:
                infos = self._fs.get_file_info(fs.FileSelector(self.path(folder), recursive=True, allow_not_found=True))
                sizes = {info.path: info.size or 0 for info in infos if info.type == fs.FileType.File}
            else:
                sizes = dict(_walk(self._place(folder)))
        start = len(self._base.rstrip("/")) + 1
        return {path[start:]: sizes[path] for path in sorted(sizes) if not path.rsplit("/", 1)[-1].startswith(".")}

    def folders(self, name: str) -> list[str]:
        """Returns the sorted names of the folders in a folder, which need not exist. Raises StoreError if it cannot be
        read."""
        with self._reading(self.path(name)):
            infos = self._fs.get_file_info(fs.FileSelector(self._place(name), allow_not_found=True))
        return sorted(info.base_name for info in infos if info.type == fs.FileType.Directory)

    def exists(self, name: str) -> bool:
        """Returns whether there is a file. Raises StoreError if its folder cannot be read."""
        with self._reading(self.path(name)):
            return self._fs.get_file_info(self._place(name)).type == fs.FileType.File

    def move(self, name: str, to: str) -> None:
        """Moves a file. Raises StoreError if it cannot be moved."""
        try:
            if self.local is not None:
                Path(self._target(to)).parent.mkdir(parents=True, exist_ok=True)
            self._fs.move(self._target(name), self._target(to))
        except (OSError, pa.ArrowException) as error:
            raise StoreError(f"{self.path(name)} could not be moved to {self.path(to)}: {error}") from error

    def delete(self, name: str) -> None:
        """Deletes a file if it exists. Raises StoreError if it cannot be deleted."""
        try:
            self._fs.delete_file(self._target(name))
        except FileNotFoundError:
            return
        except (OSError, pa.ArrowException) as error:
            raise StoreError(f"{self.path(name)} could not be deleted: {error}") from error

    def delete_folder(self, name: str) -> None:
        """Deletes a folder, if it exists, with all in it. Raises StoreError if it cannot be deleted."""
        try:
            self._fs.delete_dir(self._place(name))
        except (FileNotFoundError, NotADirectoryError):
            return
        except (OSError, pa.ArrowException) as error:
            raise StoreError(f"{self.path(name)} could not be deleted: {error}") from error


def _walk(folder: str) -> Iterator[tuple[str, int]]:
    """Yields path and size of each file below a folder. Raises StoreError for a linked folder.

    pyarrow would follow the link, also to a folder above, without end.
    """

    def passed(error: OSError) -> None:
        if not isinstance(error, FileNotFoundError):  # another process has deleted it
            raise error

    for place, folders, names in os.walk(folder, onerror=passed):
        for name in folders:
            if os.path.islink(path := f"{place}/{name}"):
                raise StoreError(f"{path} is a link to a folder, and is not used; put the folder itself there")
        for name in names:
            with suppress(FileNotFoundError):
                status = os.stat(path := f"{place}/{name}")
                if stat.S_ISREG(status.st_mode):
                    yield path, status.st_size
