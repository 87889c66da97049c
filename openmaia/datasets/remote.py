"""Lists and reads files by paths or URLs.

A path or a URL of something that exists names it, whatever characters it has. Otherwise it is a pattern.
"""

import importlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from openmaia.core.errors import UsageError
from openmaia.core.paths import user_path
from openmaia.datasets.reading import MAX_BYTES, SkipReason, UnusableImage, check_bytes

WILDCARDS = frozenset("*?[")
"""Characters that make a path that does not exist a pattern."""


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """An image file at a URL that fsspec reads."""

    url: str

    @property
    def name(self) -> str:
        """The URL without its query, which may hold a secret."""
        return shown(self.url)

    def read(self) -> bytes:
        """Returns the content of the file. Raises UnusableImage if it cannot be read, is empty or too large."""
        try:
            with _fsspec().open(self.url, "rb", expand=False) as file:
                data = file.read(MAX_BYTES + 1)
        except Exception as error:
            cause = _cause(error).replace(self.url, self.name)
            raise UnusableImage(f"{self.name} cannot be read: {cause}", reason=SkipReason.UNREADABLE) from None
        check_bytes(self.name, len(data))
        return data


def is_url(place: str) -> bool:
    """Returns whether this is a URL and no path."""
    return "://" in place


def shown(place: str) -> str:
    """Returns a path or URL for messages: without the query of a web address, which may hold a secret."""
    return place.partition("?")[0] if is_web(place) else place


def is_web(place: str) -> bool:
    """Returns whether this is a URL of HTTP, whose question mark begins a query."""
    return place.startswith(("http://", "https://"))


def is_folder(place: str) -> bool:
    """Returns whether this is the path or URL of an existing folder."""
    if not is_url(place):
        return user_path(place).is_dir()
    files, path = _located(place)
    return bool(files.isdir(path))


def read(place: str) -> bytes | None:
    """Returns the content of a small file, or None if it does not exist."""
    try:
        files, path = _located(place)
        return cast(bytes, files.cat_file(path)) if files.isfile(path) else None
    except Exception:  # file systems fail in many ways, and then the dataset cannot be read either
        return None


def find(place: str, suffixes: Iterable[str] = ()) -> list[str]:
    """Returns the sorted paths or URLs of the files that a path, a URL or a pattern of these names.

    Args:
        place: A file, a folder, or a pattern of files. What exists under this very name is no pattern.
        suffixes: Of a folder, only files with these suffixes are returned, in any case. Empty for all of them. Hidden
            files and folders are left out.

    Raises:
        UsageError: There are no such files, or they cannot be listed.
    """
    try:
        files, path = _located(place)
        if is_url(place) and files.isfile(path):
            return [place]  # as it was given, with its query
        if files.isdir(path):
            found = [each for each in files.find(path) if _is_wanted(each, path, tuple(suffixes))]
        elif files.isfile(path):
            found = [path]
        else:
            found = (
                [each for each in files.glob(_pattern(files, path)) if files.isfile(each)]
                if WILDCARDS & set(path)
                else []
            )
    except Exception as error:  # file systems fail in many ways
        remedy = f"; pip install {error.name}" if isinstance(error, ImportError) and error.name else ""
        raise UsageError(f"cannot be loaded: {_cause(error)}{remedy}") from error
    if not found:
        kinds = f" with {' or '.join(suffixes)}" if suffixes else ""
        raise UsageError(f"cannot be loaded: there is no such file, or folder with files{kinds}")
    return sorted(files.unstrip_protocol(each) if is_url(place) else each for each in found)


def escape(place: str) -> str:
    """Returns a path or URL as a pattern that matches itself alone. In a web address, a question mark is no pattern."""
    return re.sub(r"([*\[])" if is_web(place) else r"([*?\[])", r"[\1]", place)


def _pattern(files: Any, path: str) -> str:
    """Returns a pattern in which the folders that exist under their very names stand for themselves."""
    parts = path.split("/")
    known = 0
    while known < len(parts) - 1 and (not WILDCARDS & set(parts[known]) or files.isdir("/".join(parts[: known + 1]))):
        known += 1
    return "/".join([*map(escape, parts[:known]), *parts[known:]])


def read_stamps(places: Iterable[str]) -> list[str]:
    """Returns a line for each file that changes with its size and modification time, as far as these are known.

    Raises OSError if a file does not exist.
    """
    lines: list[str] = []
    for place in places:
        if is_url(place):
            files, path = _located(place)
            facts = files.info(path)
            seen = [facts.get(key) for key in ("size", "mtime", "LastModified", "ETag", "etag", "updated", "created")]
            lines.append(f"{shown(place)}\t{seen}")
        else:
            status = Path(place).stat()
            lines.append(f"{place}\t{status.st_size}\t{status.st_mtime_ns}")
    return lines


def _is_wanted(path: str, folder: str, suffixes: tuple[str, ...]) -> bool:
    inner = path.removeprefix(folder)
    is_hidden = any(part.startswith(".") for part in inner.split("/"))
    return not is_hidden and (not suffixes or inner.lower().endswith(suffixes))


def _located(place: str) -> tuple[Any, str]:
    if is_url(place):
        return _fsspec().core.url_to_fs(place)
    return _fsspec().filesystem("file"), str(user_path(place).absolute())


def _cause(error: Exception) -> str:
    return " ".join(str(error).split())[:300] or type(error).__name__


def _fsspec() -> Any:
    return importlib.import_module("fsspec")
