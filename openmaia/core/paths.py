"""Paths that users give."""

import os
from pathlib import Path

from openmaia.core.errors import UsageError


def user_path(given: str) -> Path:
    """Expands `~`. Raises UsageError if no file can have this path, or `~` names a user who does not exist."""
    if "\0" in given:
        raise UsageError(f"{given!r} is no path: it has a null character")
    try:
        return Path(given).expanduser()
    except RuntimeError as error:
        raise UsageError(f"{given!r} is no path: {error}") from error


def file_and_part(given: str) -> tuple[Path, str]:
    """Splits `PATH#PART`. The part is empty if there is none, or if a file has the whole text as its name."""
    path = user_path(given)
    before, mark, part = given.rpartition("#")
    return (path, "") if not mark or path.exists() else (user_path(before), part)


def source_and_folder(given: str) -> tuple[str, str]:
    """Splits `ID#FOLDER`, a folder or hub id and a folder in it. That is empty if there is none, or if a folder has the
    whole text as its name."""
    source, _, inner = given.partition("#")
    return (given, "") if user_path(given).is_dir() else (source, inner.strip("/"))


def nearest_existing(path: Path) -> Path:
    """Returns the path, or its nearest parent that exists. One that is too long or not accessible counts as missing."""
    return next(folder for folder in (path, *path.absolute().parents) if os.path.exists(folder))


def is_writable(folder: Path) -> bool:
    """Returns whether files can be written to a folder, which may have to be created first."""
    existing = nearest_existing(folder)
    return os.path.isdir(existing) and os.access(existing, os.W_OK)
