"""A pool: the replicas behind one service, and the dispatcher that hands them batches.

Late binding: a request waits in the dispatcher's queue until a replica is idle, which then gets the largest batch there
is. A replica's death arrives as the exception of the call that it took along; the members of that batch are retried one
by one, and one that kills again fails alone.
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import ray
from ray.exceptions import RayActorError, RayTaskError

from openmaia import build
from openmaia.errors import OpenMaiaError, ServiceError, UsageError
from openmaia.schema import Config, PoolConfig

CONCURRENCY = 100_000
"""More calls than can ever wait: callers beyond it would block the replies of those before them."""

DEATHS = 2
"""A request fails when it was in this many batches whose replica died."""


class Replica:
    """Holds one host. A plain class; `ray.remote` is applied at the end of this file."""

    def __init__(self, role: build.Role, config: Config):
        self._role: build.Role = role
        self._config = config
        self._host: Any = None

    def start(self) -> None:
        """Loads the model: its errors then are results of a call and not the death of an actor."""
        self._host = build.host(self._role, self._config)

    def call(self, method: str, requests: Sequence[Any]) -> Any:
        return getattr(self._host, method)(*([requests] if requests else []))


@dataclass(slots=True, eq=False)
class _Item:
    """alone: it was in a batch that died or failed, and goes by itself from then on."""

    method: str
    request: Any
    future: asyncio.Future[Any]
    deaths: int = 0
    alone: bool = False


@dataclass(slots=True)
class Counters:
    """Since the dispatcher started. busy_seconds: summed over replicas."""

    requests: int = 0
    batches: int = 0
    deaths: int = 0
    failures: int = 0
    busy_seconds: float = 0.0


@dataclass(slots=True)
class _State:
    queue: deque[_Item] = field(default_factory=deque[_Item])
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    counters: Counters = field(default_factory=Counters)
    broken: str = ""


class Dispatcher:
    """An async actor: one coroutine per replica, started at the first call."""

    def __init__(self, role: build.Role, config: Config, pool: PoolConfig):
        self._role, self._config, self._pool = role, config, pool
        self._state: _State | None = None
        self._loops: list[asyncio.Task[None]] = []

    async def submit(self, method: str, requests: Sequence[Any]) -> list[Any]:
        """The answers, in order. Raises ServiceError where one of the requests could not be answered."""
        state = self._started()
        items = [_Item(method=method, request=r, future=asyncio.get_running_loop().create_future()) for r in requests]
        state.counters.requests += len(items)
        state.queue.extend(items)
        state.changed.set()
        if state.broken:
            raise UsageError(state.broken)
        return list(await asyncio.gather(*(item.future for item in items)))

    async def info(self) -> Any:
        """The host's own description of itself (targets have one)."""
        return (await self.submit("info", [None]))[0]

    async def counters(self) -> Counters:
        return self._started().counters

    def _started(self) -> _State:
        if self._state is None:
            self._state = _State()
            self._loops = [asyncio.create_task(self._serve(self._state)) for _ in range(self._pool.replicas)]
        return self._state

    async def _serve(self, state: _State) -> None:
        replica = None
        while True:
            if replica is None:
                replica = await self._launch(state)
                if replica is None:
                    return
            batch = await self._next_batch(state)
            if not await self._answer(state, replica, batch):
                ray.kill(replica)
                state.counters.deaths += 1
                replica = None

    async def _launch(self, state: _State) -> Any:
        """A replica that has loaded its model; None where the configuration makes that impossible."""
        pool = self._pool
        for attempt in range(3):
            replica = _RemoteReplica.options(num_cpus=pool.num_cpus, num_gpus=pool.num_gpus).remote(
                self._role, self._config
            )
            try:
                await replica.start.remote()
                return replica
            except RayTaskError as error:
                cause = error.cause if isinstance(error.cause, OpenMaiaError) else None
                state.broken = cause.message if cause else f"the {self._role} could not be loaded: {_plain(error)}"
            except RayActorError as error:
                state.broken = f"the {self._role} died while it was loaded: {_plain(error)}"
                if attempt < 2:
                    continue
            ray.kill(replica)
            break
        while state.queue:
            self._fail(state, state.queue.popleft(), UsageError(state.broken))
        return None

    async def _next_batch(self, state: _State) -> list[_Item]:
        while not state.queue:
            state.changed.clear()
            await state.changed.wait()
        batch = [state.queue.popleft()]
        while state.queue and len(batch) < self._pool.max_batch and not batch[0].alone:
            if state.queue[0].alone or state.queue[0].method != batch[0].method:
                break
            batch.append(state.queue.popleft())
        return batch

    async def _answer(self, state: _State, replica: Any, batch: list[_Item]) -> bool:
        """False where the replica died or hung and has to be replaced."""
        method = batch[0].method
        requests = [] if method == "info" else [item.request for item in batch]
        clock = asyncio.get_running_loop()
        began = clock.time()
        state.counters.batches += 1
        try:
            answers = await asyncio.wait_for(replica.call.remote(method, requests), self._pool.deadline)
        except RayTaskError as error:
            self._failed(state, batch, error)
            return True
        except (RayActorError, TimeoutError) as error:
            self._died(state, batch, error)
            return False
        finally:
            state.counters.busy_seconds += clock.time() - began
        for item, answer in zip(batch, [answers] * len(batch) if method == "info" else answers, strict=True):
            if not item.future.done():
                item.future.set_result(answer)
        return True

    def _failed(self, state: _State, batch: list[_Item], error: RayTaskError) -> None:
        """The host raised: alone, a request gets its own error; together, each gets another chance alone."""
        if len(batch) > 1:
            self._retry(state, batch)
            return
        cause = error.cause if isinstance(error.cause, OpenMaiaError) else None
        self._fail(state, batch[0], cause or ServiceError(f"the {self._role} failed: {_plain(error)}"))

    def _died(self, state: _State, batch: list[_Item], error: Exception) -> None:
        reason = f"gave no answer within {self._pool.deadline:g} s" if isinstance(error, TimeoutError) else "died"
        for item in batch:
            item.deaths += 1
        for item in [item for item in batch if item.deaths >= DEATHS]:
            self._fail(state, item, ServiceError(f"the {self._role} {reason} twice over this request"))
        self._retry(state, [item for item in batch if item.deaths < DEATHS])

    def _retry(self, state: _State, items: list[_Item]) -> None:
        for item in reversed(items):
            item.alone = True
            state.queue.appendleft(item)
        state.changed.set()

    @staticmethod
    def _fail(state: _State, item: _Item, error: Exception) -> None:
        state.counters.failures += 1
        if not item.future.done():
            item.future.set_exception(error)


def _plain(error: Exception) -> str:
    """The last line of what went wrong: Ray's text carries colours, process ids and addresses."""
    cause = error.cause if isinstance(error, RayTaskError) else error
    return f"{type(cause).__name__}: {str(cause).strip().splitlines()[-1] if str(cause).strip() else 'no message'}"


_RemoteReplica: Any = ray.remote(Replica)
_RemoteDispatcher: Any = ray.remote(Dispatcher)


def dispatcher(role: build.Role, config: Config) -> Any:
    """An actor that is restarted when it dies; its callers' retries rebuild its queue."""
    settings = {"num_cpus": 0, "max_restarts": -1, "max_task_retries": -1, "max_concurrency": CONCURRENCY}
    return _RemoteDispatcher.options(**settings).remote(role, config, getattr(config.pools, role))
