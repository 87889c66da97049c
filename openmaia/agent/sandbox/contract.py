"""The limits, levels and results of the sandbox."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from openmaia.agent.sandbox.frames import Json

CallHandler = Callable[[str, list[Json], dict[str, Json]], Json]
"""Answers a tool call: (name, args, kwargs) -> result. If it raises ToolError, the agent's code sees the error. If it
raises ExperimentStopped, the experiment is stopped. Any other exception is an error of OpenMAIA and ends the
investigation."""


class ExperimentStopped(Exception):
    """Raised by a `CallHandler` to stop the experiment that makes the call. The message tells the agent which limit was
    reached.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxLimits:
    """The limits of one sandbox."""

    seconds: float
    """Wall time of one experiment, without the time in which tool calls are answered."""
    cpu_seconds: int
    """CPU time of the process over its whole lifetime."""
    memory_mb: int
    """MiB of each process (RLIMIT_DATA). Exceeding it raises a MemoryError. RLIMIT_AS is 1 GiB higher, to leave room
    for shared memory."""
    output_bytes: int
    """Bytes of stdout and stderr of one experiment. The rest is dropped, and a note says how much."""
    processes: int = 1
    """Processes at the same time, including the interpreter."""
    scratch_mb: int = 64
    """Size of each file, and of all files in the scratch folder together, in MiB."""
    frame_mb: int = 64
    """Size of one message (a call or a result) in either direction, in MiB."""


class SandboxLevel(StrEnum):
    """`policy.py` says what each level requires."""

    FULL = "full"
    DEGRADED = "degraded"
    NONE = "none"


class Status(StrEnum):
    """How an experiment ended."""

    OK = "ok"
    ERROR = "error"
    TIMEOUT = "timeout"
    MEMORY = "memory"
    """The code raised a MemoryError, or the process was killed for its use of memory."""
    DIED = "died"
    """The process ended, broke the protocol, or exceeded another limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxResult:
    """The result of one experiment."""

    status: Status
    error: str
    """The traceback for the agent, with frames of its own code only. Empty if `status` is OK."""
    replaced: bool
    """Whether the process was replaced, so that its variables are lost and earlier experiments must be repeated."""
    seconds: float
    """Without the time in which tool calls were answered."""
