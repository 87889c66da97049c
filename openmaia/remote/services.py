"""The services of an investigation, answered by pools. Each handle satisfies the Protocol of its service."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import ray
from ray.exceptions import RayActorError, RayTaskError

from openmaia import build
from openmaia.errors import OpenMaiaError, ServiceError
from openmaia.messages import Chat, Reply
from openmaia.remote.pool import dispatcher
from openmaia.schema import Config
from openmaia.services import Activation, Drawn, Edit, Exemplars, Generation, Probe, Services
from openmaia.units import TargetInfo


@dataclass(frozen=True)
class _Handle:
    dispatcher: Any

    def _submit(self, method: str, requests: Sequence[Any]) -> list[Any]:
        return resolve(self.dispatcher.submit.remote(method, list(requests))) if requests else []


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
    target: PooledTarget
    generator: PooledGenerator
    editor: PooledEditor
    backbone: PooledBackbone

    def services(self, exemplars: Exemplars) -> Services:
        return Services(
            target=self.target,
            exemplars=exemplars,
            generator=self.generator,
            editor=self.editor,
            backbone=self.backbone,
        )


@contextmanager
def pools(config: Config) -> Iterator[Pools]:
    """All pools of a run; replicas start at once and load side by side."""
    roles: tuple[build.Role, ...] = ("target", "generator", "editor", "backbone")
    made = {role: dispatcher(role, config) for role in roles}
    for actor in made.values():
        actor.counters.remote()  # starts its replicas
    yield Pools(
        target=PooledTarget(made["target"]),
        generator=PooledGenerator(made["generator"]),
        editor=PooledEditor(made["editor"]),
        backbone=PooledBackbone(made["backbone"]),
    )
    # Only where all went well: otherwise calls are under way, and Ray ends the actors with the driver's connection.
    for actor in made.values():
        ray.kill(actor)
