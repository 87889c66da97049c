"""The services of an investigation, answered by pools. Each handle satisfies the Protocol of its service."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import ray
from ray.exceptions import RayActorError, RayTaskError

from openmaia import build
from openmaia.errors import OpenMaiaError, ServiceError
from openmaia.messages import Chat, Reply
from openmaia.remote.pool import Counters, dispatcher
from openmaia.schema import Config
from openmaia.services import Activation, Drawn, Edit, Exemplars, Generation, Probe, Services
from openmaia.units import TargetInfo


@dataclass(frozen=True)
class _Handle:
    """caller: on whose behalf it asks; pools go round between callers."""

    dispatcher: Any
    caller: str

    def _submit(self, method: str, requests: Sequence[Any]) -> list[Any]:
        return resolve(self.dispatcher.submit.remote(self.caller, method, list(requests))) if requests else []


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
    """The dispatchers of a run, by role."""

    dispatchers: Mapping[build.Role, Any]

    def services(self, exemplars: Exemplars, caller: str) -> Services:
        return Services(
            target=self.target(caller),
            exemplars=exemplars,
            generator=self.generator(caller),
            editor=PooledEditor(self.dispatchers["editor"], caller),
            backbone=PooledBackbone(self.dispatchers["backbone"], caller),
        )

    def target(self, caller: str) -> PooledTarget:
        return PooledTarget(self.dispatchers["target"], caller)

    def generator(self, caller: str) -> PooledGenerator:
        return PooledGenerator(self.dispatchers["generator"], caller)

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
    with shared([config]) as made:
        yield made[0]


@contextmanager
def shared(configs: Sequence[Config]) -> Iterator[list[Pools]]:
    """The pools of several runs: a target for each, everything else once, made after the first config."""
    roles: tuple[build.Role, ...] = ("generator", "editor", "backbone")
    common: dict[build.Role, Any] = {role: dispatcher(role, configs[0]) for role in roles}
    targets = [dispatcher("target", config) for config in configs]
    made = [*targets, *common.values()]
    for actor in made:
        actor.counters.remote()  # starts its replicas
    yield [Pools({"target": target, **common}) for target in targets]
    # Only where all went well: otherwise calls are under way, and Ray ends the actors with the driver's connection.
    ray.wait([actor.counters.remote() for actor in made], num_returns=len(made), timeout=10)  # behind the last `leave`
    for actor in made:
        ray.kill(actor)
