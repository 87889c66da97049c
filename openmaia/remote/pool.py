"""A pool: the replicas behind one service, and the dispatcher that hands them batches.

Late binding: a request waits in the dispatcher's line until a replica has room, which then gets the largest batch there
is. A replica's death arrives as the exception of the calls that it took along; the members of those batches are retried
one by one, and one that kills again fails alone. A batch past its deadline counts as a death. Nothing waits beyond
`max_waiting`: whoever comes then keeps its requests until it is let in.

A dispatcher belongs to the driver that made it, and its replicas belong to the dispatcher: when one of those processes
dies, Ray ends what belongs to it.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

import ray

from openmaia.errors import ServiceError, UsageError
from openmaia.remote.cache import Cache, Kept
from openmaia.remote.counters import Counters, Metrics
from openmaia.remote.entrance import Entrance
from openmaia.remote.line import Answers, Call, Item
from openmaia.remote.listener import Address, listen
from openmaia.remote.replica import Hosting
from openmaia.remote.serving import Serving

EVERY = 1.0
"""Seconds between two publications of the counters among Ray's metrics."""


class Pool:
    """Made inside the event loop in which all of it runs."""

    def __init__(self, hosting: Hosting, kept: Kept | None, run: str):
        self._hosting = hosting
        self._serving = Serving(hosting, self._answered)
        self._entrance = Entrance(hosting.pool.max_waiting)
        self._cache = Cache(kept) if kept else None
        self._asked: dict[str, Item] = {}
        """What the cache may hold and is being made, by its key."""
        self._requests = self._dropped = 0
        self._serving.spawn(self._publish(Metrics(hosting.role, run)))

    async def submit(self, caller: str, method: str, requests: Sequence[Any]) -> Answers | None:
        if self._serving.broken:
            raise UsageError(self._serving.broken)
        keys = self._keys(method, requests)
        if not self._entrance.enter(caller, len(requests)):
            return None
        self._requests += len(requests)
        call = Call.of(caller, len(requests))
        for index, (request, key) in enumerate(zip(requests, keys, strict=True)):
            item = Item(method=method, request=request, caller=caller, asking=[(call, index)], key=key)
            if self._hosting.at_once:
                item.conversation = getattr(request, "conversation", "")
            self._take_in(item)
        try:
            return await call.over
        except asyncio.CancelledError:  # the caller's process is gone, or asks anew
            self._take_out(caller, lambda other: other is call, ServiceError(f"{caller} no longer waits"))
            raise

    async def admit(self, caller: str, count: int) -> None:
        if not self._serving.broken:
            await self._entrance.wait(caller, count)

    def leave(self, caller: str) -> None:
        self._take_out(caller, lambda call: call.caller == caller, ServiceError(f"{caller} has left"))
        self._serving.homes.release(caller)
        self._entrance.leave(caller)

    def counters(self) -> Counters:
        cache, serving = self._cache, self._serving
        return Counters(
            **asdict(serving.counted()),
            requests=self._requests,
            dropped=self._dropped,
            failures=dict(serving.failures),
            waiting=len(serving.line),
            outside=self._entrance.outside,
            replicas=serving.replicas,
            cache_hits=cache.hits if cache else 0,
            cache_misses=cache.misses if cache else 0,
            cache_joined=cache.joined if cache else 0,
        )

    def _keys(self, method: str, requests: Sequence[Any]) -> list[str]:
        if self._cache is None or method == "info":
            return [""] * len(requests)
        return [self._cache.key(request) for request in requests]

    def _take_in(self, item: Item) -> None:
        cache = self._cache
        if not item.key or cache is None:
            self._serving.line_up(item)
        elif (drawn := cache.recall(item.key)) is not None:
            cache.hits += 1
            self._entrance.free(1)
            item.answer(drawn)
        elif (first := self._asked.get(item.key)) is not None:
            cache.joined += 1
            self._entrance.free(1)
            first.asking += item.asking
        else:
            self._asked[item.key] = item
            if cache.on_disk(item.key):
                self._serving.spawn(self._look_up(cache, item))
            else:
                cache.misses += 1
                self._serving.line_up(item)

    async def _look_up(self, cache: Cache, item: Item) -> None:
        drawn = await asyncio.to_thread(cache.read, item.key)
        if drawn is not None:
            cache.hits += 1
            self._answered(item, drawn)
            return
        cache.misses += 1
        if item.asking:
            self._serving.line_up(item)
        else:
            self._drop(item)

    def _answered(self, item: Item, answer: Any) -> None:
        self._over(item)
        if isinstance(answer, Exception):
            item.fail(answer)
            return
        if item.key and self._cache:
            self._cache.keep(item.key, answer)
        item.answer(answer)

    def _take_out(self, caller: str, gone: Callable[[Call], bool], reason: Exception) -> None:
        """What nobody waits for any more, as far as it is not under way."""
        waiting = self._serving.line.drop(caller)
        for item in {*waiting, *self._asked.values()}:
            item.forget(gone, reason)
        for item in waiting:
            self._keep_or_drop(item)

    def _keep_or_drop(self, item: Item) -> None:
        """An item taken out of the line: others may have asked for the same."""
        if not item.asking:
            self._serving.homes.leave(item)
            self._drop(item)
        elif item.alone:
            self._serving.line.push_again([item])
        else:
            self._serving.line.push([item])

    def _drop(self, item: Item) -> None:
        self._dropped += 1
        self._over(item)

    def _over(self, item: Item) -> None:
        self._asked.pop(item.key, None)
        self._entrance.free(1)

    async def _publish(self, metrics: Metrics) -> None:
        while True:
            metrics.publish(self.counters())
            if self._serving.broken:
                self._entrance.let_all_go()
            await asyncio.sleep(EVERY)


class Dispatcher:
    """The pool as an async actor, whose event loop runs from its first call on."""

    def __init__(self, hosting: Hosting, kept: Kept | None = None, run: str = ""):
        self._made_of = hosting, kept, run
        self._made: Pool | None = None
        self._opening = asyncio.Lock()
        self._address: Address | None = None

    async def address(self) -> Address:
        """Where `submit` and `admit` are asked; Ray's calls of them would take three times as long."""
        async with self._opening:
            if self._address is None:
                self._address = await listen({"submit": self.submit, "admit": self.admit})
        return self._address

    async def submit(self, caller: str, method: str, requests: Sequence[Any]) -> Answers | None:
        """The answers, in order. None where there is no room: nothing was taken, and the caller has to `admit` first.

        Raises ServiceError where one of the requests could not be answered, UsageError where none ever can.
        """
        return await self._pool.submit(caller, method, requests)

    async def admit(self, caller: str, count: int) -> None:
        """Returns when there is room for so many requests, which is kept for the caller."""
        await self._pool.admit(caller, count)

    async def leave(self, callers: Sequence[str]) -> None:
        """Investigations have ended or died: nobody waits for what they asked, and their conversations are over."""
        for caller in callers:
            self._pool.leave(caller)

    async def counters(self) -> Counters:
        return self._pool.counters()

    @property
    def _pool(self) -> Pool:
        if self._made is None:
            self._made = Pool(*self._made_of)
        return self._made


_RemoteDispatcher: Any = ray.remote(Dispatcher)


def dispatcher(hosting: Hosting, kept: Kept | None = None, run: str = "") -> Any:
    """An actor that is restarted when it dies; its callers' retries rebuild its line. kept: for services whose answers are
    pictures, which are then made once. run: its name, for Ray's metrics."""
    settings = {"num_cpus": 0, "max_restarts": -1, "max_task_retries": -1}
    return _RemoteDispatcher.options(**settings).remote(hosting, kept, run)
