"""The replicas of a dispatcher: loads their models, again after a replica has died, and knows which conversations each has."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import ray
from ray.exceptions import ActorUnavailableError, RayError, RayTaskError

from openmaia.core.errors import OpenMaiaError, UsageError
from openmaia.distributed.failures import DEAD, last_line
from openmaia.distributed.pools.dispatch.queueing import AffinityRouter
from openmaia.distributed.pools.replica import PoolSpec

_LAUNCHES = 3
"""Number of times that a replica may die while it loads its model before it has to wait for _RETRY_SECONDS."""

_RETRY_SECONDS = 30.0
"""Time until a replica that could not be loaded is loaded again."""

_OUTPUT_SECONDS = 2.0
"""Time between two reads of the output of a replica that loads its model."""

_MAX_NOTES = 100
"""Largest number of messages that are kept for the driver. Older ones are dropped."""

_PAUSE = 0.1
"""Seconds between two checks of a replica that Ray is starting."""

_log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class ReplicaHandle:
    """The dispatcher's state of one replica. Times are in seconds on the clock of the event loop."""

    index: int
    """It is not used again after the replica has been removed."""
    actor: Any
    started: bool = False
    """Whether Ray has started its process, for which a node must have room."""
    ready: bool = False
    """Whether its model is loaded."""
    draining: bool = False
    """Whether it gets no more work, because it is about to end."""
    in_flight: int = 0
    """Number of batches (for language models: chats) that were sent and not answered."""
    exclusive: bool = False
    """Whether it processes a request that is retried alone, and must get no other work meanwhile."""
    process: str = ""
    """The id of the process that was found last (`Replica.process`)."""
    killed: str = ""
    """That of the process that was killed last. Until Ray has ended it, it answers for the one that replaces it."""
    life: int = 0
    """Number of deaths. A failure that belongs to an earlier life of the replica is ignored."""
    has_served: bool = False
    """Whether it has ever been ready."""
    failures: int = 0
    """Number of failed attempts to load the model since it was last ready."""


class ReplicaSet:
    """The replicas of one pool. It loads their models, also after Ray has restarted their processes.

    All methods must be called in the same event loop. `on_ready` is called when a replica is about to be ready, `on_broken` if
    none can be loaded.
    """

    def __init__(self, spec: PoolSpec, on_ready: Callable[[], None], on_broken: Callable[[], None]):
        self._spec, self._on_ready, self._on_broken = spec, on_ready, on_broken
        self._handles: dict[int, ReplicaHandle] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._notes: deque[str] = deque(maxlen=_MAX_NOTES)
        self.affinity = AffinityRouter()
        self.broken = ""
        """The error message if no replica of the pool can be loaded; empty otherwise."""

    def __iter__(self):
        return iter(self._handles.values())

    def take_notes(self) -> tuple[str, ...]:
        """Returns the messages since the last call: output of models that are loading, and failures."""
        notes = tuple(self._notes)
        self._notes.clear()
        return notes

    def ready(self) -> list[ReplicaHandle]:
        """Returns the replicas that may get work: they are loaded and not draining."""
        return [handle for handle in self if handle.ready and not handle.draining]

    def update(self, actors: Mapping[int, Any]) -> None:
        """Replaces the set by the replicas that the driver has now. The models of new replicas are loaded."""
        for index, actor in actors.items():
            if index not in self._handles:
                self._handles[index] = ReplicaHandle(index, actor)
                self.spawn(self._bring_up(self._handles[index]))
        for index in self._handles.keys() - actors.keys():
            del self._handles[index]
            self.affinity.remove_replica(index)

    def drain(self, index: int) -> None:
        """Marks a replica as draining. Its conversations move to others, and it may be ended when its `in_flight` is 0."""
        self.affinity.remove_replica(index)
        if index in self._handles:
            self._handles[index].draining = True

    def lose(self, handle: ReplicaHandle, life: int, *, kill: bool) -> bool:
        """Marks a replica as dead and loads it again after its restart. `kill` ends a process that hangs.

        Returns:
            False if this death was handled before (`life` is that of the failed work), or if the replica was removed.
        """
        if handle.life != life or handle.index not in self._handles:
            return False
        handle.life += 1
        handle.started = handle.ready = False
        self.affinity.remove_replica(handle.index)
        if kill:
            handle.killed = handle.process
            ray.kill(handle.actor, no_restart=False)
        self.spawn(self._bring_up(handle))
        return True

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Runs a coroutine as a background task."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)  # so that it is not garbage-collected
        task.add_done_callback(self._tasks.discard)

    async def _bring_up(self, handle: ReplicaHandle) -> None:
        life = handle.life
        while handle.life == life and self._is_in_use(handle):
            try:
                await self._load(handle)
            except Exception as error:  # any error must be handled, so that no caller waits forever for this replica
                cause = error.cause if isinstance(error, RayTaskError) else error
                could_not = f"the {self._spec.role} could not be loaded: {last_line(error)}"
                await self._could_not_load(handle, cause.message if isinstance(cause, OpenMaiaError) else could_not)
                continue
            if handle.life == life and self._is_in_use(handle):
                self._on_ready()
                handle.ready, handle.has_served, handle.failures, self.broken = True, True, 0, ""
                self.affinity.add_replica(handle.index)
            return

    async def _load(self, handle: ReplicaHandle) -> None:
        reason = ""
        for _ in range(_LAUNCHES):
            try:
                await self._wait_for_start(handle)
                loading = asyncio.ensure_future(handle.actor.load.remote())
                while not loading.done():
                    await asyncio.wait([loading], timeout=_OUTPUT_SECONDS)
                    await self._take_output(handle)
                return await loading
            except DEAD as error:
                reason = last_line(error)
                handle.started = False
        raise UsageError(f"the {self._spec.role} died {_LAUNCHES} times while it was loaded: {reason}")

    async def _wait_for_start(self, handle: ReplicaHandle) -> None:
        while not handle.started:
            with suppress(ActorUnavailableError):
                handle.process = await handle.actor.process.remote()
                handle.started = handle.process != handle.killed
            if not handle.started:
                await asyncio.sleep(_PAUSE)

    async def _take_output(self, handle: ReplicaHandle) -> None:
        with suppress(RayError, TimeoutError):  # the process has died, or a library keeps it from answering
            lines = await asyncio.wait_for(handle.actor.output.remote(), _OUTPUT_SECONDS)
            self._notes.extend(f"{self._spec.role}-{handle.index}: {line}" for line in lines)

    async def _could_not_load(self, handle: ReplicaHandle, message: str) -> None:
        """Reports that a replica could not be loaded, and waits until it is time to try again.

        If no replica is ready and none could be loaded, the pool is broken: waiting and new requests fail at once. A
        replica that has been ready before is given up only after a second failure in a row, and one that has not
        started after _RETRY_SECONDS waits for room on a node and does not count.
        """
        if not self._is_in_use(handle):
            return  # the replica was ended while it was loading
        handle.failures += 1
        note = f"a replica of the {self._spec.role} could not be loaded, next try in {_RETRY_SECONDS:g} s: {message}"
        _log.warning("%s", note)
        self._notes.append(note)
        self._give_up(message, list(self))
        await asyncio.sleep(_RETRY_SECONDS)
        if self._is_in_use(handle):
            self._give_up(message, [one for one in self if one.started or one.failures])

    def _is_in_use(self, handle: ReplicaHandle) -> bool:
        return self._handles.get(handle.index) is handle and not handle.draining

    def _give_up(self, message: str, replicas: list[ReplicaHandle]) -> None:
        if not any(one.ready for one in self) and all(one.failures > one.has_served for one in replicas):
            self.broken = message
            self._on_broken()
