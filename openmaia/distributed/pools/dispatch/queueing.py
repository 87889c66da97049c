"""The queue of a pool: requests that wait for a replica, and the order in which they are served."""

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any


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
    """The cache key of the answer; empty if the answer is not cached."""
    conversation: str = ""
    """If empty, any replica may serve the request."""
    caller: str = field(init=False)
    """It is queued among the requests of this caller."""
    done: asyncio.Future[tuple[Any, float]] = field(init=False)
    """Receives the answer with the replica's seconds for each caller, or the error."""
    queued_at: float = 0.0
    """Time at which it was queued last, on the clock of the event loop."""
    deaths: int = 0
    """Number of replicas that died while they processed it."""
    seconds: float = 0.0
    """Time that replicas spent on it."""
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
