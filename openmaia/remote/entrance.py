"""Who may hand in requests: a bound on what is inside, and first come, first served before the door.

Whoever has to wait keeps its requests in its own process; nothing but its name and a number waits here.
"""

import asyncio
from collections import deque
from dataclasses import dataclass, field


@dataclass(slots=True, eq=False)
class _Waiting:
    caller: str
    count: int
    admitted: asyncio.Future[None] = field(default_factory=lambda: asyncio.get_running_loop().create_future())

    def let_go(self) -> None:
        if not self.admitted.done():
            self.admitted.set_result(None)


class Entrance:
    def __init__(self, limit: int):
        self._limit = limit
        self._inside = 0
        """Requests inside, those included for which room is kept."""
        self._queue: deque[_Waiting] = deque()
        self._kept: dict[str, list[int]] = {}
        """Room kept for callers that were let in, by their numbers of requests."""

    @property
    def outside(self) -> int:
        """Requests that wait before the door."""
        return sum(waiting.count for waiting in self._queue)

    def enter(self, caller: str, count: int) -> bool:
        """Whether a caller may hand in `count` requests now; they are inside until as many are `free`d."""
        if self._takes_kept(caller, count):
            return True
        if self._queue or not self._fits(count):
            return False
        self._inside += count
        return True

    async def wait(self, caller: str, count: int) -> None:
        """Returns when room is kept for `count` requests of the caller, or when it has left. Cancelled where its process is
        gone or asks anew: then nothing is kept for it."""
        if count in self._kept.get(caller, ()):
            return  # it was let in, and did not hear of it
        waiting = _Waiting(caller, count)
        self._queue.append(waiting)
        self._admit()
        try:
            await waiting.admitted
        except asyncio.CancelledError:
            self._forget(waiting)
            raise

    def free(self, count: int) -> None:
        self._inside -= count
        self._admit()

    def leave(self, caller: str) -> None:
        for waiting in [waiting for waiting in self._queue if waiting.caller == caller]:
            self._queue.remove(waiting)
            waiting.let_go()
        self.free(sum(self._kept.pop(caller, ())))

    def let_all_go(self) -> None:
        """There is no service for them; whoever comes is told so."""
        while self._queue:
            self._queue.popleft().let_go()

    def _forget(self, waiting: _Waiting) -> None:
        if waiting in self._queue:
            self._queue.remove(waiting)
            self._admit()
        elif self._takes_kept(waiting.caller, waiting.count):
            self.free(waiting.count)

    def _takes_kept(self, caller: str, count: int) -> bool:
        """Whether room for so many was kept for the caller; from then on it is not."""
        kept = self._kept.get(caller, [])
        if count not in kept:
            return False
        kept.remove(count)
        if not kept:
            del self._kept[caller]
        return True

    def _fits(self, count: int) -> bool:
        """A call of more requests than may ever be inside gets in alone."""
        return self._inside + count <= self._limit or self._inside == 0

    def _admit(self) -> None:
        while self._queue and self._fits(self._queue[0].count):
            waiting = self._queue.popleft()
            self._inside += waiting.count
            self._kept.setdefault(waiting.caller, []).append(waiting.count)
            waiting.let_go()
