"""Paths that users give."""

from pathlib import Path

from openmaia.core.errors import UsageError


def user_path(given: str) -> Path:
    """Returns a path that a user gave, with `~` replaced by the home directory.

    Raises UsageError if no file can have this path, or if it begins with the name of a user who does not exist.
    """
    if "\0" in given:
        raise UsageError(f"{given!r} is no path: it has a null character")
    try:
        return Path(given).expanduser()
    except RuntimeError as error:
        raise UsageError(f"{given!r} is no path: {error}") from error
