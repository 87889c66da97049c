"""The services of an investigation, answered by pools. Each handle satisfies the Protocol of its service."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import ray

from openmaia import build
from openmaia.config import to_dict
from openmaia.errors import ServiceError
from openmaia.messages import Chat, Reply
from openmaia.remote.cache import Kept
from openmaia.remote.counters import Counters
from openmaia.remote.failures import resolve
from openmaia.remote.line import Answers
from openmaia.remote.placement import Place, reserved
from openmaia.remote.pool import dispatcher
from openmaia.remote.replica import Hosting
from openmaia.remote.wire import Raised, forget, wire
from openmaia.remote.wish import of_pool
from openmaia.schema import Config, DrawingPoolConfig
from openmaia.services import Activation, Drawn, Edit, Exemplars, Generation, LayerProbe, Ledger, Probe, Services
from openmaia.store.files import Files
from openmaia.units import TargetInfo


@dataclass(frozen=True)
class _Handle:
    """caller: on whose behalf it asks; pools go round between callers. gpus: of a replica. ledger: of the caller's costs."""

    role: ClassVar[build.Role]
    dispatcher: Any
    caller: str
    gpus: float = 0.0
    ledger: Ledger = field(default_factory=Ledger)

    def _submit(self, method: str, requests: Sequence[Any]) -> list[Any]:
        if not requests:
            return []
        while (answered := self._tried(method, requests)) is None:
            _asked(self.dispatcher, "admit", self.caller, len(requests))
        self.ledger.add(self.role, len(requests), answered.seconds, self.gpus)
        return answered.answers

    def _tried(self, method: str, requests: Sequence[Any]) -> Answers | None:
        """None where the pool has no room just now."""
        return _asked(self.dispatcher, "submit", self.caller, method, list(requests))


class PooledTarget(_Handle):
    role = "target"

    def info(self) -> TargetInfo:
        return self._submit("info", [None])[0]

    def probe(self, probes: Sequence[Probe]) -> list[Activation]:
        return self._submit("probe", probes)

    def respond(self, probes: Sequence[LayerProbe]) -> list[npt.NDArray[np.float64]]:
        return self._submit("respond", probes)


class PooledGenerator(_Handle):
    role = "generator"

    def generate(self, requests: Sequence[Generation]) -> list[Drawn]:
        return self._submit("generate", requests)


class PooledEditor(_Handle):
    role = "editor"

    def edit(self, requests: Sequence[Edit]) -> list[Drawn]:
        for request in requests:
            # Travels with the picture, so that the dispatcher, which knows requests by it, need not decode anything.
            _ = request.picture.digest
        return self._submit("edit", requests)


class PooledBackbone(_Handle):
    role = "backbone"

    def reply(self, chats: Sequence[Chat]) -> list[Reply]:
        return self._submit("reply", chats)


def _asked(actor: Any, method: str, *arguments: Any) -> Any:
    try:
        return wire(actor).call(method, *arguments)
    except Raised as error:
        if error.cause is not None:
            raise error.cause from None
        raise ServiceError(f"a service failed: {error}") from None


@dataclass(frozen=True)
class Pools:
    """The dispatchers of a run, and the GPUs of a replica, by role."""

    dispatchers: Mapping[build.Role, Any]
    gpus: Mapping[build.Role, float] = field(default_factory=dict[build.Role, float])

    def services(self, exemplars: Exemplars, caller: str) -> Services:
        ledger = Ledger()
        return Services(
            target=PooledTarget(*self._of("target", caller, ledger)),
            exemplars=exemplars,
            generator=PooledGenerator(*self._of("generator", caller, ledger)),
            editor=PooledEditor(*self._of("editor", caller, ledger)),
            backbone=PooledBackbone(*self._of("backbone", caller, ledger)),
            ledger=ledger,
        )

    def target(self, caller: str) -> PooledTarget:
        return PooledTarget(*self._of("target", caller, Ledger()))

    def generator(self, caller: str) -> PooledGenerator:
        return PooledGenerator(*self._of("generator", caller, Ledger()))

    def _of(self, role: build.Role, caller: str, ledger: Ledger) -> tuple[Any, str, float, Ledger]:
        return self.dispatchers[role], caller, self.gpus.get(role, 0.0), ledger

    def leave(self, caller: str) -> None:
        """A caller has failed or died: what it still asks for is dropped."""
        for actor in self.dispatchers.values():
            actor.leave.remote([caller])

    def over(self, callers: Sequence[str]) -> None:
        """Callers have ended well: nothing of theirs waits, only their conversations are to be forgotten."""
        self.dispatchers["backbone"].leave.remote(callers)

    def counters(self) -> dict[build.Role, Counters]:
        asked: dict[build.Role, Any] = {role: actor.counters.remote() for role, actor in self.dispatchers.items()}
        return {role: resolve(asked[role]) for role in asked}


@contextmanager
def pools(config: Config) -> Iterator[Pools]:
    """All pools of a run; replicas start at once and load side by side. They are this process's: when it dies, Ray ends
    them, whatever they were doing."""
    with shared([config]) as made:
        yield made[0]


@contextmanager
def shared(configs: Sequence[Config], say: Callable[[str], None] = lambda line: None) -> Iterator[list[Pools]]:
    """The pools of several runs: a target for each, everything else once, made after the first config. say: gets a word
    where their replicas have to wait for room."""
    roles: tuple[build.Role, ...] = ("generator", "editor", "backbone")
    once: Iterator[tuple[build.Role, Config]] = ((role, configs[0]) for role in roles)
    wanted: list[tuple[build.Role, Config]] = [*once, *(("target", config) for config in configs)]
    claims = [of_pool(role, getattr(config.pools, role)) for role, config in wanted]
    with reserved(claims, say, grows=configs[0].ray.autoscaling) as places:
        made = [_dispatcher(role, config, held) for (role, config), held in zip(wanted, places, strict=True)]
        for actor in made:
            actor.counters.remote()  # starts its replicas
        gpus: dict[build.Role, float] = {role: getattr(configs[0].pools, role).num_gpus for role in ("target", *roles)}
        common: dict[build.Role, Any] = dict(zip(roles, made, strict=False))
        try:
            yield [Pools({"target": target, **common}, gpus) for target in made[len(roles) :]]
        finally:
            for actor in made:
                forget(actor)
        # Only where all went well: otherwise calls are under way, and Ray ends the actors with the driver's connection.
        last = [actor.counters.remote() for actor in made]  # behind the last `leave`
        ray.wait(last, num_returns=len(made), timeout=10)
        for actor in made:
            ray.kill(actor)


def _dispatcher(role: build.Role, config: Config, places: Sequence[Place]) -> Any:
    return dispatcher(hosting(role, config, places), kept(role, config), config.name)


def hosting(role: build.Role, config: Config, places: Sequence[Place] = ()) -> Hosting:
    return Hosting(
        role=role,
        make=partial(build.host, role, config),
        pool=getattr(config.pools, role),
        at_once=build.concurrency(role, config),
        places=places,
    )


def kept(role: build.Role, config: Config) -> Kept | None:
    """What the pool of a service keeps of its answers, in memory and in the run's directory; None for nothing."""
    pool = getattr(config.pools, role)
    if not isinstance(pool, DrawingPoolConfig) or pool.cache_mb == 0:
        return None
    # A collage is made of the pictures, and its editor draws at the generator's size.
    sections = {name: values for name, values in to_dict(config).items() if name in ("generator", "editor", "pictures")}
    return Kept(
        identity=json.dumps(sections, sort_keys=True),
        memory=pool.cache_mb * 2**20,
        disk=pool.spill_mb * 2**20,
        files=Files(f"{config.paths.runs}/{config.name}"),
        folder=f"cache/{role}",
    )
