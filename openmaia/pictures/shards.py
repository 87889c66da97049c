"""Files that hold many pictures, on a local disk or wherever pyarrow reaches: s3://, gs://, file://."""

import fnmatch
import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import fs

DAMAGED = (OSError, pa.ArrowException, UnicodeDecodeError)
"""What opening and decoding raise: names in a Parquet file may be no UTF-8."""


@dataclass(frozen=True, slots=True)
class Shard:
    """A file that holds many pictures. url: of the file system, "" for this machine's; path: within it. size: in bytes;
    changed: nanoseconds since 1970, 0 where the file system does not say."""

    url: str
    path: str
    size: int
    changed: int

    @property
    def name(self) -> str:
        return self.path if not self.url else f"{self.url.split('://')[0]}://{self.path}"

    def open(self) -> Any:
        """For reading at random. Raises DAMAGED."""
        return filesystem(self.url).open_input_file(self.path)


@lru_cache(maxsize=16)
def filesystem(url: str) -> fs.FileSystem:
    """Once per process: clients of object stores are slow to make. Raises DAMAGED."""
    return fs.FileSystem.from_uri(url)[0] if url else fs.LocalFileSystem()


def find(root: str, suffix: str) -> list[Shard]:
    """All files that root names: itself; with the suffix, those of the folder and all below it; or those of a pattern with
    * and [ ], which stays within a folder at each slash. A local path or a URL. Raises DAMAGED."""
    url, query = (root, "") if "://" not in root else _without_query(root)
    wildcard = re.search(r"[*\[]", url)
    start, pattern = url, ""
    if wildcard and _type(url, query) == fs.FileType.NotFound:
        folder, slash, _ = url[: wildcard.start()].rpartition("/")
        start, pattern = (folder or "/", url[len(folder) + 1 :]) if slash else (".", url)
    base, where = _resolved(start, query)
    info = filesystem(base).get_file_info(where)
    if info.type == fs.FileType.File:
        return [_shard(base, info)]
    below = fs.FileSelector(where, recursive=not pattern or "/" in pattern, allow_not_found=True)
    return [
        _shard(base, info)
        for info in filesystem(base).get_file_info(below)
        if info.type == fs.FileType.File and _is_meant(info.path[len(where) :].lstrip("/"), pattern, suffix)
    ]


def shown(root: str) -> str:
    """Without the keys and options that a URL may hold."""
    return re.sub(r"://[^/@]*@", "://", _without_query(root)[0]) if "://" in root else root


def _without_query(url: str) -> tuple[str, str]:
    """Options of object stores stand behind a question mark, which therefore is no wildcard."""
    plain, mark, query = url.partition("?")
    return plain, mark + query


def _type(url: str, query: str) -> fs.FileType:
    base, where = _resolved(url, query)
    return filesystem(base).get_file_info(where).type


def _resolved(url: str, query: str) -> tuple[str, str]:
    """(URL of the file system, "" for this machine's, and the path within it)."""
    if "://" not in url:
        return "", str(Path(url).expanduser().absolute())
    system, where = fs.FileSystem.from_uri(url + query)
    return ("" if isinstance(system, fs.LocalFileSystem) else url + query), where


def _is_meant(name: str, pattern: str, suffix: str) -> bool:
    """name: below the folder. Hidden files and those of hidden folders are not meant."""
    parts = name.split("/")
    if any(part.startswith(".") for part in parts):
        return False
    if not pattern:
        return name.endswith(suffix)
    wanted = pattern.split("/")
    return len(parts) == len(wanted) and all(map(fnmatch.fnmatchcase, parts, wanted))


def _shard(base: str, info: fs.FileInfo) -> Shard:
    return Shard(base, info.path, info.size or 0, info.mtime_ns or 0)
