"""What waits in front of a pool, and who is served next.

Within one investigation requests keep their order; between investigations the pool goes round: whoever was served goes to
the end of the line, so that a call with a hundred pictures does not keep the others waiting for all of them.
"""

import asyncio
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Answers:
    """In the order of the requests. seconds: of replicas, as much as these requests cost; see Spent."""

    answers: list[Any]
    seconds: float


@dataclass(slots=True, eq=False)
class Call:
    """The requests that came together. It is over when all are answered, or when one of them has failed."""

    caller: str
    answers: list[Any]
    missing: int
    over: asyncio.Future[Answers]
    seconds: float = 0.0

    @classmethod
    def of(cls, caller: str, count: int) -> "Call":
        return cls(caller, [None] * count, count, asyncio.get_running_loop().create_future())

    def answer(self, index: int, answer: Any, seconds: float) -> None:
        self.answers[index] = answer
        self.seconds += seconds
        self.missing -= 1
        if self.missing == 0 and not self.over.done():
            self.over.set_result(Answers(self.answers, self.seconds))

    def fail(self, error: Exception) -> None:
        if not self.over.done():
            self.over.set_exception(error)


@dataclass(slots=True, eq=False)
class Item:
    """One request. caller: the investigation it belongs to. conversation: for backbones, whose replicas hold a cache of
    what they read; empty where any replica will do. asking: who gets the answer: calls, and the request's number in them.
    key: of the answer in a cache. since: when it came into the line. alone: it was in a batch that died or failed, and goes
    by itself. seconds: its share of the time that replicas were at it."""

    method: str
    request: Any
    caller: str
    conversation: str = ""
    asking: list[tuple[Call, int]] = field(default_factory=list[tuple[Call, int]])
    key: str = ""
    since: float = 0.0
    deaths: int = 0
    seconds: float = 0.0
    alone: bool = False

    def answer(self, answer: Any) -> None:
        """Those who asked for the same share what it took."""
        for call, index in self.asking:
            call.answer(index, answer, self.seconds / len(self.asking))

    def fail(self, error: Exception) -> None:
        for call, _ in self.asking:
            call.fail(error)

    def forget(self, gone: Callable[[Call], bool], reason: Exception) -> None:
        """Such calls are over; an item that others ask for as well becomes theirs."""
        for call, _ in self.asking:
            if gone(call):
                call.fail(reason)
        self.asking = [(call, index) for call, index in self.asking if not gone(call)]
        if self.asking:
            self.caller = self.asking[0][0].caller


Mine = Callable[[Item], bool]


class Line:
    def __init__(self) -> None:
        self._callers: OrderedDict[str, deque[Item]] = OrderedDict()
        self._again: deque[Item] = deque()
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def push(self, items: Iterable[Item]) -> None:
        for item in items:
            self._callers.setdefault(item.caller, deque()).append(item)
            self._length += 1

    def push_first(self, items: Sequence[Item]) -> None:
        """Before everybody else but those who go alone."""
        for item in reversed(items):
            self._callers.setdefault(item.caller, deque()).appendleft(item)
            self._callers.move_to_end(item.caller, last=False)
        self._length += len(items)

    def push_again(self, items: Sequence[Item]) -> None:
        """Before everybody else, one by one."""
        for item in reversed(items):
            item.alone = True
            self._again.appendleft(item)
        self._length += len(items)

    def take(self, limit: int, mine: Mine, *, idle: bool) -> list[Item]:
        """The next batch: at most `limit` requests of one method. idle: whether nothing else is under way where it goes;
        a request that goes alone waits for that, and nothing is handed out meanwhile."""
        alone = next((item for item in self._again if mine(item)), None)
        if alone is not None:
            if not idle:
                return []
            self._again.remove(alone)
            self._length -= 1
            return [alone]
        batch: list[Item] = []
        served: list[str] = []
        for caller, waiting in self._callers.items():
            before = len(batch)
            while waiting and len(batch) < limit and mine(waiting[0]):
                if batch and waiting[0].method != batch[0].method:
                    break
                batch.append(waiting.popleft())
            if len(batch) > before:
                served.append(caller)
            if len(batch) == limit:
                break
        for caller in served:
            if self._callers[caller]:
                self._callers.move_to_end(caller)
            else:
                del self._callers[caller]
        self._length -= len(batch)
        return batch

    def drop(self, caller: str) -> list[Item]:
        """Takes out what a caller has waiting."""
        dropped = [*self._callers.pop(caller, ()), *(item for item in self._again if item.caller == caller)]
        self._again = deque(item for item in self._again if item.caller != caller)
        self._length -= len(dropped)
        return dropped

    def clear(self) -> list[Item]:
        left = [*self._again, *(item for waiting in self._callers.values() for item in waiting)]
        self._again.clear()
        self._callers.clear()
        self._length = 0
        return left


class Homes:
    """Which replica a conversation stays on: the least loaded one when it starts, another one when that one is gone."""

    def __init__(self) -> None:
        self._homes: dict[str, int] = {}
        self._open: Counter[str] = Counter()
        self._callers: dict[str, set[str]] = {}
        self._load: dict[int, list[int]] = {}
        """By replica that is there: requests under way or waiting for it, conversations that stay there."""

    def arrive(self, replica: int) -> None:
        """It takes its share of the conversations. Those that come from another replica it has to read anew, once; without
        them it would have nothing to do until others begin."""
        self._load[replica] = [0, 0]
        for conversation in {c for known in self._callers.values() for c in known} - self._homes.keys():
            self._settle(conversation)
        while True:
            busiest = max(self._load, key=lambda other: self._load[other][1])
            if self._load[busiest][1] < self._load[replica][1] + 2:
                return
            conversation = next(c for c, home in self._homes.items() if home == busiest)
            self._unsettle(conversation)
            self._settle(conversation, replica)

    def depart(self, replica: int) -> None:
        """Its cache is gone: each of its conversations goes to whichever other replica is the least loaded by then."""
        leaving = [c for c, home in self._homes.items() if home == replica]
        for conversation in leaving:
            self._unsettle(conversation)
        del self._load[replica]
        for conversation in leaving:
            self._settle(conversation)

    def enter(self, item: Item) -> None:
        """Counts a request until `leave`; a conversation that begins gets its home."""
        if not item.conversation:
            return
        if item.conversation not in self._homes:
            self._callers.setdefault(item.caller, set()).add(item.conversation)
            self._settle(item.conversation)
        self._open[item.conversation] += 1
        if item.conversation in self._homes:
            self._load[self._homes[item.conversation]][0] += 1

    def leave(self, item: Item) -> None:
        if not item.conversation:
            return
        if self._open[item.conversation] > 1:
            self._open[item.conversation] -= 1
        else:
            del self._open[item.conversation]
        if item.conversation in self._homes:
            self._load[self._homes[item.conversation]][0] -= 1

    def is_at(self, item: Item, replica: int) -> bool:
        return not item.conversation or self._homes.get(item.conversation, replica) == replica

    def release(self, caller: str) -> None:
        """The investigation has ended."""
        for conversation in self._callers.pop(caller, ()):
            if conversation in self._homes:
                self._unsettle(conversation)

    def _settle(self, conversation: str, home: int | None = None) -> None:
        """Nowhere while no replica is there."""
        if home is None:
            home = min(self._load, key=self._load.__getitem__, default=None)
        if home is not None:
            self._homes[conversation] = home
            self._load[home][0] += self._open.get(conversation, 0)
            self._load[home][1] += 1

    def _unsettle(self, conversation: str) -> None:
        home = self._homes.pop(conversation)
        self._load[home][0] -= self._open.get(conversation, 0)
        self._load[home][1] -= 1
