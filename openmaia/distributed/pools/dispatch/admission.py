"""Admission control: limits the number and the total size of the requests inside a pool."""

import asyncio


class AdmissionControl:
    """Limits the requests and bytes in a pool. Callers that exceed the limits wait, first in, first out.

    A caller is admitted before it stores its requests in Ray's object store, so that waiting callers use no cluster
    memory.
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
        self.outside += count
        try:
            async with self._turn:
                while not self._fits(count, size):
                    self._freed.clear()
                    await self._freed.wait()
                self._add(count, size)
        finally:
            self.outside -= count
        self._reserved.setdefault(caller, []).append((count, size))

    def enter(self, caller: str, count: int, size: int) -> None:
        """Counts requests that have arrived in the pool. They use up the reservation that `admit` made for the caller.

        Requests without a reservation are accepted as well: the dispatcher that admitted them may have been restarted.
        """
        reserved = self._reserved.get(caller, [])
        if (count, size) in reserved:
            reserved.remove((count, size))
        else:
            self._add(count, size)
        if not reserved:
            self._reserved.pop(caller, None)

    def free(self, count: int, size: int) -> None:
        """Releases the room of requests that have ended."""
        self._add(-count, -size)
        self._freed.set()

    def leave(self, caller: str) -> None:
        """Releases the reservations of a caller."""
        for count, size in self._reserved.pop(caller, ()):
            self.free(count, size)

    def _add(self, count: int, size: int) -> None:
        self._requests += count
        self._bytes += size

    def _fits(self, count: int, size: int) -> bool:
        fits = self._requests + count <= self._max_requests and self._bytes + size <= self._max_bytes
        return fits or self._requests == 0
