"""Admission control: limits the number and the total size of the requests inside a pool."""

import asyncio
from collections import deque
from dataclasses import dataclass, field


@dataclass(slots=True, eq=False)
class _Waiting:
    caller: str
    count: int
    size: int
    admitted: asyncio.Future[None] = field(default_factory=lambda: asyncio.get_running_loop().create_future())

    def let_go(self) -> None:
        if not self.admitted.done():
            self.admitted.set_result(None)


class AdmissionControl:
    """Limits the requests and bytes in a pool. Callers that exceed the limits wait, first in, first out.

    A caller is admitted before it stores its requests in Ray's object store, so that waiting callers use no cluster
    memory.
    """

    def __init__(self, max_requests: int, max_bytes: int):
        self._max_requests, self._max_bytes = max_requests, max_bytes
        self._requests = self._bytes = 0
        self._waiting: deque[_Waiting] = deque()
        self._admitted: dict[str, list[tuple[int, int]]] = {}

    @property
    def outside(self) -> int:
        """Number of requests whose callers wait to be admitted."""
        return sum(waiting.count for waiting in self._waiting)

    @property
    def inside(self) -> tuple[int, int]:
        """Number and total bytes of the requests in the pool, and of those that were admitted and have not arrived yet."""
        return self._requests, self._bytes

    async def admit(self, caller: str, count: int, size: int) -> None:
        """Waits until the pool has room for `count` requests of `size` bytes in total, and reserves this room."""
        if not self._waiting and self._fits(count, size):
            self._keep(caller, count, size)
            return
        waiting = _Waiting(caller, count, size)
        self._waiting.append(waiting)
        try:
            await waiting.admitted
        except asyncio.CancelledError:
            if waiting in self._waiting:
                self._waiting.remove(waiting)
            elif self._take(caller, count, size):
                self.free(count, size)
            raise

    def enter(self, caller: str, count: int, size: int) -> None:
        """Counts requests that have arrived in the pool. They use up the reservation that `admit` made for the caller.

        Requests without a reservation are accepted as well: the dispatcher that admitted them may have been restarted.
        """
        if not self._take(caller, count, size):
            self._requests += count
            self._bytes += size

    def free(self, count: int, size: int) -> None:
        """Releases the room of requests that have ended, and admits waiting callers whose requests fit now."""
        self._requests -= count
        self._bytes -= size
        while self._waiting and self._fits(self._waiting[0].count, self._waiting[0].size):
            waiting = self._waiting.popleft()
            self._keep(waiting.caller, waiting.count, waiting.size)
            waiting.let_go()

    def leave(self, caller: str) -> None:
        """Removes the waiting requests and the reservations of a caller."""
        for waiting in [waiting for waiting in self._waiting if waiting.caller == caller]:
            self._waiting.remove(waiting)
            waiting.let_go()
        kept = self._admitted.pop(caller, [])
        self.free(sum(count for count, _ in kept), sum(size for _, size in kept))

    def let_all_go(self) -> None:
        """Lets all waiting callers continue without reservations. The pool then rejects their requests with an error."""
        while self._waiting:
            self._waiting.popleft().let_go()

    def _keep(self, caller: str, count: int, size: int) -> None:
        self._requests += count
        self._bytes += size
        self._admitted.setdefault(caller, []).append((count, size))

    def _take(self, caller: str, count: int, size: int) -> bool:
        kept = self._admitted.get(caller, [])
        if (count, size) not in kept:
            return False
        kept.remove((count, size))
        if not kept:
            del self._admitted[caller]
        return True

    def _fits(self, count: int, size: int) -> bool:
        fits = self._requests + count <= self._max_requests and self._bytes + size <= self._max_bytes
        return fits or self._requests == 0
