"""Files below one root, on a local disk or an object store, written so that a name holds a whole file or none."""

import json
import os
import tempfile
import urllib.parse
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import fs

from openmaia.errors import StoreError, UsageError


def safe(name: str) -> str:
    """Any name as one path component: what is not a plain character is percent-encoded, leading dots too."""
    quoted = urllib.parse.quote(name, safe=" ,=+@")
    return "%2E" + quoted[1:] if quoted.startswith(".") else quoted


def unsafe(component: str) -> str:
    """The name that `safe` made it from."""
    return urllib.parse.unquote(component)


class Files:
    """root: a local path, or any URL pyarrow knows (s3://, gs://, …)."""

    def __init__(self, root: str):
        self.root = root
        if "://" in root:
            try:
                self._fs, self._base = fs.FileSystem.from_uri(root)
            except (OSError, pa.ArrowException) as error:
                raise UsageError(f"{root} is no place to write to ({error}); give a folder or an s3:// URL") from error
        else:
            self._fs, self._base = fs.LocalFileSystem(), str(Path(root).expanduser().absolute())

    @property
    def local(self) -> Path | None:
        return Path(self._base) if isinstance(self._fs, fs.LocalFileSystem) else None

    def path(self, name: str) -> str:
        return f"{self._base}/{name}" if name else self._base

    def create(self) -> None:
        """Makes the root and proves that it can be written. Raises UsageError where it cannot."""
        try:
            self._fs.create_dir(self._base, recursive=True)
            self.write(".canary", b"openmaia")
            self.delete(".canary")
        except (OSError, StoreError) as error:
            reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
            raise UsageError(
                f"{self.root} cannot be written ({reason}); give another folder or mend its rights"
            ) from error

    def write(self, name: str, data: bytes) -> None:
        with self.writing(name) as stream:
            stream.write(data)

    @contextmanager
    def writing(self, name: str) -> Generator[Any]:
        """A stream whose content has the name when all went well, and no name otherwise: a rename on a file system, one
        PUT on an object store."""
        target = self.path(name)
        try:
            if self.local is None:
                with self._fs.open_output_stream(target) as stream:
                    yield stream
                return
            Path(target).parent.mkdir(parents=True, exist_ok=True)
            descriptor, temporary = tempfile.mkstemp(dir=Path(target).parent, prefix=".writing-")
            try:
                with os.fdopen(descriptor, "wb") as stream:
                    yield stream
                    stream.flush()
                    os.fsync(stream.fileno())
                os.replace(temporary, target)
            except BaseException:
                Path(temporary).unlink(missing_ok=True)
                raise
        except (OSError, pa.ArrowException) as error:
            raise StoreError(f"{target} could not be written: {error}") from error

    def read(self, name: str) -> bytes | None:
        """None where there is no such file."""
        try:
            with self._fs.open_input_stream(self.path(name)) as stream:
                return stream.read()
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (OSError, pa.ArrowException) as error:
            raise StoreError(f"{self.path(name)} could not be read: {error}") from error

    def read_json(self, name: str, remedy: str = "remove it, and the command that wrote it makes it again") -> Any:
        """None where there is no such file. Raises StoreError, with the remedy, for one that is no JSON."""
        data = self.read(name)
        try:
            return None if data is None else json.loads(data)
        except ValueError as error:
            raise StoreError(f"{self.path(name)} is damaged ({error}); {remedy}") from error

    def open(self, name: str) -> pa.NativeFile:
        """For reading at random, as footers and row groups are."""
        return self._fs.open_input_file(self.path(name))

    def mapped(self, name: str) -> pa.NativeFile:
        """The same, mapped into memory on a local disk."""
        return self.open(name) if self.local is None else pa.memory_map(self.path(name))

    def names(self, folder: str) -> list[str]:
        """Names of all whole files below a folder, relative to the root, sorted."""
        return list(self.sized(folder))

    def sized(self, folder: str) -> dict[str, int]:
        """Bytes of all whole files below a folder, by their names relative to the root, sorted."""
        selector = fs.FileSelector(self.path(folder), recursive=True, allow_not_found=True)
        infos = self._fs.get_file_info(selector)
        found = {info.path: info.size or 0 for info in infos if info.type == fs.FileType.File}
        start = len(self._base.rstrip("/")) + 1
        return {p[start:]: found[p] for p in sorted(found) if not p.rsplit("/", 1)[-1].startswith(".")}

    def exists(self, name: str) -> bool:
        return self._fs.get_file_info(self.path(name)).type == fs.FileType.File

    def size(self, name: str) -> int:
        return self._fs.get_file_info(self.path(name)).size or 0

    def sizes(self, folder: str) -> list[int]:
        """Bytes of all whole files below a folder."""
        return list(self.sized(folder).values())

    def delete(self, name: str) -> None:
        try:
            self._fs.delete_file(self.path(name))
        except FileNotFoundError:
            return

    def delete_folder(self, name: str) -> None:
        try:
            self._fs.delete_dir(self.path(name))
        except (FileNotFoundError, NotADirectoryError):
            return
