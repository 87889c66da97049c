"""A discrete-event simulation of a sweep: investigations that call services, and the replicas that answer them.

As in the real pools, requests wait until a replica is idle, which then takes the largest possible batch in the order of
arrival. Not simulated are the transfer of messages, failures, the affinity of conversations to replicas that cache
their prefix, and continuous batching of language models.
"""

from collections import deque
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass

import simpy

Trace = Sequence[tuple[str, float]]
"""The steps of one investigation in order: (service, requests) for a call, ("", seconds) for work without a service."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedPool:
    """The replicas of one service. A batch of n requests takes `fixed` + n * `per_item` seconds."""

    fixed: float
    per_item: float
    replicas: int = 1
    max_batch: int = 1
    gpus: float = 0.0
    """Number of GPUs of each replica."""

    @property
    def per_request(self) -> float:
        """Replica-seconds per request in a full batch, which is the smallest possible value."""
        return self.fixed / self.max_batch + self.per_item


SimulatedPools = Mapping[str, SimulatedPool]
"""The pool of each service."""


class SimulatedQueue:
    """The queue of one service and its replicas.

    Attributes:
        requests: Number of requests answered so far.
        busy: Replica-seconds spent on them.
    """

    def __init__(self, environment: simpy.Environment, pool: SimulatedPool):
        self.requests, self.busy = 0, 0.0
        self._environment, self._pool = environment, pool
        self._waiting, self._idle = deque[_Call](), list[simpy.Event]()
        for _ in range(pool.replicas):
            environment.process(self._replica())

    def call(self, requests: int) -> simpy.Event:
        """Queues the requests of one call. Returns an event that is triggered when all of them are answered."""
        call = _Call(requests, self._environment.event())
        self._waiting.extend([call] * requests)
        self._wake_replica()
        return call.answered

    def _wake_replica(self) -> None:
        if self._waiting and self._idle:
            self._idle.pop().succeed()

    def _replica(self) -> Generator[simpy.Event, None, None]:
        while True:
            if not self._waiting:
                self._idle.append(self._environment.event())
                yield self._idle[-1]
            yield self._environment.timeout(0)  # Requests that arrive at the same moment may share a batch.
            batch = [self._waiting.popleft() for _ in range(min(self._pool.max_batch, len(self._waiting)))]
            self._wake_replica()
            seconds = self._pool.fixed + len(batch) * self._pool.per_item if batch else 0.0
            yield self._environment.timeout(seconds)
            self.requests += len(batch)
            self.busy += seconds
            for call in batch:
                call.unanswered -= 1
                if not call.unanswered:
                    call.answered.succeed()


@dataclass(slots=True)
class _Call:
    unanswered: int
    answered: simpy.Event


def simulate(
    traces: Sequence[Trace], pools: SimulatedPools, at_once: int
) -> tuple[list[float], dict[str, SimulatedQueue]]:
    """Simulates investigations, one for each trace (a list of steps), at most `at_once` of them concurrently.

    Returns:
        The end times of the investigations in ascending order, in seconds, and the queue of each service by its name.
    """
    environment = simpy.Environment()
    queues = {service: SimulatedQueue(environment, pool) for service, pool in pools.items()}
    pending, ends = iter(traces), list[float]()

    def worker() -> Generator[simpy.Event, None, None]:
        for trace in pending:  # All workers share this iterator.
            for service, amount in trace:
                if amount:
                    yield queues[service].call(int(amount)) if service else environment.timeout(amount)
            ends.append(environment.now)

    for _ in range(min(at_once, len(traces))):
        environment.process(worker())
    environment.run()
    return ends, queues
