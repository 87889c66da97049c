"""What Ray raises, and how it is said to people."""

from typing import Any

import ray
from ray.exceptions import OutOfMemoryError, RayActorError, RayTaskError

from openmaia.errors import OpenMaiaError, ServiceError

DEAD = (RayActorError, OutOfMemoryError)
"""What Ray raises for a process that is gone. The second is for one that its memory monitor ended, and is not of the
first's kind."""


def plain(error: BaseException) -> str:
    """The last line of what went wrong: Ray's text carries colours, process ids and addresses."""
    cause = error.cause if isinstance(error, RayTaskError) else error
    return f"{type(cause).__name__}: {str(cause).strip().splitlines()[-1] if str(cause).strip() else 'no message'}"


def resolve(reference: Any) -> Any:
    """ray.get with our own exceptions as they were raised, and Ray's as ServiceError."""
    try:
        return ray.get(reference)
    except RayTaskError as error:
        if isinstance(error.cause, OpenMaiaError):
            raise error.cause from None
        raise ServiceError(f"a service failed: {type(error.cause).__name__}: {error.cause}") from error
    except DEAD as error:
        raise ServiceError("a service's dispatcher died and did not come back") from error
