"""The dispatcher of a pool: an actor that queues requests and sends batches of them to idle replicas.

A request waits until a replica is idle (late binding), which then gets the largest compatible batch. If a replica dies or
misses the deadline, the requests of its batch are retried, the last time one by one, and fail if that replica dies, too.
The requests are in Ray's object store; the dispatcher handles only references to them.

Each request of a call settles by itself. An answer that nobody got, because another request of the call failed or the caller
died, is kept for whoever asks the same next.

Language models batch requests themselves. Their replicas get several chats at a time, each as a batch of one, and a
conversation stays on its replica.
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any
from uuid import uuid4

from cachetools import LRUCache
from ray.exceptions import RayTaskError

from openmaia.core.errors import HostDead, OpenMaiaError, ServiceError, ServiceUnavailable, UsageError
from openmaia.core.messages import Reply
from openmaia.core.money import FREE, Bill, bill_of
from openmaia.core.services import GeneratedImage
from openmaia.distributed.failures import DEAD, last_line
from openmaia.distributed.pools.dispatch.cache import CacheSpec, GenerationCache
from openmaia.distributed.pools.dispatch.queueing import AdmissionControl, FairQueue, Request, Stored
from openmaia.distributed.pools.dispatch.replica_set import ReplicaHandle, ReplicaSet
from openmaia.distributed.pools.replica import LostRequest, PoolSpec, ReplicaNotLoaded
from openmaia.distributed.pools.statistics import Metrics, PoolStatistics, PoolStatus

_DEATHS = 2
"""A request fails when so many replicas died or gave no answer in time over it. The last of them has no other requests."""

_DEATHS_OF_A_CHAT = 3
"""The same for a chat. One chat can kill a replica with all chats on it, and trying each of them alone would take long."""

_ENDED_CALLERS = 10_000
"""So many callers that have ended, the latest ones, are remembered."""

_UNDELIVERED = 128 << 20
"""Size in bytes of the answers that nobody got, the latest ones, that are kept."""

Settled = tuple[Any, float, Bill]
"""An answer, with the seconds of replicas and the bill for each caller."""

_log = logging.getLogger(__name__)


class Dispatcher:
    """The Ray actor class of a dispatcher.

    Ray runs all methods in the event loop of the actor, also those that are not async. The driver owns the replicas; after
    a restart of the dispatcher it sends their handles again (`update`).
    """

    def __init__(self, spec: PoolSpec, cache: CacheSpec | None = None):
        self._spec = spec
        self._incarnation = uuid4().hex
        self._released = self._dispatch_due = False
        self._counts = PoolStatistics()
        self._counted_at = 0.0
        self._metrics = Metrics(spec.role, spec.run)
        self._queue = FairQueue()
        self._admission = AdmissionControl(spec.max_waiting, spec.max_waiting_bytes)
        self._cache = GenerationCache(cache) if cache else None
        self._unfinished: dict[str, Request] = {}  # by `Request.key`, as the next one
        self._undelivered: LRUCache[str, Settled] = LRUCache(_UNDELIVERED, getsizeof=_size)
        self._calls: dict[asyncio.Future[Any], str] = {}  # each with its caller
        self._ended: LRUCache[str, None] = LRUCache(_ENDED_CALLERS)
        self._replicas = ReplicaSet(spec, self._on_ready, self._on_broken)

    def __repr__(self) -> str:
        return f"{self._spec.role}-dispatcher"

    async def admit(self, caller: str, count: int, size: int) -> None:
        """Waits until the pool may take `count` requests of `size` bytes in total, and reserves their room.

        If no replica can be loaded, it returns at once, and `submit` raises the error.
        """
        if not self._replicas.broken:
            await self._admission.admit(caller, count, size)
        if caller in self._ended:
            self._admission.leave(caller)

    async def submit(
        self, caller: str, method: str, payload: list[Any], keys: Sequence[str], conversations: Sequence[str], size: int
    ) -> tuple[list[Any], float, Bill]:
        """Waits for the answers to the requests of one call, and before that for room unless `admit` has reserved it.

        Args:
            caller: The name of the caller, such as an investigation.
            method: The method of the model that answers the requests.
            payload: The object reference of the list of requests, in a list so that Ray does not fetch the object.
            keys: For each request, see `Request.key`.
            conversations: For each request, see `Request.conversation`.
            size: The size of all requests in bytes.

        Returns:
            The answers, the seconds that replicas spent on them, and their bill. Answers from the cache are free.

        Raises:
            ServiceError: If a request could not be answered, after all have settled. Its bill is that of the call.
            UsageError: If no replica can be loaded.
        """
        await self._admission.enter(caller, len(keys), size)
        requests: list[Request] = []
        try:
            # A process on a node that was cut off asks again, although its work has been given to another meanwhile.
            if caller in self._ended:
                raise ServiceError(f"{caller} has left")
            if self._replicas.broken:
                raise UsageError(self._replicas.broken)
            self._counts.requests += len(keys)
            for at, (key, conversation) in enumerate(zip(keys, conversations, strict=True)):
                request = Request(method, Stored(payload[0], at), [caller], key=key, conversation=conversation)
                requests.append(self._accept(request))
            call = asyncio.gather(*(asyncio.shield(request.done) for request in requests), return_exceptions=True)
            self._calls[call] = caller
            call.add_done_callback(self._calls.pop)
            return self._joint_answer(requests, await call)
        except asyncio.CancelledError:  # `leave` was called, the caller's process has died, or Ray has resent its call
            for request in requests:
                if request.done.done() and not request.done.exception():
                    self._keep(request, request.done.result())
            if caller in self._ended:
                raise ServiceError(f"{caller} has left") from None
            raise
        finally:
            self._withdraw(caller, requests)
            self._admission.free(len(keys), size)

    def _joint_answer(
        self, requests: Sequence[Request], outcomes: Sequence[Settled | BaseException]
    ) -> tuple[list[Any], float, Bill]:
        answers = [one for one in outcomes if not isinstance(one, BaseException)]
        seconds, bill = sum(each[1] for each in answers), sum((each[2] for each in answers), FREE)
        errors = [one for one in outcomes if isinstance(one, OpenMaiaError)]
        if not errors:
            return [value for value, _, _ in answers], seconds, bill
        for request, outcome in zip(requests, outcomes, strict=True):
            if not isinstance(outcome, BaseException):
                self._keep(request, (outcome[0], outcome[1], FREE))
        # What is only unavailable is asked again at once, which is in vain if another request has failed for good.
        worst = next((error for error in errors if not isinstance(error, ServiceUnavailable)), errors[0])
        # Equal requests of a call may have the same error, which each of them pays.
        others = sum((error.bill for error in errors), bill)
        raise worst.billed(Bill(others.dollars - worst.bill.dollars, others.unpriced - worst.bill.unpriced))

    def leave(self, callers: list[str]) -> None:
        """Removes the requests, reservations and conversations of callers that have ended or died.

        The name of a caller must not be used again.
        """
        for caller in callers:
            self._ended[caller] = None
            for call in [call for call, by in self._calls.items() if by == caller]:
                call.cancel()
            self._replicas.affinity.forget(caller)
            self._admission.leave(caller)

    def update(self, actors: Mapping[int, Any]) -> None:
        """Replaces the set of replicas: their Ray actor handles, by index. The driver calls this after each change."""
        self._replicas.update(actors)

    def drain(self, index: int) -> None:
        """Stops sending work to a replica, and moves its conversations to the others."""
        self._replicas.drain(index)

    def release_replicas(self) -> None:
        """Permits the pool to end its replicas when they are idle. A later request starts a replica again."""
        self._released = True

    def status(self) -> PoolStatus:
        """Returns the state of the pool, and publishes its statistics as Ray metrics. The driver calls this regularly."""
        handles, chats, statistics = list(self._replicas), self._spec.concurrency, self.statistics()
        self._metrics.publish(statistics)
        busy = sum(1.0 if one.exclusive else min(one.in_flight / max(chats, 1), 1.0) for one in handles)
        waiting = statistics.waiting + statistics.outside
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
        self._count_time()
        return replace(
            self._counts,
            failures=dict(self._counts.failures),
            waiting=len(self._queue),
            outside=self._admission.outside,
            replicas=len(self._replicas.ready()),
        )

    def _count_time(self) -> float:
        # Called before replicas become ready, busy or idle, and returns the time.
        now = asyncio.get_running_loop().time()
        passed, self._counted_at = now - self._counted_at, now
        self._counts.busy_seconds += passed * sum(handle.in_flight > 0 for handle in self._replicas)
        self._counts.replica_seconds += passed * sum(handle.ready for handle in self._replicas)
        return now

    # -- from the call to the queue ----------------------------------------------------------------------------------

    def _accept(self, request: Request) -> Request:
        """Answers a request from what is kept, merges it with an equal unfinished request, or queues it."""
        cache, counts, first = self._cache, self._counts, self._unfinished.get(request.key)
        if not request.key:
            self._enqueue([request])
        elif (kept := self._undelivered.pop(request.key, None)) is not None:
            request.done.set_result(kept)
        elif cache and (value := cache.get_from_memory(request.key)) is not None:
            counts.cache_hits += 1
            request.done.set_result((value, 0.0, FREE))
        elif first is not None and (cache or not first.callers):  # the callers of an equal chat may have left it
            counts.cache_joined += 1
            first.caller = first.caller if first.callers else request.caller
            first.callers += request.callers
            first.copies.append(request.data)
            return first
        else:
            self._unfinished[request.key] = request
            if cache and cache.is_on_disk(request.key):
                self._replicas.spawn(self._look_up(cache, request))
            else:
                counts.cache_misses += cache is not None
                self._enqueue([request])
        return request

    def _keep(self, request: Request, answer: Settled) -> None:
        """Keeps an answer that nobody got, unless the cache has it and nobody has to pay for it."""
        if request.key and (answer[2] or not self._cache) and _size(answer) <= _UNDELIVERED:
            self._undelivered[request.key] = answer

    async def _look_up(self, cache: GenerationCache, request: Request) -> None:
        value = None
        with suppress(Exception):  # whatever is on the disk, no caller waits forever
            value = await asyncio.to_thread(cache.get_from_disk, request.key)
        if value is not None:
            self._counts.cache_hits += 1
            self._finish(request, value)
        elif request.callers:
            self._counts.cache_misses += 1
            self._enqueue([request])
        else:
            self._drop(request)

    def _enqueue(self, requests: list[Request]) -> None:
        waited_for = [request for request in requests if request.callers]
        for request in requests:
            if not request.callers:  # all have left while a replica had it
                self._drop(request)
        for request in waited_for:
            request.queued_at = asyncio.get_running_loop().time()
        self._queue.push(waited_for)
        self._dispatch_soon()

    def _withdraw(self, caller: str, requests: list[Request]) -> None:
        unanswered = [request for request in requests if not request.done.done()]
        for request in unanswered:
            request.callers.remove(caller)
        for request in self._queue.remove(lambda one: not one.callers) if unanswered else ():
            self._drop(request)

    def _drop(self, request: Request) -> None:
        self._counts.dropped += 1
        self._end(request)

    def _end(self, request: Request) -> None:
        if self._unfinished.get(request.key) is request:
            del self._unfinished[request.key]

    def _finish(self, request: Request, value: Any) -> None:
        self._end(request)
        callers, bill = max(len(request.callers), 1), request.bill + bill_of([value])
        if bill_of([value]):
            value = replace(value, bill=FREE)  # whoever gets it from the cache pays nothing
        if request.key and self._cache:
            self._cache.put(request.key, value)
        if isinstance(value, Reply):
            self._counts.prompt_tokens += value.prompt_tokens
            self._counts.cached_tokens += value.cached_tokens
            self._counts.generated_tokens += value.generated_tokens
        answer = value, request.seconds / callers, bill.shared(callers)
        request.done.set_result(answer)
        if not request.callers:
            self._keep(request, answer)

    def _fail(self, request: Request, cause: str, error: OpenMaiaError) -> None:
        self._end(request)
        self._counts.failures[cause] = self._counts.failures.get(cause, 0) + 1
        if request.callers:  # otherwise asyncio would report an error that nobody has seen
            request.done.set_exception(error.billed(request.bill.shared(len(request.callers))))

    # -- from the queue to a replica ---------------------------------------------------------------------------------

    def _dispatch_soon(self) -> None:
        # One call for all changes in this iteration of the event loop.
        if not self._dispatch_due:
            self._dispatch_due = True
            asyncio.get_running_loop().call_soon(self._dispatch)

    def _dispatch(self) -> None:
        self._dispatch_due, is_sent = False, True
        while is_sent and len(self._queue):
            sent = [self._send_next(one) for one in sorted(self._replicas.ready(), key=lambda one: one.in_flight)]
            is_sent = any(sent)

    def _send_next(self, handle: ReplicaHandle) -> bool:
        concurrency, most, counts = self._spec.concurrency, self._spec.config.max_batch, self._counts
        if handle.exclusive or handle.in_flight >= (concurrency or 1):
            return False
        accepts = partial(self._replicas.affinity.accepts, replica=handle.index)
        batch = self._queue.take(1 if concurrency else most, accepts, idle=not handle.in_flight)
        if not batch:
            return False
        now = self._count_time()
        handle.in_flight += 1
        handle.exclusive = batch[0].alone
        counts.batches += 1
        counts.batched += len(batch)
        counts.batch_fill += handle.in_flight / concurrency if concurrency else len(batch) / most
        counts.under_way += len(batch)
        waited = [now - request.queued_at for request in batch]
        counts.queue_seconds += sum(waited)
        counts.longest_queue_seconds = max(counts.longest_queue_seconds, *waited)
        self._replicas.spawn(self._send(handle, batch, now))
        return True

    async def _send(self, handle: ReplicaHandle, batch: list[Request], began: float) -> None:
        life, deadline, oldest = handle.life, self._spec.config.deadline, min(one.queued_at for one in batch)
        try:
            if batch[0].alone and not await self._is_alive(handle, life):
                self._enqueue(batch)
                return
            call = handle.actor.answer.options(name=f"{self._spec.role} x {len(batch)}")
            sent = call.remote(batch[0].method, [request.data for request in batch])
            values, seconds = await asyncio.wait_for(sent, deadline)
            for request, value in zip(batch, values, strict=True):
                request.seconds += seconds / len(batch)
                if isinstance(value, LostRequest) and request.copies:
                    request.data = request.copies.pop()
                    self._enqueue([request])
                elif isinstance(value, LostRequest):
                    self._fail(request, "lost", ServiceError(f"a request was lost: {value.reason}"))
                else:
                    self._finish(request, value)
            now = asyncio.get_running_loop().time()
            self._metrics.batch_answered(now - oldest)
            self._counts.service_seconds += (now - began) / (self._spec.concurrency or 1)
        except RayTaskError as error:
            self._on_error(handle, life, batch, error)
        except (*DEAD, TimeoutError) as error:
            self._on_death(handle, life, batch, is_late=isinstance(error, TimeoutError))
        except Exception:  # any error must end the batch, so that no caller waits forever
            _log.exception("a replica of the %s is given up", self._spec.role)
            self._on_death(handle, life, [one for one in batch if not one.done.done()], kill=True)
        finally:
            self._count_time()
            handle.in_flight -= 1
            handle.exclusive &= not batch[0].alone  # a chat of an earlier life may end while one is answered alone
            self._counts.under_way -= len(batch)
            self._dispatch_soon()

    async def _is_alive(self, handle: ReplicaHandle, life: int) -> bool:
        # Asked before a request is retried alone, so that a death before it does not count against the request.
        try:
            await asyncio.wait_for(handle.actor.process.remote(), self._spec.config.deadline)
            return True
        except (*DEAD, TimeoutError) as error:
            self._lose(handle, life, kill=isinstance(error, TimeoutError))
            return False

    # -- failures ----------------------------------------------------------------------------------------------------

    def _on_error(self, handle: ReplicaHandle, life: int, batch: list[Request], error: RayTaskError) -> None:
        cause = error.cause if isinstance(error.cause, OpenMaiaError) else None
        if cause is not None:
            for number, value in cause.answers.items():
                if number < len(batch):
                    self._finish(batch[number], value)
            batch = [request for number, request in enumerate(batch) if number not in cause.answers]
            if not batch:  # a component that raised although it had all answers
                return
            for request in batch:
                request.bill += Bill(cause.bill.dollars / len(batch))
            batch[0].bill += Bill(unpriced=cause.bill.unpriced)
            cause.bill, cause.answers = FREE, {}
        if isinstance(cause, ReplicaNotLoaded):
            self._lose(handle, life)
            self._enqueue(batch)  # it did not begin with them
        elif isinstance(cause, HostDead):
            self._on_death(handle, life, batch, kill=True)
        elif len(batch) > 1:
            for request in batch:
                request.alone = True
            self._enqueue(batch)
        else:
            raised = cause or ServiceError(f"the {self._spec.role} failed: {last_line(error)}")
            self._fail(batch[0], "error", raised)

    def _on_death(
        self, handle: ReplicaHandle, life: int, batch: list[Request], *, is_late: bool = False, kill: bool = False
    ) -> None:
        self._lose(handle, life, kill=kill or is_late)
        most = _DEATHS_OF_A_CHAT if self._spec.concurrency else _DEATHS
        for request in batch:
            request.deaths += 1
            request.alone |= request.deaths == most - 1
            if request.deaths == most:
                reason = f"gave no answer within {self._spec.config.deadline:g} s" if is_late else "died"
                times = "twice" if most == 2 else f"{most} times"
                error = ServiceError(f"the {self._spec.role} {reason} {times} over this request")
                self._fail(request, "late" if is_late else "died", error)
        self._enqueue([request for request in batch if request.deaths < most])

    def _lose(self, handle: ReplicaHandle, life: int, *, kill: bool = False) -> None:
        self._count_time()
        self._counts.deaths += self._replicas.lose(handle, life, kill=kill)

    def _on_ready(self) -> None:
        self._count_time()
        self._dispatch_soon()

    def _on_broken(self) -> None:
        for request in self._queue.remove(lambda one: True):
            self._fail(request, "unusable", UsageError(self._replicas.broken))


def _size(answer: Settled) -> int:
    """Returns the approximate size of the answer of a language model, or of an image, in bytes."""
    value = answer[0]
    return 1_000 + (len(value.image.data) if isinstance(value, GeneratedImage) else len(getattr(value, "text", "")))
