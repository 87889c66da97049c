"""One replica of a model host: the actor, how it is started, and what its dispatcher knows of it."""

import asyncio
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import ray
from ray.exceptions import RayTaskError

from openmaia.errors import OpenMaiaError, ServiceError, UsageError
from openmaia.remote.failures import DEAD, plain
from openmaia.remote.listener import Address, listen_in_threads
from openmaia.remote.meter import Meter
from openmaia.remote.placement import Place
from openmaia.remote.staging import Staging
from openmaia.remote.wire import Connection
from openmaia.schema import PoolConfig

LAUNCHES = 3
"""So often a replica may die while it loads its model before it is given up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hosting:
    """What a pool serves. role: its name in messages. make: gives the host, in the replica's own process. at_once: calls
    that a replica answers at once; 0 for hosts that want one batch after the other."""

    role: str
    make: Callable[[], Any]
    pool: PoolConfig
    at_once: int = 0
    places: Sequence[Place] = ()
    """Of its replicas; none where they take what they need as they come."""


class Replica:
    """Holds one host. A plain class; `ray.remote` is applied at the end of this file."""

    def __init__(self, make: Callable[[], Any]):
        self._make = make
        self._host: Any = None

    def start(self) -> None:
        """Loads the model: its errors then are results of a call and not the death of an actor."""
        self._host = self._make()

    def node(self) -> str:
        """On which this replica is, by Ray's id."""
        return ray.get_runtime_context().get_node_id()

    def awake(self) -> None:
        """Returns: this replica lives."""

    def listen(self, threads: int) -> Address:
        """Where this replica is asked from now on, so many batches at once."""
        return listen_in_threads({"call": self.call, "awake": self.awake}, threads)

    def serve(self) -> None:
        """Never returns: its end is the replica's."""
        threading.Event().wait()

    def call(self, method: str, requests: Sequence[Any]) -> list[Any]:
        if method == "info":
            return [self._host.info() for _ in requests]
        return getattr(self._host, method)(requests)


@dataclass(slots=True, eq=False)
class Served:
    """A replica that is up. under_way: batches sent and not answered; pace: seconds per batch, a moving average; since: when
    it last began to have work."""

    index: int
    actor: Any
    connection: Connection
    under_way: int = 0
    exclusive: bool = False
    pace: float = 1.0
    since: float = 0.0
    meter: Meter = field(default_factory=Meter)
    gone: asyncio.Event = field(default_factory=asyncio.Event)

    def begin(self, now: float, *, exclusive: bool) -> None:
        if self.under_way == 0:
            self.since = now
        self.under_way += 1
        self.exclusive = exclusive

    def end(self, began: float, now: float) -> float:
        """Gives the seconds for which it has had work, where it has none any more."""
        self.under_way -= 1
        self.exclusive = False
        self.pace += 0.3 * ((now - began) / (self.under_way + 1) - self.pace)
        return 0.0 if self.under_way else now - self.since


async def launch(hosting: Hosting, index: int, staging: Staging) -> Served:
    """The replica of that number, which has loaded its model. Raises UsageError where the configuration or the network makes
    that impossible."""
    reason = ""
    for _ in range(LAUNCHES):
        actor = _RemoteReplica.options(**_options(hosting, index)).remote(hosting.make)
        try:
            async with staging.turn(await actor.node.remote()):
                await actor.start.remote()
            return Served(index=index, actor=actor, connection=await _connected(actor, max(hosting.at_once, 1)))
        except RayTaskError as error:
            ray.kill(actor)
            cause = error.cause if isinstance(error.cause, OpenMaiaError) else None
            said = cause.message if cause else f"the {hosting.role} could not be loaded: {plain(error)}"
            raise UsageError(said) from error
        except DEAD as error:
            reason = plain(error)
    raise UsageError(f"the {hosting.role} died {LAUNCHES} times while it was loaded: {reason}")


async def _connected(actor: Any, threads: int) -> Connection:
    connection = Connection(await actor.listen.remote(threads))
    try:
        await connection.reach()
    except ServiceError as error:
        await actor.awake.remote()  # raises where it has died meanwhile
        ray.kill(actor)
        raise UsageError(error.message) from None
    return connection


def _options(hosting: Hosting, index: int) -> dict[str, Any]:
    pool = hosting.pool
    where: dict[str, Any] = {"label_selector": dict(pool.node_labels) or None}
    if hosting.places:
        where = {"scheduling_strategy": hosting.places[index].strategy()}
    return {
        "num_cpus": pool.num_cpus,
        "num_gpus": pool.num_gpus,
        "max_concurrency": max(hosting.at_once, 1),
        **where,
    }


_RemoteReplica: Any = ray.remote(Replica)
