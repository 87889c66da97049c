"""The types of the sandbox's interface: limits, levels of protection and results."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from openmaia.agent.sandbox.frames import Json

CallHandler = Callable[[str, list[Json], dict[str, Json]], Json]
"""Answers a tool call: (name, args, kwargs) -> result. If it raises ToolError, the agent's code sees the error. If it
raises ExperimentStopped, the experiment is stopped. Any other exception is an error of OpenMAIA and ends the investigation."""


class ExperimentStopped(Exception):
    """The experiment that makes a tool call has reached a limit and has to be stopped.

    A `CallHandler` raises this exception instead of returning the result of the call. The message tells the agent which
    limit was reached.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxLimits:
    """The limits of time, memory and sizes in one sandbox, the process in which the agent's code runs.

    Their defaults are in the configuration.
    """

    seconds: float
    """Wall time of one experiment in seconds, without the time in which the parent answers tool calls."""
    cpu_seconds: int
    """CPU time of the process over its whole lifetime, in seconds."""
    memory_mb: int
    """Memory of each process in MiB (RLIMIT_DATA). Exceeding it raises a MemoryError. RLIMIT_AS is 1 GiB higher, to
    leave room for shared memory."""
    processes: int
    """Number of processes that may exist at the same time, including the interpreter."""
    output_bytes: int
    """Bytes of stdout and stderr of one experiment. The rest is dropped, and a note says how much."""
    scratch_mb: int
    """Size of each file, and of all files in the scratch folder together, in MiB."""
    frame_mb: int
    """Size of one message (a call or a result) in either direction, in MiB."""


class SandboxLevel(StrEnum):
    """How strongly the agent's code is confined. `policy.py` says what each level requires."""

    FULL = "full"
    DEGRADED = "degraded"
    NONE = "none"


class Status(StrEnum):
    """The way in which an experiment, a piece of the agent's code, ended."""

    OK = "ok"
    ERROR = "error"
    """The agent's code raised an exception."""
    TIMEOUT = "timeout"
    MEMORY = "memory"
    """The agent's code raised a MemoryError, or the process was killed for its use of memory."""
    DIED = "died"
    """The process ended, broke the protocol, or was killed because it exceeded another limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxResult:
    """The result of one experiment, a piece of the agent's code."""

    status: Status
    error: str
    """The traceback for the agent, with frames of its own code only. Empty if `status` is OK."""
    replaced: bool
    """Whether the process was replaced. If so, its variables are lost, and the caller must run earlier experiments
    again."""
    seconds: float
    """Wall time in seconds, without the time in which the parent answered tool calls."""
