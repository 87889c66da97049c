"""The dispatcher of a pool: an actor that queues requests and sends batches of them to idle replicas.

A request waits until a replica is idle (late binding), which then gets the largest compatible batch. If a replica dies or
misses the deadline, the requests of its batch are retried one by one, and a request during which a second replica dies
fails. The requests are in Ray's object store; the dispatcher handles only references to them.

Language models batch requests themselves. For them the dispatcher grants leases (`acquire`, `release`), and the caller
calls the replica that holds its conversation directly.
"""

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

_LEASE_DEADLINES = 2
"""A lease that nobody releases ends after this multiple of the deadline of a chat."""

_ENDED_CALLERS = 10_000
"""So many callers that have ended, the latest ones, are refused leases."""

_log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class _GrantedLease:
    request: QueuedRequest
    handle: ReplicaHandle
    life: int
    began: float


class Dispatcher:
    """The Ray actor class of a dispatcher.

    Ray runs all methods in the event loop of the actor, also those that are not async. The driver owns the replicas; after
    a restart of the dispatcher it sends their handles again (`update`).

    Args:
        spec: The description of the pool.
        cache: The settings of the cache of answers. None disables it.
    """

    def __init__(self, spec: PoolSpec, cache: CacheSpec | None = None):
        self._spec = spec
        self._incarnation = uuid4().hex
        self._released = False
        self._counts = PoolStatistics()
        self._leases: dict[int, _GrantedLease] = {}
        self._next_lease = uuid4().int >> 66  # so that leases of the dispatcher before a restart have other numbers
        self._ended: LRUCache[str, None] = LRUCache(_ENDED_CALLERS)
        self._dispatch_due = False
        self._replicas = ReplicaSet(spec, self._on_ready, self._on_broken)
        self._requests = RequestTracker(spec, cache, self._counts, self._replicas.spawn, self._dispatch_soon)
        self._metrics = Metrics(spec.role, spec.run)

    def __repr__(self) -> str:
        return f"{self._spec.role}-dispatcher"

    async def admit(self, caller: str, count: int, size: int) -> None:
        """Waits until the pool may take `count` requests of `size` bytes in total.

        If no replica can be loaded, it returns at once, and `submit` raises the error.
        """
        if not self._replicas.broken:
            await self._requests.admission.admit(caller, count, size)

    async def submit(self, caller: str, method: str, payload: list[Any], keys: list[str], size: int) -> Answers:
        """Waits for the answers to the requests of one call.

        Args:
            caller: The name of the caller, such as an investigation.
            method: The method of the model that answers the requests.
            payload: The object reference of the list of requests, in a list so that Ray does not fetch the object.
            keys: The cache key of each request; an empty string disables the cache for it.
            size: The size of all requests in bytes.

        Raises:
            ServiceError: If a request could not be answered.
            UsageError: If no replica can be loaded.
        """
        self._refuse_if_broken()
        return await self._requests.submit(caller, method, payload[0], keys, size)

    async def acquire(self, caller: str, conversation: str, alone: bool = False) -> ReplicaLease:
        """Returns a lease: the permission to send one chat to a replica. Waits until the replica has room for it.

        Args:
            caller: The name of the caller, such as an investigation.
            conversation: All chats of a conversation go to the same replica. If empty, any replica may be chosen.
            alone: Whether the replica must answer no other chat at the same time.

        Raises:
            UsageError: If no replica can be loaded.
            ServiceError: If `leave` was called for the caller before.
        """
        self._refuse_if_broken()
        # A process on a node that was cut off may call this when the network is back, although its work has been given
        # to another process meanwhile. It ends before it could release a lease.
        if caller in self._ended:
            raise ServiceError(f"{caller} has been given up, and gets no lease")
        return await self._requests.wait_for_lease(caller, conversation, alone)

    def release(self, lease_id: int, result: LeaseResult) -> None:
        """Ends a lease. Restarts the replica if it died or did not answer in time. Ignores unknown leases."""
        lease = self._leases.pop(lease_id, None)
        if lease is None:
            return  # the dispatcher was restarted meanwhile, or `leave` was called for the caller
        self._requests.affinity.close(lease.request)
        self._end_batch(lease.handle, lease.began, 1, is_answered=result.reply is not None)
        if result.failure in ("died", "late"):
            self._lose(lease.handle, lease.life, kill=result.failure == "late")
        if result.failure:
            self._requests.count_failure(result.failure)
        if result.reply is not None:
            self._observe_latency([lease.request])
            self._counts.prompt_tokens += result.reply.prompt_tokens
            self._counts.cached_tokens += result.reply.cached_tokens
            self._counts.generated_tokens += result.reply.generated_tokens
        self._dispatch_soon()

    def leave(self, callers: list[str]) -> None:
        """Removes the requests, leases and conversations of callers that have ended or died.

        Later calls of `acquire` by them are refused, so the name of a caller must not be used again.
        """
        for caller in callers:
            self._ended[caller] = None
            for lease_id in [at for at, lease in self._leases.items() if lease.request.caller == caller]:
                self.release(lease_id, LeaseResult())
            self._requests.leave(caller)

    def update(self, actors: Mapping[int, Any]) -> None:
        """Replaces the set of replicas: their Ray actor handles, by index. The driver calls this after each change."""
        for handle in list(self._replicas):
            if handle.index not in actors:
                self._requests.affinity.remove_replica(handle.index)
        self._replicas.update(actors)

    def drain(self, index: int) -> None:
        """Stops sending work to a replica, and moves its conversations to the others."""
        self._replicas.drain(index)
        self._requests.affinity.remove_replica(index)

    def release_replicas(self) -> None:
        """Permits the pool to end its replicas when they are idle. A later request starts a replica again."""
        self._released = True

    def status(self) -> PoolStatus:
        """Returns the state of the pool, and publishes its statistics as Ray metrics. The driver calls this regularly."""
        handles = list(self._replicas)
        chats = self._spec.concurrency
        busy = sum(1.0 if one.exclusive else min(one.in_flight / max(chats, 1), 1.0) for one in handles)
        waiting = len(self._requests.queue) + self._requests.admission.outside
        statistics = self.statistics()
        self._metrics.publish(statistics)
        return PoolStatus(
            incarnation=self._incarnation,
            drained=tuple(handle.index for handle in handles if handle.draining and not handle.in_flight),
            unplaced=tuple(one.index for one in handles if not (one.started or one.draining)),
            demand=busy + waiting / (chats or self._spec.config.max_batch),
            released=self._released,
            statistics=statistics,
            notes=self._replicas.take_notes(),
        )

    def statistics(self) -> PoolStatistics:
        """Returns the statistics of the pool since the dispatcher started."""
        now = asyncio.get_running_loop().time()
        counts, cache = self._counts, self._requests.cache
        for handle in self._replicas:
            if handle.in_flight:
                counts.busy_seconds += now - handle.busy_since
                handle.busy_since = now
            if handle.ready:
                counts.replica_seconds += now - handle.ready_since
                handle.ready_since = now
        return replace(
            counts,
            failures=dict(counts.failures),
            deaths=self._replicas.deaths,
            waiting=len(self._requests.queue),
            outside=self._requests.admission.outside,
            replicas=len(self._replicas.ready()),
            cache_hits=cache.hits if cache else 0,
            cache_misses=cache.misses if cache else 0,
            cache_joined=cache.joined if cache else 0,
        )

    # -- dispatching -------------------------------------------------------------------------------------------------

    def _dispatch_soon(self) -> None:
        # One call for all changes in this iteration of the event loop.
        if not self._dispatch_due:
            self._dispatch_due = True
            asyncio.get_running_loop().call_soon(self._dispatch)

    def _dispatch(self) -> None:
        self._dispatch_due = False
        sent = True
        while sent and len(self._requests.queue):
            sent = False
            awaited = set[QueuedRequest]()
            # Of equals the one that has answered last, so that no request waits for one that hangs (see `take`).
            for handle in sorted(self._replicas.ready(), key=lambda one: (one.in_flight, -one.ended_at)):
                batch = self._next_batch(handle, awaited)
                if batch:
                    self._begin_batch(handle, batch)
                    sent = True

    def _next_batch(self, handle: ReplicaHandle, awaited: set[QueuedRequest]) -> list[QueuedRequest]:
        concurrency = self._spec.concurrency
        if handle.exclusive or handle.in_flight >= (concurrency or 1):
            return []

        def accepts(request: QueuedRequest) -> bool:
            return self._requests.affinity.accepts(request, handle.index)

        limit = 1 if concurrency else self._spec.config.max_batch
        return self._requests.queue.take(limit, accepts, awaited, idle=handle.in_flight == 0)

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
            self._replicas.spawn(self._send(handle, batch, now))
        elif batch[0].alone:
            self._replicas.spawn(self._grant_alone(batch[0], handle, now))
        else:
            self._grant(batch[0], handle, now)

    async def _grant_alone(self, request: QueuedRequest, handle: ReplicaHandle, began: float) -> None:
        if await self._is_alive(handle, handle.life, [request]) and request.caller not in self._ended:
            self._grant(request, handle, began)
            return
        if request.caller in self._ended:  # it has left meanwhile
            self._requests.leave(request.caller)
            self._requests.affinity.close(request)
        self._end_batch(handle, began, 1, is_answered=False)
        self._dispatch_soon()

    def _grant(self, request: QueuedRequest, handle: ReplicaHandle, began: float) -> None:
        self._next_lease += 1
        self._leases[self._next_lease] = _GrantedLease(request, handle, handle.life, began)
        # Nobody calls `leave` for the callers of a driver that was killed.
        seconds = _LEASE_DEADLINES * self._spec.config.deadline
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
                self._requests.take_answer(request, value)
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
        # Asked before a request is retried alone, so that a death before it does not count against the request.
        try:
            await asyncio.wait_for(handle.actor.node.remote(), self._spec.config.deadline)
            return True
        except (*DEAD, TimeoutError) as error:
            self._lose(handle, life, kill=isinstance(error, TimeoutError))
            self._requests.queue_again(batch)
            return False

    # -- failures ----------------------------------------------------------------------------------------------------

    def _on_error(self, handle: ReplicaHandle, life: int, batch: list[QueuedRequest], error: RayTaskError) -> None:
        cause = error.cause if isinstance(error.cause, OpenMaiaError) else None
        if isinstance(cause, ReplicaNotLoaded):
            self._lose(handle, life, kill=False)
            self._requests.queue_again(batch)  # it did not begin with them
        elif isinstance(cause, HostDead):
            self._on_death(handle, life, batch, is_late=False, kill=True)
        elif len(batch) > 1:
            self._requests.queue_again(batch, alone=True)
        else:
            raised = cause or ServiceError(f"the {self._spec.role} failed: {last_line(error)}")
            self._requests.fail(batch[0], "error", raised)

    def _on_death(
        self, handle: ReplicaHandle, life: int, batch: list[QueuedRequest], *, is_late: bool, kill: bool = False
    ) -> None:
        self._lose(handle, life, kill=kill or is_late)
        reason = f"gave no answer within {self._spec.config.deadline:g} s" if is_late else "died"
        for request in batch:
            request.deaths += 1
            if request.deaths == 2:
                error = ServiceError(f"the {self._spec.role} {reason} twice over this request")
                self._requests.fail(request, "late" if is_late else "died", error)
        self._requests.queue_again([request for request in batch if request.deaths < 2], alone=True)

    def _lose(self, handle: ReplicaHandle, life: int, *, kill: bool) -> None:
        if self._replicas.lose(handle, life, kill=kill):
            self._requests.affinity.remove_replica(handle.index)

    def _refuse_if_broken(self) -> None:
        if self._replicas.broken:
            raise UsageError(self._replicas.broken)

    def _on_ready(self, handle: ReplicaHandle) -> None:
        handle.ready_since = asyncio.get_running_loop().time()
        self._requests.affinity.add_replica(handle.index)
        self._dispatch_soon()

    def _on_broken(self) -> None:
        self._requests.fail_all(UsageError(self._replicas.broken))
