"""Errors for configs whose objects this process cannot build."""

from openmaia.core.errors import UsageError


def unknown_value(key: str, given: str) -> UsageError:
    """Returns the error for a config value that no code handles. Only an unchecked config can cause it: `config.checks`
    refuses such values at every load."""
    return UsageError(f"{key}={given!r} is not known")
