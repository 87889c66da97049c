"""The replicas of a pool: who of them gets what, and what follows when one dies.

Whatever changes (a request comes, a batch is answered, a replica is ready) leads to one round of handing out, soon: all
that comes meanwhile is in it, and no coroutine waits for its turn.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

import ray

from openmaia.errors import HostDead, OpenMaiaError, ServiceError, UsageError
from openmaia.messages import Reply
from openmaia.remote.failures import DEAD, plain
from openmaia.remote.line import Homes, Item, Line
from openmaia.remote.replica import Hosting, Served, launch
from openmaia.remote.staging import Staging
from openmaia.remote.wire import Gone, Raised

SPOKEN = {2: "twice", 3: "three times"}
"""So often a replica has to die over a request for it to fail."""

SHORT = 0.1
"""Seconds. Where batches take less, a second one is sent along, so that the replica need not wait for the next."""

FULL = 1.0
"""Seconds. Where batches take less, a second one is sent along if it is full already: to wait would not make it fuller."""

AGAIN = 30.0
"""Seconds until a replica that could not be started is tried again, while others serve."""

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class Counts:
    """The fields of `Counters` with the same names."""

    batches: int = 0
    batched: int = 0
    busy_seconds: float = 0.0
    queue_seconds: float = 0.0
    longest_queue_seconds: float = 0.0
    deaths: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    generated_tokens: int = 0
    under_way: int = 0


class Serving:
    """answered: gets the answer to an item, or an exception. All of it runs in one event loop."""

    def __init__(self, hosting: Hosting, answered: Callable[[Item, Any], None]):
        self._hosting, self._answered = hosting, answered
        self.line = Line()
        self.homes = Homes()
        self.counts = Counts()
        self.failures: Counter[str] = Counter()
        self.broken = ""
        """Why there is no service at all."""
        self._staging = Staging()
        self._ready: list[Served] = []
        self._hopes = dict.fromkeys(range(hosting.pool.replicas), 1)
        """How often each replica may still fail to start before nothing is expected of it: one that has served, twice."""
        self._due = False
        self._tasks: set[asyncio.Task[None]] = set()
        for index in range(hosting.pool.replicas):
            self.spawn(self._serve(index))

    @property
    def replicas(self) -> int:
        return len(self._ready)

    def counted(self) -> Counts:
        """Busy seconds up to this moment."""
        now = asyncio.get_running_loop().time()
        for served in self._ready:
            if served.under_way:
                self.counts.busy_seconds += now - served.since
                served.since = now
        return self.counts

    def line_up(self, item: Item) -> None:
        item.since = asyncio.get_running_loop().time()
        self.homes.enter(item)
        self.line.push([item])
        self.hand_out_soon()

    def hand_out_soon(self) -> None:
        if not self._due:
            self._due = True
            asyncio.get_running_loop().call_soon(self._hand_out)

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, index: int) -> None:
        """Keeps one replica up."""
        while True:
            try:
                replica = await launch(self._hosting, index, self._staging)
            except UsageError as error:
                await self._without(index, error)
                continue
            except Exception as error:  # whatever else it is: nobody waits for a replica that does not come
                _log.exception("a replica of the %s could not be started", self._hosting.role)
                await self._without(index, UsageError(f"the {self._hosting.role} could not be started: {plain(error)}"))
                continue
            self.broken = ""
            self._hopes[index] = 2
            self._ready.append(replica)
            self.homes.arrive(index)
            self.hand_out_soon()
            self.spawn(self._watched(replica))
            await replica.gone.wait()
            self._ready.remove(replica)
            self.counts.deaths += 1
            self.homes.depart(index)
            self.hand_out_soon()
            ray.kill(replica.actor)
            await replica.connection.close()

    async def _watched(self, replica: Served) -> None:
        """Ray knows of a host that is gone what no connection says."""
        try:
            await replica.actor.serve.remote()
        except DEAD:
            pass
        finally:
            replica.gone.set()

    async def _without(self, index: int, error: UsageError) -> None:
        """One replica cannot be started: others serve, or will soon. Where none does, nobody is kept waiting."""
        self._hopes[index] = max(self._hopes[index] - 1, 0)
        if not self._ready and not any(self._hopes.values()):
            self.broken = error.message
            for item in self.line.clear():
                self._fail(item, "unusable", UsageError(error.message))
        _log.warning("a replica could not be started, next try in %g s: %s", AGAIN, error.message)
        await asyncio.sleep(AGAIN)

    def _hand_out(self) -> None:
        """A batch to each replica that has room, idle ones first, until there is nothing for any of them."""
        self._due = False
        sent = True
        while sent and len(self.line):
            sent = False
            for replica in sorted(self._ready, key=lambda served: served.under_way):
                batch = self._batch(replica)
                if batch:
                    self._send(replica, batch)
                    sent = True

    def _batch(self, replica: Served) -> list[Item]:
        # Engines that batch by themselves get requests as they come.
        limit = 1 if self._hosting.at_once else self._hosting.pool.max_batch
        hurried = replica.pace < SHORT or (replica.pace < FULL and len(self.line) >= limit)
        room = self._hosting.at_once or (2 if hurried else 1)
        if replica.exclusive or replica.under_way >= room or replica.gone.is_set():
            return []
        return self.line.take(limit, lambda item: self.homes.is_at(item, replica.index), idle=replica.under_way == 0)

    def _send(self, replica: Served, batch: list[Item]) -> None:
        now = asyncio.get_running_loop().time()
        replica.begin(now, exclusive=batch[0].alone)
        counts = self.counts
        counts.batches += 1
        counts.batched += len(batch)
        counts.under_way += len(batch)
        waited = [now - item.since for item in batch]
        counts.queue_seconds += sum(waited)
        counts.longest_queue_seconds = max(counts.longest_queue_seconds, *waited)
        self.spawn(self._asked(replica, batch, now))

    async def _asked(self, replica: Served, batch: list[Item], began: float) -> None:
        try:
            if batch[0].alone and not await self._awake(replica, batch):
                return
            requests = [item.request for item in batch]
            answers = await self._charged(replica, batch, requests)
            for item, answer in zip(batch, answers, strict=True):
                self._answer(item, answer)
        except Raised as error:
            self._failed(replica, batch, error)
        except (Gone, TimeoutError) as error:
            self._died(replica, batch, error)
        except Exception as error:  # whatever else it is: nobody waits for an answer that does not come
            _log.exception("a replica of the %s is given up", self._hosting.role)
            self._died(replica, batch, error)
        finally:
            self.counts.under_way -= len(batch)
            self.counts.busy_seconds += replica.end(began, asyncio.get_running_loop().time())
            self.hand_out_soon()

    async def _charged(self, replica: Served, batch: list[Item], requests: list[Any]) -> list[Any]:
        """The answers; each request bears its part of the replica's time, answered or not."""
        clock = asyncio.get_running_loop().time
        reading = replica.meter.begin(clock())
        try:
            return await asyncio.wait_for(
                replica.connection.call("call", batch[0].method, requests), self._hosting.pool.deadline
            )
        finally:
            share = replica.meter.end(clock(), reading) / len(batch)
            for item in batch:
                item.seconds += share

    async def _awake(self, replica: Served, batch: list[Item]) -> bool:
        """Before a request's second chance: a replica that has died unnoticed is not the request's doing."""
        try:
            await asyncio.wait_for(replica.connection.call("awake"), self._hosting.pool.deadline)
            return True
        except (Gone, TimeoutError):
            replica.gone.set()
            self._again(batch)
            return False

    def _answer(self, item: Item, answer: Any) -> None:
        if isinstance(answer, Reply):
            self.counts.prompt_tokens += answer.prompt_tokens
            self.counts.cached_tokens += answer.cached_tokens
            self.counts.generated_tokens += answer.generated_tokens
        self.homes.leave(item)
        self._answered(item, answer)

    def _fail(self, item: Item, cause: str, error: OpenMaiaError) -> None:
        self.failures[cause] += 1
        self.homes.leave(item)
        self._answered(item, error)

    def _again(self, batch: list[Item]) -> None:
        now = asyncio.get_running_loop().time()
        for item in batch:
            item.since = now
        self.line.push_again(batch)

    def _failed(self, replica: Served, batch: list[Item], error: Raised) -> None:
        """The host raised: alone, a request gets its own error; together, each gets another chance alone."""
        cause = error.cause
        if isinstance(cause, HostDead):
            self._died(replica, batch, cause)
        elif len(batch) > 1:
            self._again(batch)
        else:
            said = cause or ServiceError(f"the {self._hosting.role} failed: {error}")
            self._fail(batch[0], "error", said)

    def _died(self, replica: Served, batch: list[Item], error: Exception) -> None:
        """Where one batch was under way, its members go again one by one. Where a whole crowd was, that would take as long
        as all of their answers together: there only who was under way at two deaths goes alone."""
        replica.gone.set()
        late = isinstance(error, TimeoutError)
        chances = 3 if self._hosting.at_once else 2
        reason = f"gave no answer within {self._hosting.pool.deadline:g} s" if late else "died"
        said = ServiceError(f"the {self._hosting.role} {reason} {SPOKEN[chances]} over this request")
        for item in batch:
            item.deaths += 1
            if item.deaths == chances:
                self._fail(item, "late" if late else "died", said)
        self._again([item for item in batch if item.deaths == chances - 1])
        self.line.push_first([item for item in batch if item.deaths < chances - 1])
