"""The part of a pool that runs in the driver: it owns the replicas and changes their number with the demand."""

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import ray
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from openmaia.distributed.cluster.placement import FreePlaces, Place
from openmaia.distributed.cluster.resources import ROUNDING, ResourceRequest, of_replica
from openmaia.distributed.pools.autoscaling import OfferedLoad, PoolClaim, ScalingPolicy, shares_if_short
from openmaia.distributed.pools.dispatch.cache import CacheSpec
from openmaia.distributed.pools.dispatch.dispatcher import Dispatcher
from openmaia.distributed.pools.replica import PoolSpec, Replica
from openmaia.distributed.pools.statistics import PoolStatus

STEP_SECONDS = 0.5
"""Time between two updates of the pools."""

_END_SECONDS = 5.0
"""Longest wait for unfinished calls to the dispatchers when the pools of a run end. Without the wait, Ray would report
these calls as failed. The wait is short, because the command has to end within 15 s after a signal, even if the cluster
is gone."""

_log = logging.getLogger(__name__)

_RemoteDispatcher: Any = ray.remote(Dispatcher)
_RemoteReplica: Any = ray.remote(Replica)


@dataclass(slots=True)
class PoolManager:
    """Owns the replicas and the dispatcher of one pool.

    The dispatcher runs on the node of the driver. Ray restarts dispatcher and replicas if they die, and the dispatcher
    then loads the models of the replicas again.
    """

    spec: PoolSpec
    cache: CacheSpec | None = None
    """None disables the cache."""
    places: Sequence[Place] = ()
    """Reserved resources for the initial replicas."""
    dispatcher: Any = None
    status: PoolStatus | None = None
    """The last status of the dispatcher. None before the first one."""
    policy: ScalingPolicy | None = None
    """None selects a policy with the limits of the pool's config."""
    load: OfferedLoad = field(default_factory=OfferedLoad)
    autoscaled: bool = False
    """Whether nodes are added to the cluster for replicas that wait for resources."""
    free_places: FreePlaces = field(default_factory=FreePlaces)
    """Reserved resources that the pools of the same run no longer use."""
    request: ResourceRequest = field(init=False)
    """The resources that one replica requests."""
    _actors: dict[int, Any] = field(default_factory=dict[int, Any])
    _places: dict[int, Place] = field(default_factory=dict[int, Place])
    """The places of the replicas that use reserved resources, by index of the replica."""
    _draining: set[int] = field(default_factory=set[int])
    _policy: ScalingPolicy = field(init=False)
    _pending: Any = None
    """The Ray object reference of the status that was requested from the dispatcher; None if none was."""
    _waits_since: float | None = None
    """Time since which some replica has not started."""
    _next_index: int = 0

    def __post_init__(self) -> None:
        config = self.spec.config
        self.request = of_replica(self.spec.role, config)
        self._policy = self.policy or ScalingPolicy(config.min_replicas, config.max_replicas)
        here = ray.get_runtime_context().get_node_id()
        self.dispatcher = _RemoteDispatcher.options(
            num_cpus=0,
            max_restarts=-1,
            max_task_retries=-1,
            max_concurrency=100_000,
            # If the affinity were soft, Ray would place an actor without resources on any node.
            scheduling_strategy=NodeAffinitySchedulingStrategy(here, soft=False),
        ).remote(self.spec, self.cache)

    def start(self) -> None:
        """Starts the smallest number of replicas that the pool's config permits. They load concurrently."""
        for number in range(self.spec.config.min_replicas):
            self._add_replica(self.places[number] if number < len(self.places) else None)
        self._publish()

    def step(self, now: float, share: int | None = None, free: int | None = None) -> Sequence[str]:
        """Starts or ends replicas by the last status of the dispatcher. Does not wait.

        Args:
            now: Time of a monotonic clock, in seconds.
            share: See `ScalingPolicy.desired`.
            free: Number of further replicas for which resources are free. If it is 0, the pool grows by one replica,
                which waits. None if the number is unknown, or if the cluster adds nodes for waiting replicas.

        Returns:
            Messages for the user.
        """
        if self._pending is None:
            self._pending = self.dispatcher.status.remote()
        if not ray.wait([self._pending], timeout=0)[0]:
            return ()
        try:
            status: PoolStatus = ray.get(self._pending)
        except RayError:
            return ()  # the dispatcher is being restarted; the next step reads its status
        finally:
            self._pending = None
        if self.status is None or status.incarnation != self.status.incarnation:
            self._publish()
        self.status = status
        self._policy.is_released |= status.released
        self.load.update(status.statistics, now)
        self._waits_since = (self._waits_since or now) if status.unplaced else None
        self._scale(status, now, share, free)
        return status.notes

    @property
    def wants_more(self) -> bool:
        """Whether the pool could keep more replicas busy than it has, or has replicas that have not started."""
        return self.status is not None and (bool(self.status.unplaced) or self.status.demand > len(self._actors))

    @property
    def kind(self) -> tuple[float, float, tuple[tuple[str, str], ...]]:
        """What a replica requests: GPUs, CPUs, and node labels. Pools of one kind compete for the same resources."""
        return self.request.gpus, self.request.cpus, tuple(sorted(self.request.labels.items()))

    def claim(self, now: float) -> PoolClaim:
        """`now` is the time of a monotonic clock."""
        demand, unplaced = (self.status.demand, self.status.unplaced) if self.status is not None else (0.0, ())
        placed = len(self._actors.keys() - set(unplaced))
        return self._policy.claim(self.load.value, demand, placed, now - (self._waits_since or now))

    def end(self, seconds: float) -> list[str]:
        """Ends all processes of the pool, and returns the last messages of the dispatcher, if they come in time."""
        asked = [*([self._pending] if self._pending is not None else []), self.dispatcher.status.remote()]
        notes: list[str] = []
        for reference in ray.wait(asked, num_returns=len(asked), timeout=seconds)[0]:
            with suppress(RayError):
                notes += ray.get(reference).notes
        for actor in (self.dispatcher, *self._actors.values()):
            ray.kill(actor)
        return notes

    def _scale(self, status: PoolStatus, now: float, share: int | None, free: int | None) -> None:
        ended = [index for index in status.drained if index in self._draining]
        for index in ended:
            ray.kill(self._actors.pop(index))
            self._draining.discard(index)
            if index in self._places:
                self.free_places.give_back(self._places.pop(index))
        # Those that Ray has not started are ended first, then the latest.
        active = sorted(self._actors.keys() - self._draining, key=lambda index: (index not in status.unplaced, -index))
        room = None if free is None else max(free, 1)
        unplaced = set(active) & set(status.unplaced)
        # Ray starts replicas in the order of their requests: further ones could come when nobody needs them.
        if unplaced and not (self.autoscaled or self.free_places.count(self.request)):
            room = 0
        wanted = self._policy.desired(len(active), status.demand, now, share=share, room=room)
        for _ in range(wanted - len(active)):
            self._add_replica(self.free_places.take(self.request))
        leaving = active[: max(len(active) - wanted, 0)]
        # What waits for resources of the cluster would wait on beside places that have become free.
        for index in unplaced - self._places.keys() - set(leaving):
            if place := self.free_places.take(self.request):
                self._add_replica(place)
                leaving.append(index)
        for index in leaving:
            self._draining.add(index)
            self.dispatcher.drain.remote(index)
        if ended or wanted > len(active) or leaving:
            self._publish()

    def _add_replica(self, place: Place | None) -> None:
        request, index = self.request, self._next_index
        self._next_index += 1
        options: dict[str, Any] = {"label_selector": dict(request.labels) or None}
        if place is not None:
            self._places[index] = place
            options = {"scheduling_strategy": place.strategy()}
        self._actors[index] = _RemoteReplica.options(
            num_cpus=request.cpus,
            num_gpus=request.gpus,
            max_concurrency=max(self.spec.concurrency, 1) + 1,
            max_restarts=-1,
            **options,
        ).remote(
            f"{self.spec.role}-{index}",
            self.spec.make,
            imports=self.spec.imports,
            measures=self.spec.measures,
            serial=self.spec.concurrency < 2,
            num_gpus=request.gpus,
        )

    def _publish(self) -> None:
        # A restarted dispatcher knows neither the replicas nor which of them are draining.
        self.dispatcher.update.remote(dict(self._actors))
        for index in self._draining:
            self.dispatcher.drain.remote(index)


@contextmanager
def manage(
    managers: Sequence[PoolManager],
    say: Callable[[str], None] = lambda line: None,
    loaded: Callable[[int, float], None] = lambda number, seconds: None,
) -> Iterator[None]:
    """Context manager that starts pools and ends them. In between, a thread calls `PoolManager.step` periodically.

    The pools also end if the driver dies.

    Args:
        managers: The pools.
        say: Receives the output of models that are loading, and their errors. It is also called from the thread.
        loaded: Called from the thread when the first replica of a pool is ready, with the index of its manager and the
            seconds since the pools began to load.
    """
    over = threading.Event()
    loading = dict(enumerate(managers))
    began = time.monotonic()

    def update(now: float) -> None:
        for manager, (share, free) in zip(managers, _shares(managers, now), strict=True):
            for line in manager.step(now, share, free):
                say(line)
        for number, manager in list(loading.items()):
            if manager.status is not None and manager.status.statistics.replicas:
                del loading[number]
                loaded(number, time.monotonic() - began)

    def look() -> None:
        while not over.wait(STEP_SECONDS):
            try:
                update(time.monotonic())
            except Exception:  # such as a full disk under the output: without this thread, no replica would ever start
                _log.exception("the pools could not be updated")

    for manager in managers:
        manager.start()
    thread = threading.Thread(target=look, name="pools", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(_END_SECONDS)
        until = time.monotonic() + _END_SECONDS
        for manager in managers:
            for line in manager.end(max(until - time.monotonic(), 0.0)):
                say(line)


def _shares(managers: Sequence[PoolManager], now: float) -> list[tuple[int | None, int | None]]:
    """Returns for each pool the arguments `share` and `free` of `PoolManager.step`."""
    found: list[tuple[int | None, int | None]] = [(None, None)] * len(managers)
    growing = {manager.kind for manager in managers if manager.wants_more and not manager.autoscaled}
    kinds = [kind for kind in growing if any(kind[:2])]
    try:
        available = ray.available_resources() if kinds else {}
    except RayError:
        return found  # the cluster does not answer now
    for kind in kinds:
        members = [number for number, manager in enumerate(managers) if manager.kind == kind]
        claims = [managers[number].claim(now) for number in members]
        free = managers[members[0]].free_places.count(managers[members[0]].request)
        if not any(claim.waits for claim in claims):
            wanted = [(name, amount) for name, amount in zip(("GPU", "CPU"), kind[:2], strict=True) if amount]
            free += min(int(available.get(name, 0.0) / amount + ROUNDING) for name, amount in wanted)
        for number, share in zip(members, shares_if_short(claims, free), strict=True):
            found[number] = share, free
    return found
