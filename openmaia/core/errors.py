"""The exceptions of OpenMAIA. The type tells whose fault an error is, and whether the unit under study stays pending.

A pending unit is investigated when the run is resumed. Every class takes one message and an optional detail, because
Ray pickles exceptions, and pickling breaks exceptions that require more arguments.
"""

from openmaia.core.secrets import redacted


class OpenMaiaError(Exception):
    """Base class of OpenMAIA's own exceptions. Secrets in their texts are replaced, see `openmaia.core.secrets`.

    Args:
        message: What went wrong, in one or two sentences.
        detail: More about the cause, such as a traceback or the output of a process. None if there is nothing to add.
    """

    def __init__(self, message: str, *, detail: str | None = None):
        self.message = redacted(message)
        self.detail = None if detail is None else redacted(detail)
        super().__init__(self.message)

    def __reduce__(self):
        return _rebuild, (type(self), self.message, self.detail)


def _rebuild(kind: type["OpenMaiaError"], message: str, detail: str | None) -> "OpenMaiaError":
    return kind(message, detail=detail)


class UsageError(OpenMaiaError, ValueError):
    """An input of the user is invalid, such as an argument, a config value or a file.

    The message says what was given, what was expected and what to do. The command line exits with code 2.
    """


class ServiceError(OpenMaiaError):
    """A model failed: the network under study, the image generator or editor, or the model that plays the agent.

    The agent never sees the error. In a run, the unit under study stays pending: it is investigated when the run is
    resumed.
    """


class ServiceUnavailable(ServiceError):
    """The server of a model cannot be reached or is overloaded. The same request may succeed later."""


class HostDead(ServiceError):
    """A process that holds a model can no longer answer requests, for example because its GPU failed.

    On Ray, the process is replaced and the request is repeated. If processes fail repeatedly over the same request, the
    request fails with a ServiceError.
    """


class ToolError(OpenMaiaError):
    """The agent's code called a tool with invalid arguments, or a tool that the user added failed.

    A tool is a function that the agent's code can call, such as `tools.text2image`. The agent sees the error as an
    exception in its code.
    """


class SandboxError(OpenMaiaError):
    """The sandbox, an isolated process for the agent's code, could not be started.

    In a run, the unit under study stays pending: it is investigated when the run is resumed.
    """


class StoreError(OpenMaiaError):
    """A stored file is missing, damaged or in an unexpected format, or could not be read or written."""


class ReplayDiverged(OpenMaiaError):
    """An agent's experiments gave another output when they were repeated.

    If the process of the agent's code is lost, for example in a crash, the completed experiments are repeated to
    restore their variables. After this error, the investigation starts again from its first turn.
    """


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
