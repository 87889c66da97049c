"""Data types that a dispatcher, its callers and the driver exchange."""

from dataclasses import dataclass
from typing import Any

from openmaia.core.messages import Reply
from openmaia.distributed.pools.statistics import PoolStatistics


@dataclass(frozen=True, slots=True)
class ReplicaLease:
    """The permission to send one chat to a replica of a language model."""

    id: int
    replica: Any
    """The Ray actor handle."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseResult:
    """The outcome of a lease: a reply, a failure, or neither if the lease was not used."""

    reply: Reply | None = None
    seconds: float = 0.0
    """Time in seconds that the replica spent on the chat."""
    failure: str = ""
    """`error` (the model raised an exception), `died` (the replica died) or `late` (there was no answer before the deadline).
    Empty if nothing failed."""


@dataclass(frozen=True, slots=True)
class PoolStatus:
    """The state of a pool, from which the driver decides how many replicas to run."""

    incarnation: str
    """A random id of this start of the dispatcher. If it changes, the driver sends the handles of all replicas again."""
    drained: tuple[int, ...]
    """Indices of draining replicas that have no work left."""
    unplaced: tuple[int, ...]
    """Indices of replicas that Ray has not started, for example because no node has room for them."""
    demand: float
    """Number of replicas that would be busy now if there were enough of them. A replica of a language model
    counts as n / m if it answers n chats and could answer m chats concurrently."""
    released: bool
    """Whether the run no longer needs the pool, so that idle replicas are ended, even below the configured minimum."""
    statistics: PoolStatistics
    notes: tuple[str, ...] = ()
    """Messages since the last status: output of models that are loading, and failures to load."""
