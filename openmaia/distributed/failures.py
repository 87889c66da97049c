"""Translates Ray's exceptions into those of OpenMAIA."""

from typing import Any, NoReturn

import ray
from ray.exceptions import OutOfMemoryError, OwnerDiedError, RayActorError, RayTaskError

from openmaia.core.errors import OpenMaiaError, ServiceError

DEAD = (RayActorError, OutOfMemoryError, OwnerDiedError)
"""Exceptions of Ray that mean that a process has died. OutOfMemoryError: Ray's memory monitor has killed it."""


def last_line(error: BaseException) -> str:
    """Returns the type of an error and the last line of its message; of a RayTaskError, those of its cause."""
    # The other lines of Ray's messages hold colour codes, process ids and addresses.
    cause = error.cause if isinstance(error, RayTaskError) else error
    lines = str(cause).strip().splitlines()
    return f"{type(cause).__name__}: {lines[-1] if lines else 'no message'}"


def raise_cause(error: RayTaskError, what: str) -> NoReturn:
    """Raises the OpenMaiaError of a remote call; for another one, a ServiceError that says `what` and its last line."""
    if isinstance(error.cause, OpenMaiaError):
        raise error.cause from None
    raise ServiceError(f"{what}: {last_line(error)}") from error


def resolve(reference: Any, timeout: float | None = None) -> Any:
    """Waits for the result of a Ray call.

    Raises:
        OpenMaiaError: If the remote call raised it.
        ServiceError: If the remote call raised another exception, or if the called process died.
        GetTimeoutError: If the result is not there after `timeout` seconds.
    """
    try:
        return ray.get(reference, timeout=timeout)
    except RayTaskError as error:
        raise_cause(error, "a service failed")
    except DEAD as error:
        raise ServiceError("a process that serves this run died and did not come back") from error
