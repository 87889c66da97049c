"""The services of an investigation, answered by pools. Each handle satisfies the Protocol of its service."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import ray
from ray.exceptions import RayActorError, RayTaskError

from openmaia import build
from openmaia.errors import OpenMaiaError, ServiceError
from openmaia.messages import Chat, Reply
from openmaia.remote.pool import Answers, Counters, dispatcher
from openmaia.schema import Config
from openmaia.services import Activation, Drawn, Edit, Exemplars, Generation, Ledger, Probe, Services
from openmaia.units import TargetInfo


@dataclass(frozen=True)
class _Handle:
    """caller: on whose behalf it asks; pools go round between callers. gpus: of a replica. ledger: of the caller's costs."""

    role: build.Role
    dispatcher: Any
    caller: str
    gpus: float
    ledger: Ledger

    def _submit(self, method: str, requests: Sequence[Any]) -> list[Any]:
        if not requests:
            return []
        answered: Answers = resolve(self.dispatcher.submit.remote(self.caller, method, list(requests)))
        self.ledger.add(self.role, len(requests), answered.seconds, self.gpus)
        return answered.answers


class PooledTarget(_Handle):
    def info(self) -> TargetInfo:
        return resolve(self.dispatcher.info.remote())

    def probe(self, probes: Sequence[Probe]) -> list[Activation]:
        return self._submit("probe", probes)


class PooledGenerator(_Handle):
    def generate(self, requests: Sequence[Generation]) -> list[Drawn]:
        return self._submit("generate", requests)


class PooledEditor(_Handle):
    def edit(self, requests: Sequence[Edit]) -> list[Drawn]:
        return self._submit("edit", requests)


class PooledBackbone(_Handle):
    def reply(self, chats: Sequence[Chat]) -> list[Reply]:
        return self._submit("reply", chats)


def resolve(reference: Any) -> Any:
    """ray.get with our own exceptions as they were raised, and Ray's as ServiceError."""
    try:
        return ray.get(reference)
    except RayTaskError as error:
        if isinstance(error.cause, OpenMaiaError):
            raise error.cause from None
        raise ServiceError(f"a service failed: {type(error.cause).__name__}: {error.cause}") from error
    except RayActorError as error:
        raise ServiceError("a service's dispatcher died and did not come back") from error


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

    def _of(self, role: build.Role, caller: str, ledger: Ledger) -> tuple[build.Role, Any, str, float, Ledger]:
        return role, self.dispatchers[role], caller, self.gpus.get(role, 0.0), ledger

    def leave(self, caller: str) -> None:
        """A caller has ended or died: what it still asks for is dropped."""
        for actor in self.dispatchers.values():
            actor.leave.remote(caller)

    def counters(self) -> dict[build.Role, Counters]:
        asked: dict[build.Role, Any] = {role: actor.counters.remote() for role, actor in self.dispatchers.items()}
        return {role: resolve(asked[role]) for role in asked}


@contextmanager
def pools(config: Config) -> Iterator[Pools]:
    """All pools of a run; replicas start at once and load side by side."""
    roles: tuple[build.Role, ...] = ("target", "generator", "editor", "backbone")
    made: dict[build.Role, Any] = {role: dispatcher(role, config) for role in roles}
    for actor in made.values():
        actor.counters.remote()  # starts its replicas
    yield Pools(made, {role: getattr(config.pools, role).num_gpus for role in roles})
    # Only where all went well: otherwise calls are under way, and Ray ends the actors with the driver's connection.
    for actor in made.values():
        ray.kill(actor)
