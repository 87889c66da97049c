"""One replica of a model host: the actor, how it is started, and what its dispatcher knows of it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import ray
from ray.exceptions import RayActorError, RayTaskError

from openmaia import build
from openmaia.errors import OpenMaiaError, UsageError
from openmaia.schema import Config, PoolConfig

LAUNCHES = 3
"""So often a replica may die while it loads its model before the pool gives up."""


class Replica:
    """Holds one host. A plain class; `ray.remote` is applied at the end of this file."""

    def __init__(self, role: build.Role, config: Config):
        self._role: build.Role = role
        self._config = config
        self._host: Any = None

    def start(self) -> None:
        """Loads the model: its errors then are results of a call and not the death of an actor."""
        self._host = build.host(self._role, self._config)

    def call(self, method: str, requests: Sequence[Any]) -> Any:
        return getattr(self._host, method)(*([requests] if requests else []))


@dataclass(slots=True, eq=False)
class Served:
    """A replica that is up. under_way: batches sent and not answered; pace: seconds per batch, a moving average."""

    index: int
    actor: Any
    under_way: int = 0
    exclusive: bool = False
    pace: float = 1.0
    since: float = 0.0
    gone: bool = False


async def launch(role: build.Role, config: Config, pool: PoolConfig, at_once: int) -> Any:
    """An actor that has loaded its model. Raises UsageError where the configuration makes that impossible."""
    reason = ""
    for _ in range(LAUNCHES):
        actor = _RemoteReplica.options(
            num_cpus=pool.num_cpus,
            num_gpus=pool.num_gpus,
            max_concurrency=max(at_once, 1),
            label_selector=dict(pool.node_labels) or None,
        ).remote(role, config)
        try:
            await actor.start.remote()
            return actor
        except RayTaskError as error:
            ray.kill(actor)
            cause = error.cause if isinstance(error.cause, OpenMaiaError) else None
            raise UsageError(cause.message if cause else f"the {role} could not be loaded: {plain(error)}") from error
        except RayActorError as error:
            reason = plain(error)
    raise UsageError(f"the {role} died {LAUNCHES} times while it was loaded: {reason}")


def plain(error: Exception) -> str:
    """The last line of what went wrong: Ray's text carries colours, process ids and addresses."""
    cause = error.cause if isinstance(error, RayTaskError) else error
    return f"{type(cause).__name__}: {str(cause).strip().splitlines()[-1] if str(cause).strip() else 'no message'}"


_RemoteReplica: Any = ray.remote(Replica)
