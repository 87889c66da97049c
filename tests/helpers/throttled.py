"""Conversations with servers that limit their rate, by a clock that is moved by hand: an hour takes a second."""

import heapq
import math
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from typing import Protocol

from openmaia.models.throttle import Throttle

WAY = 0.01
"""Seconds that a request takes to the server, and its answer or refusal back."""


class Allowance(Protocol):
    def take(self, now: float) -> float | None:
        """None: the request is taken. Otherwise the seconds until one might be."""
        ...

    def leave(self) -> None:
        """A request is answered."""
        ...


@dataclass
class Bucket:
    """Gets `rate` tokens a second and holds `holds`; each request takes one."""

    rate: float
    holds: float = 1.0
    tokens: float = -1.0
    filled: float = 0.0

    def take(self, now: float) -> float | None:
        self.tokens = self.holds if self.tokens < 0 else min(self.holds, self.tokens + (now - self.filled) * self.rate)
        self.filled = now
        if self.tokens < 1:
            return (1 - self.tokens) / self.rate
        self.tokens -= 1
        return None

    def leave(self) -> None: ...


@dataclass
class Window:
    """Takes so many requests in each minute by its clock."""

    most: int
    minute: int = -1
    taken: int = 0

    def take(self, now: float) -> float | None:
        if now // 60 != self.minute:
            self.minute, self.taken = int(now // 60), 0
        if self.taken >= self.most:
            return (self.minute + 1) * 60 - now
        self.taken += 1
        return None

    def leave(self) -> None: ...


@dataclass
class Sliding:
    """Takes so many requests in any minute."""

    most: int
    times: deque[float] = field(default_factory=deque[float])

    def take(self, now: float) -> float | None:
        while self.times and self.times[0] <= now - 60:
            self.times.popleft()
        if len(self.times) >= self.most:
            return self.times[0] + 60 - now
        self.times.append(now)
        return None

    def leave(self) -> None: ...


@dataclass
class Slots:
    """Answers so many requests at once."""

    most: int
    taken: int = 0

    def take(self, now: float) -> float | None:
        if self.taken >= self.most:
            return 1.0
        self.taken += 1
        return None

    def leave(self) -> None:
        self.taken -= 1


@dataclass
class Played:
    answered: int = 0
    refused: int = 0
    throttle: Throttle = field(default_factory=Throttle)


def play(
    server: Allowance,
    seconds: float,
    *,
    clients: int = 24,
    latency: float = 0.3,
    says: bool = False,
    think: Callable[[random.Random], float] = lambda dice: 0.0,
    closed: tuple[float, float] = (0.0, 0.0),
    change: tuple[float, Callable[[], None]] = (math.inf, lambda: None),
) -> Played:
    """So many clients ask a server, each again as soon as it has its answer and has thought.

    latency: seconds of an answer; each takes between 0.7 and 1.3 of it. says: whether refusals say in whole seconds when the
    next request is taken. closed: from when to when all requests are refused. change: what happens at a time.
    """
    found, dice, number = Played(), random.Random(0), count()
    events: list[tuple[float, int, Callable[[float], None]]] = []
    waiting: list[Callable[[float], None]] = []

    def at(time: float, act: Callable[[float], None]) -> None:
        heapq.heappush(events, (time, next(number), act))

    def ask(now: float) -> None:
        passed = found.throttle.enter(now)
        if not isinstance(passed, float):
            at(now + WAY, lambda then: arrive(then, passed))
        elif math.isinf(passed):
            waiting.append(ask)
        else:
            at(now + passed + dice.random() / 300, ask)

    def arrive(now: float, request: int) -> None:
        wait = closed[1] - now if closed[0] <= now < closed[1] else server.take(now)
        if wait is None:
            found.answered += 1
            at(now + latency * dice.uniform(0.7, 1.3) + WAY, lambda then: hear(then, request))
            return
        found.refused += 1
        said = math.ceil(wait) if says else None
        at(now + WAY, lambda then: give_up(then, request, said))

    def hear(now: float, request: int) -> None:
        server.leave()
        found.throttle.answered(request, now)
        go_on(now, think(dice))

    def give_up(now: float, request: int, said: float | None) -> None:
        found.throttle.refused(request, now, said)
        go_on(now, 0.0)

    def go_on(now: float, pause: float) -> None:
        at(now + pause, ask)
        for each in waiting:
            at(now, each)
        waiting.clear()

    at(change[0], lambda now: change[1]())
    for _ in range(clients):
        at(0.0, ask)
    while events and events[0][0] < seconds:
        now, _, act = heapq.heappop(events)
        act(now)
    return found
