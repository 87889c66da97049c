"""The exceptions of OpenMAIA. The type tells whose fault an error is, and whether the unit under study stays pending.

A pending unit is investigated when the run is resumed. Every class takes one message and an optional detail, because
Ray pickles exceptions, and pickling breaks exceptions that require more arguments.
"""


class OpenMaiaError(Exception):
    """Base class of all exceptions that OpenMAIA raises deliberately.

    Args:
        message: Tells the user what went wrong.
        detail: A traceback or another long text.
    """

    def __init__(self, message: str, *, detail: str | None = None):
        super().__init__(message)
        self.message = message
        self.detail = detail

    def __reduce__(self):
        return _rebuild, (type(self), self.message, self.detail)


def _rebuild(kind: type["OpenMaiaError"], message: str, detail: str | None) -> "OpenMaiaError":
    return kind(message, detail=detail)


class UsageError(OpenMaiaError, ValueError):
    """The input of the user, such as a config value or a file, is invalid.

    The message says what was given, what was expected and what to do. The CLI exits with code 2.
    """


class ServiceError(OpenMaiaError):
    """A service (target, generator, editor or backbone) failed.

    The unit under study stays pending (it is investigated when the run is resumed), and the agent never sees the error.
    """


class ServiceUnavailable(ServiceError):
    """The server of a service, such as a language model, is unavailable for now. The same request may succeed later."""


class HostDead(ServiceError):
    """A replica, a process that holds a copy of a model, can no longer answer requests.

    The pool of replicas starts a new one, and sends the request to a replica once more.
    """


class ToolError(OpenMaiaError):
    """The agent's code called a tool with invalid arguments. The agent sees the error as an exception in its code."""


class SandboxError(OpenMaiaError):
    """The sandbox that runs the agent's code could not be started, or it died.

    The unit under study stays pending: it is investigated when the run is resumed.
    """


class StoreError(OpenMaiaError):
    """A stored file is damaged, has an unexpected format, or could not be written."""


class ReplayDiverged(OpenMaiaError):
    """An agent's completed experiments gave another output when they were repeated. The investigation starts again."""
