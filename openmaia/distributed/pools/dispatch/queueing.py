"""The way of requests through a pool: who is admitted, who is served next, and by which replica."""

import asyncio
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from cachetools import LRUCache

from openmaia.core.money import FREE, Bill

_CONVERSATIONS = 10_000
"""So many conversations, the latest ones, are remembered. Nobody calls `forget` for the callers of a driver that was killed."""


@dataclass(frozen=True, slots=True)
class Stored:
    """An item of a list in Ray's object store."""

    payload: Any
    """The Ray object reference of the list."""
    index: int


@dataclass(slots=True, eq=False)
class Request:
    """A request that waits for a replica or is being answered by one. Must be created in an event loop."""

    method: str
    """The method of the model that answers it."""
    data: Stored
    callers: list[str]
    """Who waits for the answer; several callers if their requests are equal. The first one has sent it."""
    key: str = ""
    """Equal for requests that must get the same answer; empty if the answer is not kept."""
    conversation: str = ""
    """If empty, any replica may serve the request."""
    caller: str = field(init=False)
    """It is queued among the requests of this caller, and has its place in the caller's conversation."""
    done: asyncio.Future[tuple[Any, float, Bill]] = field(init=False)
    """Receives the answer with the replica's seconds and the bill for each caller, or the error."""
    queued_at: float = 0.0
    """Time at which it was queued last, on the clock of the event loop."""
    copies: list[Stored] = field(default_factory=list[Stored])
    """The same from callers that joined it, in case the process dies that stored `data`."""
    deaths: int = 0
    """Number of replicas that died while they processed it."""
    seconds: float = 0.0
    """Time that replicas spent on it."""
    bill: Bill = FREE
    """Of earlier attempts that failed."""
    alone: bool = False
    """Whether it must be the only request of its replica, because earlier attempts failed."""

    def __post_init__(self) -> None:
        self.caller = self.callers[0]
        self.done = asyncio.get_running_loop().create_future()


class FairQueue:
    """A queue that serves callers round-robin, and the requests of one caller first in, first out.

    A call with many requests therefore does not block the other callers.
    """

    def __init__(self) -> None:
        self._retries: deque[Request] = deque()
        self._by_caller: OrderedDict[str, deque[Request]] = OrderedDict()

    def __len__(self) -> int:
        return sum(map(len, self._lines()))

    def push(self, requests: Iterable[Request]) -> None:
        """Adds requests, each at the end of the requests of its caller; those that are `alone`, before all others."""
        for request in requests:
            line = self._retries if request.alone else self._by_caller.setdefault(request.caller, deque())
            line.append(request)

    def take(self, limit: int, accepts: Callable[[Request], bool], *, idle: bool) -> list[Request]:
        """Removes and returns the next batch for one replica: at most `limit` requests for the same method.

        A request that is retried alone is only given to an idle replica. A busy replica that may serve one gets no other
        requests, so that it becomes idle.
        """
        alone = next(filter(accepts, self._retries), None)
        if alone is not None:
            if not idle:
                return []
            self._retries.remove(alone)
            return [alone]
        batch: list[Request] = []
        for caller, line in list(self._by_caller.items()):
            before = len(batch)
            while line and len(batch) < limit and accepts(line[0]) and line[0].method == (batch or line)[0].method:
                batch.append(line.popleft())
            if not line:
                del self._by_caller[caller]
            elif len(batch) > before:
                self._by_caller.move_to_end(caller)
            if len(batch) == limit:
                break
        return batch

    def remove(self, is_gone: Callable[[Request], bool]) -> list[Request]:
        """Removes and returns the requests for which the function returns True."""
        gone: list[Request] = []
        for line in self._lines():
            waiting = list(line)
            line.clear()
            for request in waiting:
                (gone if is_gone(request) else line).append(request)
        return gone

    def _lines(self) -> list[deque[Request]]:
        return [self._retries, *self._by_caller.values()]


class AffinityRouter:
    """Assigns each conversation with a language model to the replica with the fewest conversations, for its KV cache.

    A conversation moves only if its replica is removed, or to balance the load after a replica was added.
    """

    def __init__(self) -> None:
        self._replicas: set[int] = set()
        self._replica_of: LRUCache[tuple[str, str], int] = LRUCache(_CONVERSATIONS)
        """By caller and conversation."""

    def add_replica(self, replica: int) -> None:
        """Adds a replica and moves conversations to it until the replicas are balanced.

        The new replica has to process the prefix of each moved conversation once.
        """
        self._replicas.add(replica)
        counts = self._counts()
        share = len(self._replica_of) // len(self._replicas)
        for conversation, owner in list(self._replica_of.items()):
            if counts[replica] < share < counts[owner]:
                counts.update({owner: -1, replica: 1})
                self._replica_of[conversation] = replica

    def remove_replica(self, replica: int) -> None:
        """Removes a replica. Its conversations are assigned to others when they go on."""
        self._replicas.discard(replica)

    def accepts(self, request: Request, replica: int) -> bool:
        """Returns whether a replica may serve a request."""
        if not request.conversation:
            return True
        conversation = request.caller, request.conversation
        if self._replica_of.get(conversation) not in self._replicas:
            counts = self._counts()
            self._replica_of[conversation] = min(self._replicas, key=lambda one: (counts[one], one), default=replica)
        return self._replica_of[conversation] == replica

    def forget(self, caller: str) -> None:
        """Removes the conversations of a caller that has ended."""
        for conversation in [one for one in self._replica_of if one[0] == caller]:
            del self._replica_of[conversation]

    def _counts(self) -> Counter[int]:
        return Counter(one for one in self._replica_of.values() if one in self._replicas)


class AdmissionControl:
    """Limits the requests and bytes in a pool. Calls that exceed the limits wait, first in, first out.

    A caller with many bytes is admitted before it stores its requests in Ray's object store, so that those that wait use no
    cluster memory.
    """

    def __init__(self, max_requests: int, max_bytes: int):
        self._max_requests, self._max_bytes = max_requests, max_bytes
        self._requests = self._bytes = 0
        self._reserved: dict[str, list[tuple[int, int]]] = {}
        self._turn = asyncio.Lock()
        self._freed = asyncio.Event()
        self.outside = 0
        """Number of requests whose callers wait to be admitted."""

    @property
    def inside(self) -> tuple[int, int]:
        """Number and total bytes of the requests in the pool, and of those that were admitted and have not arrived yet."""
        return self._requests, self._bytes

    async def admit(self, caller: str, count: int, size: int) -> None:
        """Waits until the pool has room for `count` requests of `size` bytes in total, and reserves this room."""
        await self._take_room(count, size)
        self._reserved.setdefault(caller, []).append((count, size))

    async def enter(self, caller: str, count: int, size: int) -> None:
        """Counts requests that have arrived. They use up the reservation that `admit` made for the caller, or wait for room."""
        reserved = self._reserved.get(caller, [])
        if (count, size) not in reserved:
            await self._take_room(count, size)
            return
        reserved.remove((count, size))
        if not reserved:
            del self._reserved[caller]

    def free(self, count: int, size: int) -> None:
        """Releases the room of requests that have ended."""
        self._add(-count, -size)
        self._freed.set()

    def leave(self, caller: str) -> None:
        """Releases the reservations of a caller."""
        for count, size in self._reserved.pop(caller, ()):
            self.free(count, size)

    async def _take_room(self, count: int, size: int) -> None:
        self.outside += count
        try:
            async with self._turn:
                while not self._fits(count, size):
                    self._freed.clear()
                    await self._freed.wait()
                self._add(count, size)
        finally:
            self.outside -= count

    def _add(self, count: int, size: int) -> None:
        self._requests += count
        self._bytes += size

    def _fits(self, count: int, size: int) -> bool:
        fits = self._requests + count <= self._max_requests and self._bytes + size <= self._max_bytes
        return fits or self._requests == 0
