"""Errors for configs whose objects this process cannot build."""

from openmaia.core.errors import UsageError


def session_object_error(key: str, instead: str) -> UsageError:
    """Returns the error for a config value that stands for a Python object which this process does not have.

    Users of the Python API can pass an object, such as a network, to OpenMAIA. The config then only says that there is
    such an object. If another process loads this config, it cannot build the object.

    Args:
        key: The config key.
        instead: What to set instead, for the message.
    """
    return UsageError(
        f"{key} stands for an object that was passed to OpenMAIA in Python, which no other process has; give {instead}"
    )


def unknown_value(key: str, given: str) -> UsageError:
    """Returns the error for a config value that no code handles.

    `config.checks` refuses such values whenever a config is loaded, so only unchecked configs can cause this error.
    """
    return UsageError(f"{key}={given!r} is not known")
