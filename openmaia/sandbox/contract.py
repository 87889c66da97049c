"""What the sandbox takes and gives: limits, levels, outcomes."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from openmaia.sandbox.frames import Json

Serve = Callable[[str, list[Json], dict[str, Json]], Json]
"""(name, args, kwargs) -> result. May raise `ToolError`, which the agent's code sees; anything else is our error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Defaults live in the configuration, not here."""

    seconds: float
    """Wall time of one experiment; the clock stops while the parent serves a call."""
    cpu_seconds: int
    """CPU time of the process' whole life."""
    memory_mb: int
    """Per process, RLIMIT_DATA: overshoot is a MemoryError. RLIMIT_AS stands 1 GiB above it, for shared memory."""
    processes: int
    """Processes at one time, the interpreter included."""
    output_bytes: int
    """stdout and stderr of one experiment; the rest is dropped and a note says how much."""
    scratch_mb: int
    frame_mb: int
    """Largest frame (a call or a result) in either direction."""


class Level(StrEnum):
    FULL = "full"
    DEGRADED = "degraded"
    NONE = "none"


class Status(StrEnum):
    OK = "ok"
    ERROR = "error"
    """An exception in the agent's code."""
    TIMEOUT = "timeout"
    MEMORY = "memory"
    """A MemoryError that reached the top, or a kill by a memory limit."""
    DIED = "died"
    """The process ended, broke the protocol, or was killed for using too much of something."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    status: Status
    error: str
    """The traceback as the agent should see it: only frames of its own code. Empty if `status` is OK."""
    replaced: bool
    """The process was replaced: all variables are gone, the caller must replay."""
    seconds: float
    """Wall time without the served calls."""
