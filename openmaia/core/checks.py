"""The result of looking at one thing before a run starts."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

from openmaia.core.errors import UsageError
from openmaia.core.secrets import redacted


@dataclass(frozen=True, slots=True)
class Check:
    """A finding, and what remedies it."""

    state: Literal["ok", "note", "missing"]
    """note: the run may still work; missing: it would fail."""
    message: str
    """What was found and, if it is a problem, the command or the setting that solves it."""

    def __post_init__(self):
        object.__setattr__(self, "message", redacted(self.message))


def ok(message: str) -> Check:
    """Says that what was looked at is as it should be."""
    return Check("ok", message)


def note(message: str) -> Check:
    """Says that the run may still work."""
    return Check("note", message)


def missing(message: str) -> Check:
    """Says that the run would fail."""
    return Check("missing", message)


def refusals(look: Callable[[], object]) -> Iterator[Check]:
    """Calls a function, and yields what it refuses with a UsageError."""
    try:
        look()
    except UsageError as error:
        yield missing(error.message)
