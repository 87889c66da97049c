"""What waits in front of a pool, and who is served next.

Within one investigation requests keep their order; between investigations the pool goes round: whoever was served goes to
the end of the line, so that a call with a hundred pictures does not keep the others waiting for all of them.
"""

import asyncio
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(slots=True, eq=False)
class Item:
    """One request. caller: the investigation it belongs to. conversation: for backbones, whose replicas hold a cache of
    what they read; empty where any replica will do. alone: it was in a batch that died or failed, and goes by itself.
    seconds: its share of the time that replicas were at it."""

    method: str
    request: Any
    caller: str
    conversation: str
    future: asyncio.Future[Any]
    deaths: int = 0
    seconds: float = 0.0
    alone: bool = False


Mine = Callable[[Item], bool]


class Line:
    def __init__(self) -> None:
        self._callers: OrderedDict[str, deque[Item]] = OrderedDict()
        self._again: deque[Item] = deque()

    def __len__(self) -> int:
        return len(self._again) + sum(map(len, self._callers.values()))

    def push(self, items: Iterable[Item]) -> None:
        for item in items:
            self._callers.setdefault(item.caller, deque()).append(item)

    def push_again(self, items: Sequence[Item]) -> None:
        """Before everybody else, one by one."""
        for item in reversed(items):
            item.alone = True
            self._again.appendleft(item)

    def take(self, limit: int, mine: Mine, *, idle: bool) -> list[Item]:
        """The next batch: at most `limit` requests of one method. idle: whether nothing else is under way where it goes;
        a request that goes alone waits for that, and nothing is handed out meanwhile."""
        alone = next((item for item in self._again if mine(item)), None)
        if alone is not None:
            if not idle:
                return []
            self._again.remove(alone)
            return [alone]
        batch: list[Item] = []
        for caller in list(self._callers):
            if len(batch) == limit:
                break
            self._serve(caller, batch, limit, mine)
        return batch

    def _serve(self, caller: str, batch: list[Item], limit: int, mine: Mine) -> None:
        waiting = self._callers[caller]
        before = len(batch)
        while waiting and len(batch) < limit and mine(waiting[0]):
            if batch and waiting[0].method != batch[0].method:
                break
            batch.append(waiting.popleft())
        if not waiting:
            del self._callers[caller]
        elif len(batch) > before:
            self._callers.move_to_end(caller)

    def drop(self, caller: str) -> list[Item]:
        """Takes out what a caller has waiting."""
        dropped = [*self._callers.pop(caller, ()), *(item for item in self._again if item.caller == caller)]
        self._again = deque(item for item in self._again if item.caller != caller)
        return dropped

    def clear(self) -> list[Item]:
        left = [*self._again, *(item for waiting in self._callers.values() for item in waiting)]
        self._again.clear()
        self._callers.clear()
        return left


class Homes:
    """Which replica a conversation stays on: the least loaded one when it starts, another one when that one is gone."""

    def __init__(self, replicas: int):
        self._replicas = range(replicas)
        self._homes: dict[str, int] = {}
        self._open: Counter[str] = Counter()
        self._callers: dict[str, set[str]] = {}

    def enter(self, item: Item) -> None:
        """Counts a request until `leave`; a conversation that begins gets its home."""
        if not item.conversation:
            return
        if item.conversation not in self._homes:
            self._homes[item.conversation] = min(self._replicas, key=self._load)
            self._callers.setdefault(item.caller, set()).add(item.conversation)
        self._open[item.conversation] += 1

    def leave(self, item: Item) -> None:
        if self._open[item.conversation] > 1:
            self._open[item.conversation] -= 1
        else:
            del self._open[item.conversation]

    def is_at(self, item: Item, replica: int) -> bool:
        return not item.conversation or self._homes.get(item.conversation, replica) == replica

    def move_away(self, replica: int) -> None:
        """Its cache is gone: each of its conversations goes to whichever other replica is the least loaded by then."""
        others = [other for other in self._replicas if other != replica]
        for conversation in [c for c, home in self._homes.items() if home == replica and others]:
            self._homes[conversation] = min(others, key=self._load)

    def release(self, caller: str) -> None:
        """The investigation has ended."""
        for conversation in self._callers.pop(caller, ()):
            del self._homes[conversation]

    def _load(self, replica: int) -> tuple[int, int]:
        """Requests under way or waiting there, then conversations that stay there."""
        at_home = [conversation for conversation, home in self._homes.items() if home == replica]
        return sum(self._open[conversation] for conversation in at_home), len(at_home)
