"""One exception type per boundary, so that whoever catches one knows whose fault it is and what is owed.

Every class takes one message and an optional detail: an exception with two required arguments does not survive the
pickling that Ray does.
"""


class OpenMaiaError(Exception):
    """Base of all errors raised on purpose. `message` is for people; `detail` may hold a traceback or a dump."""

    def __init__(self, message: str, *, detail: str | None = None):
        super().__init__(message)
        self.message = message
        self.detail = detail

    def __reduce__(self):
        return _rebuild, (type(self), self.message, self.detail)


def _rebuild(kind: type["OpenMaiaError"], message: str, detail: str | None) -> "OpenMaiaError":
    return kind(message, detail=detail)


class UsageError(OpenMaiaError, ValueError):
    """The user's mistake: what was given, what was expected, what to do. The command line ends with exit code 2."""


class ServiceError(OpenMaiaError):
    """A service of ours (backbone, generator, target, ...) failed. The unit stays owed; the agent never sees it."""


class HostDead(ServiceError):
    """A host cannot answer any more, whatever it is asked (its engine died): its replica is replaced, the request tried
    again on the new one."""


class ToolError(OpenMaiaError):
    """The agent called a tool wrongly. It is shown to the agent as an exception in its code and never ends a unit."""


class SandboxError(OpenMaiaError):
    """The sandbox itself could not be started or kept; the unit stays owed."""


class StoreError(OpenMaiaError):
    """A file of ours is damaged, foreign, or could not be written."""


class ReplayDiverged(OpenMaiaError):
    """Replaying completed experiments gave another output: the investigation has to start over."""
