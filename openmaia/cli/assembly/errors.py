"""Errors for configs whose objects this process cannot build."""

from openmaia.core.errors import UsageError


def session_object_error(key: str, instead: str) -> UsageError:
    """Returns the error for a config value that stands for an object which exists in another Python process only.

    A user of the Python API passed the object, such as a network, to OpenMAIA there.

    Args:
        key: The config key.
        instead: What the user should set instead.
    """
    return UsageError(
        f"{key} stands for an object that was passed to OpenMAIA in Python, which no other process has; give {instead}"
    )


def unknown_value(key: str, given: str) -> UsageError:
    """Returns the error for a config value that no code handles.

    `config.checks` refuses such values whenever a config is loaded, so only unchecked configs can cause this error.
    """
    return UsageError(f"{key}={given!r} is not known")
