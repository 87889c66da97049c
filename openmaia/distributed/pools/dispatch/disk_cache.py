"""Files of a cache on disk, which several processes may use at the same time.

Each entry is one file, named by its key. There is no index, so no process has to lock anything, and the cache works on
network file systems. The content is bytes, which the caller checks: nothing here interprets them.
"""

import contextlib
import os
import re
import stat
import time
import uuid
from pathlib import Path

_SWEEP_SHARE = 16
"""A process deletes old entries after it has written this part of the cache: a 16th of its size."""
_ABANDONED = 3600.0
"""Seconds after which a file that was never completed is deleted. Its writer has died."""
LARGEST = 2**28
"""Largest size of an entry in bytes. Larger files are not read, because they would fill the memory."""
_OWN = re.compile(r"[0-9a-f]{64}(\.[0-9a-f]+)?")
"""The names of the files of the cache: the keys, and the same with a suffix while they are written. Other files in the
folder, which the user may have put there, are never deleted."""


class DiskCache:
    """A folder of files that is bounded in bytes. The entries that were not used for the longest time are deleted.

    A key is a SHA-256 in hexadecimal. Links in the folder are not followed. Each process that writes may exceed the bound
    by a 16th of it until it deletes again. Entries may disappear at any time, because other processes delete them, too.
    Reading is thread-safe; only one thread of a process may write.

    Raises:
        OSError: The folder cannot be created.
    """

    def __init__(self, folder: Path, limit: int):
        folder.mkdir(parents=True, exist_ok=True)
        self._folder, self._limit = folder, limit
        self._unswept = limit  # the first write sweeps, because the limit may have been lowered

    def __contains__(self, key: str) -> bool:
        return self._path(key).is_file()

    def read(self, key: str) -> bytes | None:
        """Returns the content of an entry and marks it as used, or returns None if there is no such entry.

        Raises:
            OSError: It cannot be read, is a link or no plain file, or is larger than an entry may be.
        """
        try:
            # Without O_NONBLOCK, the opening of a named pipe would wait for a writer.
            descriptor = os.open(self._path(key), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except FileNotFoundError:
            return None
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode) or status.st_size > min(self._limit, LARGEST):
                raise OSError(f"{self._path(key)} is no file of this cache")
            with open(descriptor, "rb", closefd=False) as file:
                data = file.read(status.st_size)
        finally:
            os.close(descriptor)
        with contextlib.suppress(OSError):  # it was deleted meanwhile, or belongs to another user
            os.utime(self._path(key), follow_symlinks=False)
        return data

    def write(self, key: str, data: bytes) -> None:
        """Stores an entry, and deletes old entries if it is time to.

        Raises:
            OSError: It cannot be written.
        """
        path = self._path(key)
        path.parent.mkdir(exist_ok=True)
        partial = path.with_name(f"{key}.{uuid.uuid4().hex}")
        try:
            partial.write_bytes(data)
            partial.replace(path)
        except BaseException:
            partial.unlink(missing_ok=True)
            raise
        self._unswept += len(data)
        if self._unswept > self._limit // _SWEEP_SHARE:
            self._sweep()
            self._unswept = 0

    def delete(self, key: str) -> None:
        """Deletes an entry if it exists and can be deleted."""
        with contextlib.suppress(OSError):
            self._path(key).unlink()

    def _path(self, key: str) -> Path:
        folder = self._folder / key[:2]
        if folder.is_symlink():
            raise OSError(f"{folder} is a link, and is not used")
        return folder / key

    def _sweep(self) -> None:
        entries: list[tuple[float, int, str]] = []
        for folder in _scanned(self._folder):
            if not folder.is_dir(follow_symlinks=False):
                continue
            for entry in _scanned(folder.path):
                if not _OWN.fullmatch(entry.name) or entry.name[:2] != folder.name:
                    continue
                with contextlib.suppress(OSError):  # another process has deleted it
                    status = entry.stat(follow_symlinks=False)
                    is_abandoned = "." in entry.name and status.st_mtime < time.time() - _ABANDONED
                    entries.append((0.0 if is_abandoned else status.st_mtime, status.st_size, entry.path))
        total = sum(size for _, size, _ in entries)
        for used, size, path in sorted(entries):
            if used and total <= self._limit - 2 * (self._limit // _SWEEP_SHARE):
                break
            with contextlib.suppress(OSError):
                os.unlink(path)
            total -= size


def _scanned(folder: str | Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError:  # no folder, or not readable
        return []
