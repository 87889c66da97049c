"""The services of an investigation, answered by pools. Each handle satisfies the Protocol of its service."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import ray
from ray.exceptions import RayActorError, RayTaskError

from openmaia import build
from openmaia.errors import OpenMaiaError, ServiceError
from openmaia.messages import Chat, Reply
from openmaia.remote.pool import Counters, dispatcher
from openmaia.schema import Config
from openmaia.services import Activation, Drawn, Edit, Exemplars, Generation, LayerProbe, Probe, Services
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

    def respond(self, probes: Sequence[LayerProbe]) -> list[npt.NDArray[np.float64]]:
        return self._submit("respond", probes)


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
    roles: tuple[build.Role, ...] = ("target", "generator", "editor", "backbone")
    made: dict[build.Role, Any] = {role: dispatcher(role, config) for role in roles}
    for actor in made.values():
        actor.counters.remote()  # starts its replicas
    yield Pools(made)
    # Only where all went well: otherwise calls are under way, and Ray ends the actors with the driver's connection.
    for actor in made.values():
        ray.kill(actor)
