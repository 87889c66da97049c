"""Tracks the requests inside a pool: admission, cache lookup, queue, answer and failure."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from openmaia.core.errors import OpenMaiaError, ServiceError
from openmaia.distributed.pools.dispatch.admission import AdmissionControl
from openmaia.distributed.pools.dispatch.affinity import AffinityRouter
from openmaia.distributed.pools.dispatch.cache import CacheSpec, GenerationCache
from openmaia.distributed.pools.dispatch.queueing import Answers, FairQueue, PendingCall, QueuedRequest, RequestRef
from openmaia.distributed.pools.replica import LostRequest, PoolSpec, lost
from openmaia.distributed.pools.statistics import PoolStatistics


class RequestTracker:
    """Tracks each request to a pool from its arrival to its answer.

    Args:
        spec: The description of the pool, with its limits.
        cache: The settings of the cache of answers. None disables it.
        counts: The statistics of the pool, which are updated.
        spawn: Runs a coroutine in the background.
        on_queued: Called when a request was queued.
    """

    def __init__(
        self,
        spec: PoolSpec,
        cache: CacheSpec | None,
        counts: PoolStatistics,
        spawn: Callable[[Coroutine[Any, Any, None]], None],
        on_queued: Callable[[], None],
    ):
        self.queue = FairQueue()
        self.affinity = AffinityRouter()
        self.admission = AdmissionControl(spec.max_waiting, spec.max_waiting_bytes)
        self.cache = GenerationCache(cache) if cache else None
        self._under_way: dict[str, QueuedRequest] = {}
        self._counts, self._spawn, self._on_queued = counts, spawn, on_queued

    async def submit(self, caller: str, method: str, payload: Any, keys: Sequence[str], size: int) -> Answers:
        """See `Dispatcher.submit`, except that `payload` is the object reference itself."""
        self.admission.enter(caller, len(keys), size)
        self._counts.requests += len(keys)
        call = PendingCall.of(caller, len(keys))
        share = size // len(keys)
        for index, key in enumerate(keys):
            request = QueuedRequest(
                method=method,
                reference=RequestRef(payload, index),
                caller=caller,
                waiters=[(call, index)],
                key=key,
                size=share if index else size - share * (len(keys) - 1),
                is_admitted=True,
            )
            self._accept(request)
        return await self._wait(call)

    async def wait_for_lease(self, caller: str, conversation: str, alone: bool = False) -> Any:
        """Waits until a chat may be sent to the replica of its conversation, and returns the `ReplicaLease`. See
        `Dispatcher.acquire`."""
        self._counts.requests += 1
        call = PendingCall.of(caller, 1)
        request = QueuedRequest(
            method="reply",
            reference=RequestRef(None, 0),
            caller=caller,
            conversation=conversation,
            waiters=[(call, 0)],
            alone=alone,
        )
        self.affinity.open(request)
        self._enqueue(request)
        return (await self._wait(call)).values[0]

    def take_answer(self, request: QueuedRequest, value: Any) -> None:
        """Ends a request with the value that a replica has returned for it."""
        if isinstance(value, LostRequest):
            self.fail(request, "lost", lost(value))
        else:
            self._finish(request, value)

    def fail(self, request: QueuedRequest, cause: str, error: OpenMaiaError) -> None:
        """Ends a request with an error. `cause` is one of the keys of `PoolStatistics.failures`."""
        self.count_failure(cause)
        self._close(request)
        request.fail(error)

    def count_failure(self, cause: str) -> None:
        """Counts a failure by its cause, a key of `PoolStatistics.failures`."""
        self._counts.failures[cause] = self._counts.failures.get(cause, 0) + 1

    def queue_again(self, batch: list[QueuedRequest], *, alone: bool = False) -> None:
        """Queues the requests of a failed batch again. If `alone`, each forms its own batch."""
        now = asyncio.get_running_loop().time()
        for request in batch:
            request.queued_at, request.alone = now, request.alone or alone
        self.queue.push(batch)
        self._on_queued()

    def leave(self, caller: str) -> None:
        """Removes the requests, conversations and reservations of a caller that has ended or died."""
        self._withdraw(caller, lambda call: call.caller == caller, ServiceError(f"{caller} has left"))
        self.affinity.forget(caller)
        self.admission.leave(caller)

    def fail_all(self, error: OpenMaiaError) -> None:
        """Fails all queued requests, because no replica can be loaded.

        Callers that wait for admission are admitted, and then fail, too.
        """
        for request in self.queue.clear():
            self.fail(request, "unusable", error)
        self.admission.let_all_go()

    async def _wait(self, call: PendingCall) -> Answers:
        try:
            return await call.done
        except asyncio.CancelledError:  # the caller's process has died, or Ray has resent its call
            self._withdraw(call.caller, lambda other: other is call, ServiceError(f"{call.caller} no longer waits"))
            raise

    def _accept(self, request: QueuedRequest) -> None:
        """Answers a request from the cache, merges it with an equal unfinished request, or queues it."""
        cache = self.cache
        if not request.key or cache is None:
            self._enqueue(request)
        elif (value := cache.get_from_memory(request.key)) is not None:
            cache.hits += 1
            self._free(request)
            request.answer(value)
        elif (first := self._under_way.get(request.key)) is not None:
            cache.joined += 1
            self._free(request)
            first.waiters += request.waiters
        else:
            self._under_way[request.key] = request
            if cache.is_on_disk(request.key):
                self._spawn(self._look_up(cache, request))
            else:
                cache.misses += 1
                self._enqueue(request)

    async def _look_up(self, cache: GenerationCache, request: QueuedRequest) -> None:
        value = await asyncio.to_thread(cache.get_from_disk, request.key)
        if value is not None:
            cache.hits += 1
            self._finish(request, value)
        elif request.waiters:
            cache.misses += 1
            self._enqueue(request)
        else:
            self._drop(request)

    def _enqueue(self, request: QueuedRequest) -> None:
        request.queued_at = asyncio.get_running_loop().time()
        self.queue.push([request])
        self._on_queued()

    def _finish(self, request: QueuedRequest, value: Any) -> None:
        self._close(request)
        if request.key and self.cache:
            self.cache.put(request.key, value)
        request.answer(value)

    def _withdraw(self, caller: str, is_gone: Callable[[PendingCall], bool], reason: Exception) -> None:
        """Removes the calls that are gone, and those queued requests for which no other call waits."""
        waiting = self.queue.drop(caller)
        for request in {*waiting, *self._under_way.values()}:
            request.forget(is_gone, reason)
        for request in waiting:
            if request.waiters:
                self.queue.push([request])
            else:
                self._drop(request)

    def _drop(self, request: QueuedRequest) -> None:
        self._counts.dropped += 1
        self._close(request)

    def _close(self, request: QueuedRequest) -> None:
        self._under_way.pop(request.key, None)
        self.affinity.close(request)
        self._free(request)

    def _free(self, request: QueuedRequest) -> None:
        if request.is_admitted:
            request.is_admitted = False
            self.admission.free(1, request.size)
