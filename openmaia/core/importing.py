"""Imports objects that a user names, from installed packages and the current folder."""

import importlib
import os
import sys
from importlib.util import find_spec
from typing import Any

from openmaia.core.errors import UsageError


def add_folder(folder: str) -> None:
    """Lets this process import the modules of a folder (an absolute path) before installed ones, as `python -m` does.
    In workers: the folder in which the user started the command."""
    if folder not in sys.path:
        sys.path.insert(0, folder)


def has_module(name: str) -> bool:
    """Returns whether `import_object` would find a module. Imports only the packages above it."""
    module = name.partition(":")[0]
    add_folder(os.getcwd())
    try:
        return find_spec(module) is not None
    except Exception:  # of a package above it, which may fail in any way
        return False


def import_object(name: str, key: str, otherwise: str = "") -> Any:
    """Imports "package.module:attribute", also from the current folder.

    Args:
        key: The config key whose value is the name, for messages.
        otherwise: About other values that the key accepts. Appended to messages.

    Raises:
        UsageError: There is no such module or attribute, or the module fails while it is imported.
    """
    module, colon, attribute = name.partition(":")
    if not (module and colon and attribute):
        raise UsageError(f"{key}={name!r} names no object of a module; expected package.module:name{otherwise}")
    add_folder(os.getcwd())
    try:
        return getattr(importlib.import_module(module), attribute)
    except (Exception, SystemExit) as error:  # a module may fail in any way, and a script may end itself
        raise UsageError(
            f"{key}={name!r} cannot be imported: {type(error).__name__}: {error}; expected package.module:name, "
            f"installed or in the current folder {os.getcwd()}{otherwise}"
        ) from error
