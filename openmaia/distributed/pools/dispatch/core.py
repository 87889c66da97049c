"""The implementation of a dispatcher: it sends batches to idle replicas and handles the failures of replicas."""

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any
from uuid import uuid4

from cachetools import LRUCache
from ray.exceptions import RayTaskError

from openmaia.core.errors import HostDead, OpenMaiaError, ServiceError, UsageError
from openmaia.distributed.failures import DEAD, last_line
from openmaia.distributed.pools.dispatch.cache import CacheSpec
from openmaia.distributed.pools.dispatch.queueing import Answers, QueuedRequest
from openmaia.distributed.pools.dispatch.replica_set import ReplicaHandle, ReplicaSet
from openmaia.distributed.pools.dispatch.requests import RequestTracker
from openmaia.distributed.pools.replica import PoolSpec, ReplicaNotLoaded
from openmaia.distributed.pools.statistics import Metrics, PoolStatistics
from openmaia.distributed.pools.status import LeaseResult, PoolStatus, ReplicaLease

PUBLISH_SECONDS = 1.0
"""Time in seconds between two publications of the statistics as Ray metrics."""

LEASE_DEADLINES = 2
"""A lease that nobody releases ends after this multiple of the deadline of a chat."""

ENDED_CALLERS = 10_000
"""The dispatcher remembers this number of callers that have ended, the latest ones, and refuses leases to them."""

_log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class _GrantedLease:
    request: QueuedRequest
    handle: ReplicaHandle
    life: int
    began: float


class PoolCore:
    """The state and the logic of a dispatcher, which distributes the requests of callers to the replicas of a pool.

    It must be constructed in an event loop, and all methods must be called from that event loop.

    Args:
        spec: The description of the pool.
        cache: The settings of the cache of answers. None disables it.
    """

    def __init__(self, spec: PoolSpec, cache: CacheSpec | None):
        self._spec = spec
        self.incarnation = uuid4().hex
        self.released = False
        self._counts = PoolStatistics()
        self._leases: dict[int, _GrantedLease] = {}
        self._next_lease = uuid4().int >> 66  # so that leases of the dispatcher before a restart have other numbers
        self._ended: LRUCache[str, None] = LRUCache(ENDED_CALLERS)
        self._dispatch_due = False
        self._ready_since: dict[int, float] = {}
        self.replicas = ReplicaSet(spec, self._on_ready, self._on_broken)
        self.requests = RequestTracker(spec, cache, self._counts, self.replicas.spawn, self._dispatch_soon)
        self._metrics = Metrics(spec.role, spec.run)
        self.replicas.spawn(self._publish())

    async def submit(self, caller: str, method: str, payload: Any, keys: list[str], size: int) -> Answers:
        """Queues the requests of one call and returns their answers. See `Dispatcher.submit`.

        Raises:
            UsageError: If no replica of the pool can be loaded.
            ServiceError: If a request could not be answered.
        """
        self._refuse_if_broken()
        return await self.requests.submit(caller, method, payload, keys, size)

    async def acquire(self, caller: str, conversation: str, alone: bool = False) -> ReplicaLease:
        """Waits until a replica of a language model has room for a chat, and returns the permission to send the chat.

        All chats of a conversation go to the same replica. See `Dispatcher.acquire` for the arguments.

        Raises:
            UsageError: If no replica of the pool can be loaded.
            ServiceError: If `leave` was called for the caller before.
        """
        # A process on a node that was cut off may call this when the network is back, although its work has been given
        # to another process meanwhile. It ends before it could release a lease.
        self._refuse_if_broken()
        if caller in self._ended:
            raise ServiceError(f"{caller} has been given up, and gets no lease")
        return await self.requests.wait_for_lease(caller, conversation, alone)

    def release(self, lease_id: int, result: LeaseResult) -> None:
        """Ends a lease, the permission to send one chat to a replica. Ignores unknown leases.

        Restarts the replica if it died or did not answer in time.
        """
        lease = self._leases.pop(lease_id, None)
        if lease is None:
            return  # the dispatcher was restarted meanwhile, or `leave` was called for the caller
        self.requests.affinity.close(lease.request)
        self._end_batch(lease.handle, lease.began, 1, is_answered=result.reply is not None)
        if result.failure in ("died", "late"):
            self._lose(lease.handle, lease.life, kill=result.failure == "late")
        if result.failure:
            self.requests.count_failure(result.failure)
        if result.reply is not None:
            self._observe_latency([lease.request])
            self._counts.prompt_tokens += result.reply.prompt_tokens
            self._counts.cached_tokens += result.reply.cached_tokens
            self._counts.generated_tokens += result.reply.generated_tokens
        self._dispatch_soon()

    def leave(self, caller: str) -> None:
        """Removes the requests, leases and conversations of a caller that has ended or died.

        The caller gets no more leases.
        """
        self._ended[caller] = None
        for lease_id in [at for at, lease in self._leases.items() if lease.request.caller == caller]:
            self.release(lease_id, LeaseResult())
        self.requests.leave(caller)

    def update(self, actors: Mapping[int, Any]) -> None:
        """Replaces the set of replicas by those that the driver, the process that executes the runs, has now.

        Args:
            actors: The Ray actor handles of the replicas, by the index of the replica.
        """
        for handle in list(self.replicas):
            if handle.index not in actors:
                self._forget(handle.index)
        self.replicas.update(actors)

    def drain(self, index: int) -> None:
        """Stops sending work to a replica and moves its conversations to the others."""
        self.replicas.drain(index)
        self.requests.affinity.remove_replica(index)

    def status(self) -> PoolStatus:
        """Returns the state of the pool's queue and replicas."""
        handles = list(self.replicas)
        queue = self.requests.queue
        chats = self._spec.concurrency
        busy = sum(1.0 if one.exclusive else min(one.in_flight / max(chats, 1), 1.0) for one in handles)
        waiting = len(queue) + self.requests.admission.outside
        return PoolStatus(
            incarnation=self.incarnation,
            drained=tuple(handle.index for handle in handles if handle.draining and not handle.in_flight),
            unplaced=tuple(one.index for one in handles if not (one.started or one.draining)),
            demand=busy + waiting / (chats or self._spec.config.max_batch),
            released=self.released,
            statistics=self.statistics(),
            notes=self.replicas.take_notes(),
        )

    def statistics(self) -> PoolStatistics:
        """Returns the statistics of the pool since the dispatcher started."""
        now = asyncio.get_running_loop().time()
        counts, cache = self._counts, self.requests.cache
        for handle in self.replicas:
            if handle.in_flight:
                counts.busy_seconds += now - handle.busy_since
                handle.busy_since = now
            if handle.ready:
                counts.replica_seconds += now - self._ready_since.get(handle.index, now)
                self._ready_since[handle.index] = now
        return replace(
            counts,
            failures=dict(counts.failures),
            deaths=self.replicas.deaths,
            waiting=len(self.requests.queue),
            outside=self.requests.admission.outside,
            replicas=len(self.replicas.ready()),
            cache_hits=cache.hits if cache else 0,
            cache_misses=cache.misses if cache else 0,
            cache_joined=cache.joined if cache else 0,
        )

    # -- dispatching -------------------------------------------------------------------------------------------------

    def _dispatch_soon(self) -> None:
        """Schedules one call of `_dispatch` for all changes in this iteration of the event loop."""
        if not self._dispatch_due:
            self._dispatch_due = True
            asyncio.get_running_loop().call_soon(self._dispatch)

    def _dispatch(self) -> None:
        """Sends batches to replicas, least loaded first, until no replica can take more or the queue is empty."""
        self._dispatch_due = False
        sent = True
        while sent and len(self.requests.queue):
            sent = False
            awaited = set[QueuedRequest]()
            # Of equals the one that has answered last, so that no request waits for one that hangs (see `take`).
            for handle in sorted(self.replicas.ready(), key=lambda one: (one.in_flight, -one.ended_at)):
                batch = self._next_batch(handle, awaited)
                if batch:
                    self._begin_batch(handle, batch)
                    sent = True

    def _next_batch(self, handle: ReplicaHandle, awaited: set[QueuedRequest]) -> list[QueuedRequest]:
        concurrency = self._spec.concurrency
        if handle.exclusive or handle.in_flight >= (concurrency or 1):
            return []

        def accepts(request: QueuedRequest) -> bool:
            return self.requests.affinity.accepts(request, handle.index)

        limit = 1 if concurrency else self._spec.config.max_batch
        return self.requests.queue.take(limit, accepts, awaited, idle=handle.in_flight == 0)

    def _begin_batch(self, handle: ReplicaHandle, batch: list[QueuedRequest]) -> None:
        now = asyncio.get_running_loop().time()
        handle.begin(now, exclusive=batch[0].alone)
        counts, concurrency = self._counts, self._spec.concurrency
        counts.batches += 1
        counts.batched += len(batch)
        counts.batch_fill += handle.in_flight / concurrency if concurrency else len(batch) / self._spec.config.max_batch
        counts.under_way += len(batch)
        waited = [now - request.queued_at for request in batch]
        counts.queue_seconds += sum(waited)
        counts.longest_queue_seconds = max(counts.longest_queue_seconds, *waited)
        if not concurrency:
            self.replicas.spawn(self._send(handle, batch, now))
        elif batch[0].alone:
            self.replicas.spawn(self._grant_alone(batch[0], handle, now))
        else:
            self._grant(batch[0], handle, now)

    async def _grant_alone(self, request: QueuedRequest, handle: ReplicaHandle, began: float) -> None:
        """Grants a lease for a chat that is tried alone, if the replica is alive. Otherwise the chat is queued again."""
        if await self._is_alive(handle, handle.life, [request]) and request.caller not in self._ended:
            self._grant(request, handle, began)
            return
        if request.caller in self._ended:  # it has left meanwhile
            self.requests.leave(request.caller)
            self.requests.affinity.close(request)
        self._end_batch(handle, began, 1, is_answered=False)
        self._dispatch_soon()

    def _grant(self, request: QueuedRequest, handle: ReplicaHandle, began: float) -> None:
        """Grants a lease, the permission to send a chat to a replica, to the caller of a request."""
        self._next_lease += 1
        self._leases[self._next_lease] = _GrantedLease(request, handle, handle.life, began)
        # Nobody calls `leave` for the callers of a driver that was killed.
        seconds = LEASE_DEADLINES * self._spec.config.deadline
        asyncio.get_running_loop().call_later(seconds, self.release, self._next_lease, LeaseResult())
        request.answer(ReplicaLease(self._next_lease, handle.actor))

    def _end_batch(self, handle: ReplicaHandle, began: float, count: int, *, is_answered: bool) -> None:
        now = asyncio.get_running_loop().time()
        self._counts.under_way -= count
        self._counts.busy_seconds += handle.end(now)
        if is_answered:
            self._counts.service_seconds += (now - began) / (self._spec.concurrency or 1)

    def _observe_latency(self, batch: list[QueuedRequest]) -> None:
        oldest = min(request.queued_at for request in batch)
        self._metrics.batch_answered(asyncio.get_running_loop().time() - oldest)

    async def _send(self, handle: ReplicaHandle, batch: list[QueuedRequest], began: float) -> None:
        life, deadline, is_answered = handle.life, self._spec.config.deadline, False
        try:
            if batch[0].alone and not await self._is_alive(handle, life, batch):
                return
            call = handle.actor.answer.options(name=f"{self._spec.role} x {len(batch)}")
            references = [request.reference for request in batch]
            result = await asyncio.wait_for(call.remote(batch[0].method, references), deadline)
            for request, value in zip(batch, result.values, strict=True):
                request.seconds += result.seconds / len(batch)
                self.requests.take_answer(request, value)
            self._observe_latency(batch)
            is_answered = True
        except RayTaskError as error:
            self._on_error(handle, life, batch, error)
        except (*DEAD, TimeoutError) as error:
            self._on_death(handle, life, batch, is_late=isinstance(error, TimeoutError))
        except Exception:  # any error must end the batch, so that no caller waits forever
            _log.exception("a replica of the %s is given up", self._spec.role)
            self._on_death(handle, life, batch, is_late=False, kill=True)
        finally:
            self._end_batch(handle, began, len(batch), is_answered=is_answered)
            self._dispatch_soon()

    async def _is_alive(self, handle: ReplicaHandle, life: int, batch: list[QueuedRequest]) -> bool:
        """Returns whether a replica is alive. It is called before a request is retried alone.

        If the replica is dead, it is restarted and the request is queued again. This death does not count against the
        request.
        """
        try:
            await asyncio.wait_for(handle.actor.node.remote(), self._spec.config.deadline)
            return True
        except (*DEAD, TimeoutError) as error:
            self._lose(handle, life, kill=isinstance(error, TimeoutError))
            self._put_back(batch)
            return False

    def _put_back(self, batch: list[QueuedRequest]) -> None:
        """Puts requests that a replica did not process back at the front of the queue."""
        for request in batch:
            request.queued_at = asyncio.get_running_loop().time()
        self.requests.queue.push_first(batch)

    # -- failures ----------------------------------------------------------------------------------------------------

    def _on_error(self, handle: ReplicaHandle, life: int, batch: list[QueuedRequest], error: RayTaskError) -> None:
        """Handles an exception that the replica raised for a batch.

        After an exception of the model, the requests of a larger batch are retried one by one, and a single request
        fails. `ReplicaNotLoaded` means that the requests were not processed, so they are queued again. Any other
        `HostDead` error is treated like the death of the replica.
        """
        cause = error.cause if isinstance(error.cause, OpenMaiaError) else None
        if isinstance(cause, ReplicaNotLoaded):
            self._lose(handle, life, kill=False)
            self._put_back(batch)
        elif isinstance(cause, HostDead):
            self._on_death(handle, life, batch, is_late=False, kill=True)
        elif len(batch) > 1:
            self.requests.retry_alone(batch)
        else:
            raised = cause or ServiceError(f"the {self._spec.role} failed: {last_line(error)}")
            self.requests.fail(batch[0], "error", raised)

    def _on_death(
        self, handle: ReplicaHandle, life: int, batch: list[QueuedRequest], *, is_late: bool, kill: bool = False
    ) -> None:
        """Handles the death of a replica during a batch. Requests are retried alone and fail after a second death."""
        self._lose(handle, life, kill=kill or is_late)
        reason = f"gave no answer within {self._spec.config.deadline:g} s" if is_late else "died"
        for request in batch:
            request.deaths += 1
            if request.deaths == 2:
                error = ServiceError(f"the {self._spec.role} {reason} twice over this request")
                self.requests.fail(request, "late" if is_late else "died", error)
        self.requests.retry_alone([request for request in batch if request.deaths < 2])

    def _lose(self, handle: ReplicaHandle, life: int, *, kill: bool) -> None:
        if self.replicas.lose(handle, life, kill=kill):
            self._forget(handle.index)

    def _forget(self, index: int) -> None:
        self._ready_since.pop(index, None)
        self.requests.affinity.remove_replica(index)

    def _refuse_if_broken(self) -> None:
        if self.replicas.broken:
            raise UsageError(self.replicas.broken)

    def _on_ready(self, handle: ReplicaHandle) -> None:
        self._ready_since[handle.index] = asyncio.get_running_loop().time()
        self.requests.affinity.add_replica(handle.index)
        self._dispatch_soon()

    def _on_broken(self) -> None:
        """Fails all waiting requests, because no replica can be loaded."""
        self.requests.fail_all(UsageError(self.replicas.broken))

    async def _publish(self) -> None:
        while True:
            self._metrics.publish(self.statistics())
            await asyncio.sleep(PUBLISH_SECONDS)
