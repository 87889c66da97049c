"""The errors of configs that this process cannot build."""

from openmaia.core.errors import UsageError


def session_object_error(key: str, instead: str) -> UsageError:
    """Returns the error for a config that names an object of a Python session."""
    return UsageError(
        f"{key} stands for an object that was passed to OpenMAIA in Python, which no other process has; give {instead}"
    )


def unknown_value(key: str, given: str) -> UsageError:
    """Returns the error for a value that `config.checks` refuses in every config that is loaded."""
    return UsageError(f"{key}={given!r} is not known")
