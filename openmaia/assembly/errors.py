"""Errors for configs whose objects this process cannot build."""

from openmaia.core.errors import UsageError


def unknown_value(key: str, given: str) -> UsageError:
    """Returns the error for a value that no code handles: only a config that was not checked can have one."""
    return UsageError(f"{key}={given!r} is not known")
