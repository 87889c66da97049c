"""The exceptions of OpenMAIA. The type tells whose fault an error is, and whether the unit stays pending.

A pending unit is investigated when the run is resumed. Every class takes one message and an optional detail, because
Ray pickles exceptions, and pickling breaks exceptions that require more arguments.
"""

from collections.abc import Mapping
from typing import Any, Self, TypeVar

from openmaia.core.money import FREE, Bill
from openmaia.core.secrets import redacted

ErrorT = TypeVar("ErrorT", bound="OpenMaiaError")


class OpenMaiaError(Exception):
    """Base class of OpenMAIA's own exceptions. Secrets in their texts are replaced, see `openmaia.core.secrets`.

    Args:
        message: What went wrong, in one or two sentences.
        detail: Such as a traceback or the output of a process.
    """

    def __init__(self, message: str, *, detail: str | None = None):
        self.message = redacted(message)
        self.detail = None if detail is None else redacted(detail)
        self.bill = FREE
        """What was billed although the request failed."""
        self.answers: Mapping[int, Any] = {}
        """The answers to other requests of the same call, by their index. They have bills of their own."""
        super().__init__(self.message)

    def billed(self, bill: Bill) -> Self:
        """Returns the same exception, with a further bill and without `answers`."""
        return _rebuild(type(self), self.message, self.detail, self.bill + bill)

    def __reduce__(self):
        return _rebuild, (type(self), self.message, self.detail, self.bill, dict(self.answers))


def _rebuild(
    kind: type[ErrorT], message: str, detail: str | None, bill: Bill, answers: Mapping[int, Any] | None = None
) -> ErrorT:
    error = kind(message, detail=detail)
    error.bill, error.answers = bill, answers or {}
    return error


class UsageError(OpenMaiaError, ValueError):
    """An input of the user is invalid, such as an argument, a config value or a file.

    The message says what was given, what was expected and what to do. The command line exits with code 2.
    """


class ServiceError(OpenMaiaError):
    """A service failed. The agent never sees the error, and the unit stays pending."""


class ServiceUnavailable(ServiceError):
    """The server of a model cannot be reached or is overloaded. The same request may succeed later."""


class OutOfBudget(ServiceError):
    """The budget of the run is spent. The unit stays pending, and continues with a larger budget."""


class HostDead(ServiceError):
    """A replica can no longer answer, for example because its GPU failed. It is replaced and the request repeated; if
    replicas die repeatedly over one request, that request fails with a ServiceError."""


class ToolError(OpenMaiaError):
    """The agent's code called a tool with invalid arguments, or a tool of the user failed. The agent sees it as an
    exception in its code."""


class SandboxError(OpenMaiaError):
    """The sandbox could not be started. The unit stays pending."""


class StoreError(OpenMaiaError):
    """A stored file is missing, damaged or in an unexpected format, or could not be read or written."""


class ReplayDiverged(OpenMaiaError):
    """An agent's experiments gave another output when they were repeated to restore their variables, after their
    process was lost. The investigation then starts again from its first turn."""


def session_object_error(key: str, instead: str) -> UsageError:
    """Returns the error for a config value that stands for an object passed in Python, which this process lacks.

    Args:
        instead: What to set instead, for the message.
    """
    return UsageError(
        f"{key} stands for an object that was passed to OpenMAIA in Python, which no other process has; give {instead}"
    )
