"""The queue of a pool: requests that wait for a replica, and the order in which they are served."""

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Answers:
    """The result of one call to a pool."""

    values: list[Any]
    """In the order of the requests."""
    seconds: float
    """Time that replicas spent on these requests."""


@dataclass(slots=True, eq=False)
class PendingCall:
    """A call to a pool that is not answered yet. Its requests are queued separately.

    The call ends when all its requests are answered, or when one of them fails.
    """

    caller: str
    values: list[Any]
    """The answers so far. None if a request has no answer yet."""
    missing: int
    """Number of requests without an answer."""
    done: asyncio.Future[Answers]
    """Receives the answers or the error."""
    seconds: float = 0.0

    @classmethod
    def of(cls, caller: str, count: int) -> "PendingCall":
        """Creates a call of `count` requests. Must be called in an event loop."""
        return cls(caller, [None] * count, count, asyncio.get_running_loop().create_future())

    def answer(self, index: int, value: Any, seconds: float) -> None:
        """Stores the answer to the request with this index, and ends the call if no other answer is missing."""
        self.values[index] = value
        self.seconds += seconds
        self.missing -= 1
        if self.missing == 0 and not self.done.done():
            self.done.set_result(Answers(self.values, self.seconds))

    def fail(self, error: Exception) -> None:
        """Ends the call with an error. Does nothing if the call has ended already."""
        if not self.done.done():
            self.done.set_exception(error)


@dataclass(frozen=True, slots=True)
class RequestRef:
    """A reference to the data of one request: an item of a list in Ray's object store."""

    payload: Any
    """The Ray object reference of the list. None for the request of a lease, which has no data."""
    index: int


@dataclass(slots=True, eq=False)
class QueuedRequest:
    """A request that waits for a replica or is being answered by one."""

    method: str
    """The method of the model that answers it."""
    reference: RequestRef
    caller: str
    conversation: str = ""
    """If empty, any replica may serve the request."""
    waiters: list[tuple[PendingCall, int]] = field(default_factory=list[tuple[PendingCall, int]])
    """The calls that wait for the answer, each with the index of the request in the call. Equal requests share an
    answer."""
    key: str = ""
    """The cache key of the answer; empty if the answer is not cached."""
    size: int = 0
    """Number of bytes that admission control counts for it."""
    is_admitted: bool = False
    """Whether admission control currently counts it."""
    queued_at: float = 0.0
    """Time at which it was queued last, on the clock of the event loop."""
    deaths: int = 0
    """Number of replicas that died while they processed it."""
    seconds: float = 0.0
    """Time that replicas spent on it."""
    alone: bool = False
    """Whether it must be the only request of its batch, because an earlier batch with it failed."""

    def answer(self, value: Any) -> None:
        """Passes the answer to all calls that wait for it. Each is charged an equal share of the replica time."""
        for call, index in self.waiters:
            call.answer(index, value, self.seconds / len(self.waiters))

    def fail(self, error: Exception) -> None:
        """Makes all calls that wait for this request fail with an error."""
        for call, _ in self.waiters:
            call.fail(error)

    def forget(self, is_gone: Callable[[PendingCall], bool], reason: Exception) -> None:
        """Ends the calls that are gone, for example those of a caller that has died.

        If calls of others remain, the caller of the first one becomes the caller of the request.
        """
        for call, _ in self.waiters:
            if is_gone(call):
                call.fail(reason)
        self.waiters = [(call, index) for call, index in self.waiters if not is_gone(call)]
        if self.waiters:
            self.caller = self.waiters[0][0].caller


class FairQueue:
    """A queue that serves callers round-robin, and the requests of one caller first in, first out.

    A call with many requests therefore does not block the other callers.
    """

    def __init__(self) -> None:
        self._by_caller: OrderedDict[str, deque[QueuedRequest]] = OrderedDict()
        self._retries: deque[QueuedRequest] = deque()
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def push(self, requests: Iterable[QueuedRequest]) -> None:
        """Adds requests, each at the end of the requests of its caller; those that are `alone`, before all others."""
        for request in requests:
            (self._retries if request.alone else self._by_caller.setdefault(request.caller, deque())).append(request)
            self._length += 1

    def take(
        self, limit: int, accepts: Callable[[QueuedRequest], bool], awaited: set[QueuedRequest], *, idle: bool
    ) -> list[QueuedRequest]:
        """Removes and returns the next batch for one replica.

        Args:
            limit: Largest number of requests in the batch.
            accepts: Returns whether this replica may serve a request.
            awaited: Requests that are retried alone, for each of which a replica already gets no other work. This call
                may add one.
            idle: Whether the replica is idle. A request that is retried alone is only given to an idle replica. A busy
                replica that may serve one gets no other requests, so that it becomes idle, unless the request is
                already in `awaited`.

        Returns:
            Requests for the same method, at most `limit`. Empty if the replica can serve none now.
        """
        alone = next((one for one in self._retries if accepts(one) and (idle or one not in awaited)), None)
        if alone is not None:
            if not idle:
                awaited.add(alone)
                return []
            self._retries.remove(alone)
            self._length -= 1
            return [alone]
        batch: list[QueuedRequest] = []
        served: list[str] = []
        for caller, waiting in self._by_caller.items():
            before = len(batch)
            while waiting and len(batch) < limit and accepts(waiting[0]):
                if batch and waiting[0].method != batch[0].method:
                    break
                batch.append(waiting.popleft())
            if len(batch) > before:
                served.append(caller)
            if len(batch) == limit:
                break
        for caller in served:
            if self._by_caller[caller]:
                self._by_caller.move_to_end(caller)
            else:
                del self._by_caller[caller]
        self._length -= len(batch)
        return batch

    def drop(self, caller: str) -> list[QueuedRequest]:
        """Removes and returns all requests of a caller."""
        dropped = [*self._by_caller.pop(caller, ()), *(one for one in self._retries if one.caller == caller)]
        self._retries = deque(one for one in self._retries if one.caller != caller)
        self._length -= len(dropped)
        return dropped

    def clear(self) -> list[QueuedRequest]:
        """Removes and returns all requests."""
        left = [*self._retries, *(one for waiting in self._by_caller.values() for one in waiting)]
        self._retries.clear()
        self._by_caller.clear()
        self._length = 0
        return left
