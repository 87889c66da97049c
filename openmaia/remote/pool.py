"""A pool: the replicas behind one service, and the dispatcher that hands them batches.

Late binding: a request waits in the dispatcher's line until a replica has room, which then gets the largest batch there
is. A replica's death arrives as the exception of the calls that it took along; the members of those batches are retried
one by one, and one that kills again fails alone. A batch past its deadline counts as a death.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import ray
from ray.exceptions import RayActorError, RayTaskError

from openmaia import build
from openmaia.errors import HostDead, OpenMaiaError, ServiceError, UsageError
from openmaia.remote.line import Homes, Item, Line
from openmaia.remote.replica import Served, launch, plain
from openmaia.schema import Config, PoolConfig

CONCURRENCY = 100_000
"""More calls than can ever wait: callers beyond it would block the replies of those before them."""

DEATHS = 2
"""A request fails when it was in this many batches whose replica died."""

SHORT = 0.1
"""Seconds. Where batches take less, a second one is sent along, so that the replica need not wait for the next."""


@dataclass(slots=True)
class Counters:
    """Since the dispatcher started. batched: requests in batches, so that batched / batches is the mean batch.
    busy_seconds: time in which a replica had work, summed over replicas. waiting: requests in line now."""

    requests: int = 0
    batches: int = 0
    batched: int = 0
    deaths: int = 0
    failures: int = 0
    dropped: int = 0
    busy_seconds: float = 0.0
    waiting: int = 0
    replicas: int = 0
    """Ready now."""


@dataclass(frozen=True, slots=True)
class Answers:
    """In the order of the requests. seconds: of replicas, as much as these requests cost; see Spent."""

    answers: list[Any]
    seconds: float


@dataclass(slots=True)
class _State:
    """Made at the first call, inside the actor's event loop."""

    line: Line
    homes: Homes
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)
    counters: Counters = field(default_factory=Counters)
    broken: str = ""


class Dispatcher:
    """An async actor: one coroutine per replica, started at the first call."""

    def __init__(self, role: build.Role, config: Config, pool: PoolConfig):
        self._role: build.Role = role
        self._config, self._pool = config, pool
        self._at_once = build.concurrency(role, config)
        self._state: _State | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def submit(self, caller: str, method: str, requests: Sequence[Any]) -> Answers:
        """Raises ServiceError where one of the requests could not be answered."""
        state = self._started()
        if state.broken:
            raise UsageError(state.broken)
        loop = asyncio.get_running_loop()
        items = [
            Item(
                method=method,
                request=request,
                caller=caller,
                conversation=getattr(request, "conversation", "") if self._at_once else "",
                future=loop.create_future(),
            )
            for request in requests
        ]
        state.counters.requests += len(items)
        for item in items:
            state.homes.enter(item)
        state.line.push(items)
        await self._wake(state)
        try:
            answers = list(await asyncio.gather(*(item.future for item in items)))
            return Answers(answers=answers, seconds=sum(item.seconds for item in items))
        finally:
            for item in items:
                state.homes.leave(item)

    async def info(self) -> Any:
        """The host's own description of itself (targets have one)."""
        return (await self.submit("", "info", [None])).answers[0]

    async def leave(self, caller: str) -> None:
        """An investigation has ended or died: nobody waits for what it asked, and its conversations are over."""
        state = self._started()
        for item in state.line.drop(caller):
            state.counters.dropped += 1
            item.future.cancel()
        state.homes.release(caller)

    async def counters(self) -> Counters:
        state = self._started()
        state.counters.waiting = len(state.line)
        return state.counters

    def _started(self) -> _State:
        if self._state is None:
            self._state = _State(line=Line(), homes=Homes(self._pool.replicas))
            for index in range(self._pool.replicas):
                self._spawn(self._serve(self._state, index))
        return self._state

    def _spawn(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, state: _State, index: int) -> None:
        while (replica := await self._launch(state, index)) is not None:
            state.counters.replicas += 1
            while not replica.gone:
                batch = await self._next_batch(state, replica)
                if batch:
                    self._send(state, replica, batch)
            state.counters.replicas -= 1
            state.counters.deaths += 1
            state.homes.move_away(index)
            ray.kill(replica.actor)

    async def _launch(self, state: _State, index: int) -> Served | None:
        """A replica that has loaded its model; None where the configuration makes that impossible."""
        try:
            return Served(index=index, actor=await launch(self._role, self._config, self._pool, self._at_once))
        except UsageError as error:
            state.broken = error.message
        for item in state.line.clear():
            self._fail(state, item, UsageError(state.broken))
        return None

    async def _next_batch(self, state: _State, replica: Served) -> list[Item]:
        """Waits until there is something for a replica that has room. Empty when the replica is gone."""
        batch: list[Item] = []

        def ready() -> bool:
            if replica.gone:
                return True
            if not replica.exclusive and replica.under_way < self._room(replica):
                limit = 1 if self._at_once else self._pool.max_batch
                idle = replica.under_way == 0
                batch.extend(state.line.take(limit, lambda item: state.homes.is_at(item, replica.index), idle=idle))
            return bool(batch)

        async with state.changed:
            await state.changed.wait_for(ready)
        return batch

    def _room(self, replica: Served) -> int:
        """Batches under way at once: engines that batch by themselves get requests as they come."""
        return self._at_once or (2 if replica.pace < SHORT else 1)

    def _send(self, state: _State, replica: Served, batch: list[Item]) -> None:
        now = asyncio.get_running_loop().time()
        if replica.under_way == 0:
            replica.since = now
        replica.under_way += 1
        replica.exclusive = batch[0].alone
        state.counters.batches += 1
        state.counters.batched += len(batch)
        self._spawn(self._answer(state, replica, batch, now, replica.meter.begin(now)))

    async def _answer(self, state: _State, replica: Served, batch: list[Item], began: float, reading: float) -> None:
        method = batch[0].method
        requests = [] if method == "info" else [item.request for item in batch]
        clock = asyncio.get_running_loop()
        try:
            answers = await asyncio.wait_for(replica.actor.call.remote(method, requests), self._pool.deadline)
            for item, answer in zip(batch, [answers] * len(batch) if method == "info" else answers, strict=True):
                if not item.future.done():
                    item.future.set_result(answer)
        except RayTaskError as error:
            self._failed(state, replica, batch, error)
        except (RayActorError, TimeoutError) as error:
            self._died(state, replica, batch, error)
        finally:
            share = replica.meter.end(clock.time(), reading) / len(batch)
            for item in batch:
                item.seconds += share
            replica.under_way -= 1
            replica.exclusive = False
            replica.pace += 0.3 * ((clock.time() - began) / (replica.under_way + 1) - replica.pace)
            if replica.under_way == 0:
                state.counters.busy_seconds += clock.time() - replica.since
            await self._wake(state)

    def _failed(self, state: _State, replica: Served, batch: list[Item], error: RayTaskError) -> None:
        """The host raised: alone, a request gets its own error; together, each gets another chance alone."""
        cause = error.cause if isinstance(error.cause, OpenMaiaError) else None
        if isinstance(cause, HostDead):
            self._died(state, replica, batch, cause)
        elif len(batch) > 1:
            state.line.push_again(batch)
        else:
            self._fail(state, batch[0], cause or ServiceError(f"the {self._role} failed: {plain(error)}"))

    def _died(self, state: _State, replica: Served, batch: list[Item], error: Exception) -> None:
        replica.gone = True
        reason = f"gave no answer within {self._pool.deadline:g} s" if isinstance(error, TimeoutError) else "died"
        for item in batch:
            item.deaths += 1
        for item in [item for item in batch if item.deaths >= DEATHS]:
            self._fail(state, item, ServiceError(f"the {self._role} {reason} twice over this request"))
        state.line.push_again([item for item in batch if item.deaths < DEATHS])

    @staticmethod
    async def _wake(state: _State) -> None:
        async with state.changed:
            state.changed.notify_all()

    @staticmethod
    def _fail(state: _State, item: Item, error: Exception) -> None:
        state.counters.failures += 1
        if not item.future.done():
            item.future.set_exception(error)


_RemoteDispatcher: Any = ray.remote(Dispatcher)


def dispatcher(role: build.Role, config: Config) -> Any:
    """An actor that is restarted when it dies; its callers' retries rebuild its line."""
    settings = {"num_cpus": 0, "max_restarts": -1, "max_task_retries": -1, "max_concurrency": CONCURRENCY}
    return _RemoteDispatcher.options(**settings).remote(role, config, getattr(config.pools, role))
