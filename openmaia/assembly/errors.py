"""Errors for configs whose objects this process cannot build."""

from openmaia.core.errors import UsageError


def unknown_value(key: str, given: str) -> UsageError:
    """Returns the error for a config value that no code handles.

    `config.checks` refuses such values whenever a config is loaded, so only unchecked configs can cause this error.
    """
    return UsageError(f"{key}={given!r} is not known")
