"""A sweep on pools, on paper: a discrete-event simulation of investigations and of the replicas that answer them.

As in the pools themselves: a request waits in its service's line until a replica is idle, which then takes the largest
batch there is (late binding), in the order of arrival. A batch of n takes `fixed + n * per_item` seconds. Left out are
messages between processes, deaths, affinity, and that a language model lets a request into a batch under way; for a
language model `max_batch` is its limit of requests at once.
"""

import heapq
import math
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

Step = tuple[str, float]
"""(service, requests) of one call, or ("", seconds) of work that needs no service."""
Trace = Sequence[Step]
"""The steps of one investigation, each after the other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """fixed: seconds of every batch; per_item: seconds that each request in it adds. gpus: of a replica."""

    replicas: int
    max_batch: int
    fixed: float
    per_item: float
    gpus: float = 0.0

    def seconds(self, items: int) -> float:
        return self.fixed + items * self.per_item

    @property
    def per_request(self) -> float:
        """Replica-seconds of a request in a full batch: the least that it can cost."""
        return self.fixed / self.max_batch + self.per_item

    def least(self, items: int) -> float:
        """Seconds that a call of so many requests takes at least: one replica gets ceil(items / replicas) or more."""
        most = math.ceil(items / self.replicas)
        return math.ceil(most / self.max_batch) * self.fixed + most * self.per_item


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulated:
    """makespan: seconds from the first step to the end of the last. busy: replica-seconds by service."""

    makespan: float
    busy: Mapping[str, float]
    batches: Mapping[str, int]
    requests: Mapping[str, int]

    def utilisation(self, service: str, pool: Pool) -> float:
        return self.busy[service] / (self.makespan * pool.replicas) if self.makespan else 0.0


def simulate(traces: Sequence[Trace], pools: Mapping[str, Pool], at_once: int) -> Simulated:
    """All investigations of the traces, at most `at_once` of them under way. Events of one moment happen together: what
    arrives at the same time may share a batch. Raises ValueError where a trace needs a service that has no pool."""
    return _Simulation(traces, pools, at_once).run()


@dataclass(slots=True, eq=False)
class _Investigation:
    """open: requests of its present step that are not answered."""

    trace: Trace
    at: int = 0
    open: int = 0


@dataclass(slots=True, eq=False)
class _Line:
    """waiting: [investigation, requests not handed out]."""

    pool: Pool
    idle: int
    waiting: deque[list[object]] = field(default_factory=deque[list[object]])
    busy: float = 0.0
    batches: int = 0
    requests: int = 0

    def batch(self) -> tuple[list[tuple[_Investigation, int]], int]:
        """The next batch, as (investigation, requests), and how many requests are in it."""
        taken: list[tuple[_Investigation, int]] = []
        room = self.pool.max_batch
        while room and self.waiting:
            first = self.waiting[0]
            investigation, left = first
            assert isinstance(investigation, _Investigation) and isinstance(left, int)
            count = min(left, room)
            taken.append((investigation, count))
            room -= count
            if count == left:
                self.waiting.popleft()
            else:
                first[1] = left - count
        return taken, self.pool.max_batch - room


_Event = tuple[float, int, _Line | None, list[tuple[_Investigation, int]]]
"""(when, order of making, the line whose batch is done or None, whom it was for)."""


def _with_steps(traces: Sequence[Trace]) -> Iterator[Trace]:
    """Calls with no request end at once, and so does an investigation that does nothing."""
    for trace in traces:
        steps = [step for step in trace if step[1]]
        if steps:
            yield steps


class _Simulation:
    def __init__(self, traces: Sequence[Trace], pools: Mapping[str, Pool], at_once: int):
        self._traces = _with_steps(traces)
        self._at_once = at_once
        self._lines = {service: _Line(pool, pool.replicas) for service, pool in pools.items()}
        self._events: list[_Event] = []
        self._made = 0

    def run(self) -> Simulated:
        now = 0.0
        touched: dict[int, _Line] = {}
        for _ in range(self._at_once):
            self._start(now, touched)
        self._hand_out(now, touched)
        while self._events:
            now = self._events[0][0]
            while self._events and self._events[0][0] == now:
                _, _, line, members = heapq.heappop(self._events)
                if line is not None:
                    line.idle += 1
                    touched[id(line)] = line
                for investigation, count in members:
                    investigation.open -= count
                    if not investigation.open:
                        self._step(investigation, now, touched)
            self._hand_out(now, touched)
        lines = self._lines
        return Simulated(
            makespan=now,
            busy={service: line.busy for service, line in lines.items()},
            batches={service: line.batches for service, line in lines.items()},
            requests={service: line.requests for service, line in lines.items()},
        )

    def _start(self, now: float, touched: dict[int, _Line]) -> None:
        trace = next(self._traces, None)
        if trace is not None:
            self._step(_Investigation(trace), now, touched)

    def _step(self, investigation: _Investigation, now: float, touched: dict[int, _Line]) -> None:
        if investigation.at == len(investigation.trace):
            self._start(now, touched)
            return
        service, amount = investigation.trace[investigation.at]
        investigation.at += 1
        if not service:
            investigation.open = 1
            self._later(now + amount, None, [(investigation, 1)])
            return
        line = self._lines.get(service)
        if line is None:
            raise ValueError(f"a trace needs the service {service!r}; there are pools of {', '.join(self._lines)}")
        investigation.open = int(amount)
        line.waiting.append([investigation, int(amount)])
        touched[id(line)] = line

    def _hand_out(self, now: float, touched: dict[int, _Line]) -> None:
        for line in touched.values():
            while line.idle and line.waiting:
                members, count = line.batch()
                seconds = line.pool.seconds(count)
                line.idle -= 1
                line.busy += seconds
                line.batches += 1
                line.requests += count
                self._later(now + seconds, line, members)
        touched.clear()

    def _later(self, when: float, line: _Line | None, members: list[tuple[_Investigation, int]]) -> None:
        self._made += 1
        heapq.heappush(self._events, (when, self._made, line, members))


def bounds(traces: Sequence[Trace], pools: Mapping[str, Pool], at_once: int) -> dict[str, float]:
    """Seconds that no schedule can beat. By service: its work in full batches over its replicas. As "": what the
    investigations take by themselves over `at_once`, or the longest of them."""
    found = {
        service: pool.per_request * sum(amount for t in traces for name, amount in t if name == service) / pool.replicas
        for service, pool in pools.items()
    }
    alone = [latency(trace, pools) for trace in traces]
    return found | {"": max(sum(alone) / at_once, max(alone, default=0.0))}


def latency(trace: Trace, pools: Mapping[str, Pool]) -> float:
    """Seconds that an investigation takes at least, had it all pools to itself and were each call spread evenly."""
    return sum(pools[service].least(int(amount)) if service else amount for service, amount in trace)
