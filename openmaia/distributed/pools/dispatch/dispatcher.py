"""The dispatcher of a pool: an actor that queues requests and sends batches of them to idle replicas.

A request waits in the queue until a replica is idle (late binding). The replica then gets the largest compatible batch.
If a replica dies or misses the deadline, the requests of its batch are retried one by one, and a request during which a
second replica dies fails. The requests are in Ray's object store; the dispatcher handles only references to them.

Language models batch requests themselves. For them the dispatcher grants leases (`acquire`, `release`), and the caller
then calls the replica that holds its conversation directly.

The driver owns the replicas. After a restart of the dispatcher, the driver sends it their handles again.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from openmaia.distributed.pools.dispatch.cache import CacheSpec
from openmaia.distributed.pools.dispatch.core import PoolCore
from openmaia.distributed.pools.dispatch.queueing import Answers
from openmaia.distributed.pools.replica import PoolSpec
from openmaia.distributed.pools.statistics import PoolStatistics
from openmaia.distributed.pools.status import LeaseResult, PoolStatus, ReplicaLease


@dataclass(slots=True)
class Dispatcher:
    """The Ray actor class of a dispatcher, which distributes requests to the replicas of a pool.

    `PoolManager` starts the actor. The logic is in `PoolCore`.

    Args:
        spec: The description of the pool.
        cache: The settings of the cache of answers. None disables it.
    """

    spec: PoolSpec
    cache: CacheSpec | None = None
    _core: PoolCore | None = field(default=None)

    def __repr__(self) -> str:
        return f"{self.spec.role}-dispatcher"

    @property
    def core(self) -> PoolCore:
        """The dispatcher's implementation. It is constructed at the first call, because it needs the event loop."""
        if self._core is None:
            self._core = PoolCore(self.spec, self.cache)
        return self._core

    async def admit(self, caller: str, count: int, size: int) -> None:
        """Waits until the pool may take `count` requests of `size` bytes in total.

        If no replica of the pool can be loaded, it returns at once, and `submit` raises the error.
        """
        if not self.core.replicas.broken:
            await self.core.requests.admission.admit(caller, count, size)

    async def submit(self, caller: str, method: str, payload: list[Any], keys: list[str], size: int) -> Answers:
        """Waits for the answers to the requests of one call.

        Args:
            caller: The name of the caller, such as an investigation.
            method: The method of the model that answers the requests.
            payload: A list with one item: the object reference of the list of requests. The outer list prevents Ray
                from fetching the object.
            keys: The cache key of each request; an empty string disables the cache for it.
            size: The size of all requests in bytes.

        Raises:
            ServiceError: If a request could not be answered.
            UsageError: If no replica of the pool can be loaded.
        """
        return await self.core.submit(caller, method, payload[0], keys, size)

    async def acquire(self, caller: str, conversation: str, alone: bool = False) -> ReplicaLease:
        """Returns a lease: the permission to send one chat to a replica. Waits until the replica has room for it.

        Args:
            caller: The name of the caller, such as an investigation.
            conversation: The id of the conversation. All chats of a conversation go to the same replica, whose KV cache
                holds their common prefix. If empty, any replica may be chosen.
            alone: Whether the replica must answer no other chat at the same time, because replicas have failed on this
                chat before.

        Raises:
            UsageError: If no replica of the pool can be loaded.
            ServiceError: If `leave` was called for the caller before.
        """
        return await self.core.acquire(caller, conversation, alone)

    async def release(self, lease_id: int, result: LeaseResult) -> None:
        """Ends the lease with this id, a permission to send one chat. `result` says whether the replica answered it."""
        self.core.release(lease_id, result)

    async def leave(self, callers: list[str]) -> None:
        """Removes the requests, leases and conversations of callers that have ended or died.

        A lease is the permission to send one chat to a replica. Later calls of `acquire` by these callers are refused,
        so the name of a caller must not be used again.

        Args:
            callers: The names of the callers, such as investigations.
        """
        for caller in callers:
            self.core.leave(caller)

    async def update(self, actors: Mapping[int, Any]) -> None:
        """Replaces the set of the pool's replicas.

        The driver, which starts and ends replicas, calls this after each change.

        Args:
            actors: The Ray actor handles of all replicas that the pool has now, by their index.
        """
        self.core.update(actors)

    async def drain(self, index: int) -> None:
        """Stops sending work to a replica, and moves its conversations to other replicas.

        Args:
            index: The index of the replica in the pool.
        """
        self.core.drain(index)

    async def release_replicas(self) -> None:
        """Permits the pool to end its replicas when they are idle. A later request starts a replica again."""
        self.core.released = True

    async def status(self) -> PoolStatus:
        """Returns the state of the pool's queue and replicas."""
        return self.core.status()

    async def statistics(self) -> PoolStatistics:
        """Returns counts and times of the pool's requests, batches and failures since the dispatcher started."""
        return self.core.statistics()
