"""Persistent pools: models that stay loaded on a permanent Ray cluster after a run has ended.

A detached Ray actor, the keeper, owns the dispatchers and replicas instead of a driver. Its name contains a hash of the
config sections that describe the pools, so that runs with equal sections find it.
"""

import hashlib
import json
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from threading import Event
from typing import Any

import ray

from openmaia.config.loading import to_dict
from openmaia.config.schema import Config
from openmaia.core.errors import OpenMaiaError, UsageError
from openmaia.distributed.assembly import Assembly
from openmaia.distributed.cluster.preflight import check_room
from openmaia.distributed.failures import resolve
from openmaia.distributed.pools.handles import Pools
from openmaia.distributed.pools.run_pools import run_pools
from openmaia.distributed.pools.statistics import PoolStatistics

_NAMESPACE = "openmaia-pools"
"""The Ray namespace of the keepers."""

_RESERVING_SECONDS = 30.0
"""Longest wait of `down` until keepers that are starting have asked Ray for their resources."""

_STATUS = "status"
"""Ray concurrency group of the keeper's methods that can run while `start` runs."""

Start = Callable[[Sequence[Config], Assembly, Callable[[str], None]], AbstractContextManager[list[Pools]]]
"""Starts pools for each of some configs, such as `run_pools`."""

_SECTIONS = ("target", "generator", "editor", "backbone", "viewer", "pictures", "pools")
"""The sections of a config that determine its pools, besides `evaluate.generator`."""


def pools_name(config: Config) -> str:
    """Returns the name of the persistent pools of a config: its target and a hash of what determines the pools."""
    values = to_dict(config)
    sections = {section: values[section] for section in _SECTIONS} | {"test": values["evaluate"]["generator"]}
    text = json.dumps(sections, sort_keys=True)
    return f"{config.target.name}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"


@dataclass(slots=True)
class PoolKeeper:
    """A Ray actor that owns the persistent pools of one config."""

    config: Config
    assembly: Assembly
    _stack: ExitStack = field(default_factory=ExitStack)
    _pools: Pools | None = None
    _has_reserved: Event = field(default_factory=Event)
    """Set when Ray knows of all reservations of the pools."""

    def __repr__(self) -> str:
        return f"pools {pools_name(self.config)}"

    def start(self) -> Pools:
        """Starts the pools if they are not running."""
        if self._pools is None:
            try:
                # The first message is that the reservations wait, or that the models load.
                pools = run_pools([self.config], self.assembly, lambda line: self._has_reserved.set())
                self._pools = replace(self._stack.enter_context(pools)[0], kept=True)
            finally:
                self._has_reserved.set()
        return self._pools

    @ray.method(concurrency_group=_STATUS)
    def statistics(self) -> dict[str, PoolStatistics]:
        """Returns the statistics by role. The dict is empty while the pools are starting."""
        return self._pools.statistics() if self._pools is not None else {}

    @ray.method(concurrency_group=_STATUS)
    def stop(self) -> None:
        """Ends the pools. Afterwards the actor can be killed."""
        # Ray removes the reservations of an actor when it is told to kill it. One that the actor makes between that and the
        # end of its process would stay for ever.
        self._has_reserved.wait(_RESERVING_SECONDS)
        self._stack.close()


_as_actor: Any = ray.remote
_RemoteKeeper = _as_actor(concurrency_groups={_STATUS: 1})(PoolKeeper)


def up(config: Config, assembly: Assembly, say: Callable[[str], None] = lambda line: None) -> str:
    """Starts the persistent pools of a config if they are not running, and returns their name.

    Raises:
        UsageError: If `ray.address` is "local", because that cluster ends with this process, or if the cluster is too
            small.
    """
    if config.ray.address == "local":
        raise UsageError(
            "ray.address=local starts a cluster that ends with the command; give ray.address=auto, or the address of one that "
            "`ray start` keeps up"
        )
    name = pools_name(config)
    is_new = _find(name) is None
    if is_new:
        check_room([config], say)
    options = {"name": name, "namespace": _NAMESPACE, "lifetime": "detached", "get_if_exists": True, "num_cpus": 0}
    keeper = _RemoteKeeper.options(**options).remote(config, assembly)
    try:
        resolve(keeper.start.remote())
    except OpenMaiaError:
        if is_new:
            ray.kill(keeper)
        raise
    return name


def down(config: Config) -> bool:
    """Ends the persistent pools of a config. Returns whether they were running."""
    keeper = _find(pools_name(config))
    if keeper is None:
        return False
    resolve(keeper.stop.remote())
    ray.kill(keeper)
    return True


def names() -> list[str]:
    """Returns the names of the persistent pools on this cluster, sorted."""
    actors: Any = ray.util.list_named_actors(all_namespaces=True)
    return sorted(actor["name"] for actor in actors if actor["namespace"] == _NAMESPACE)


def statistics(name: str) -> dict[str, PoolStatistics]:
    """Returns the statistics of persistent pools by role, given their name.

    The dict is empty if no pools with this name are running, or if they are still starting.
    """
    keeper = _find(name)
    return resolve(keeper.statistics.remote()) if keeper is not None else {}


def loaded(config: Config) -> Pools | None:
    """Returns the persistent pools of a config. None if they are not running, or still starting."""
    keeper = _find(pools_name(config))
    return resolve(keeper.start.remote()) if keeper is not None and resolve(keeper.statistics.remote()) else None


@contextmanager
def kept_or_own_pools(
    configs: Sequence[Config],
    assembly: Assembly,
    say: Callable[[str], None] = lambda line: None,
    start: Start = run_pools,
) -> Generator[list[Pools]]:
    """Context manager that yields the pools of each config, in the order of the configs.

    Persistent pools are used if they are running for every config. Otherwise `start` starts new ones for all configs, which
    end with the block.
    """
    keepers = [keeper for config in configs if (keeper := _find(pools_name(config))) is not None]
    if len(keepers) == len(configs):
        say("using the pools that are kept up on this cluster")
        yield [resolve(keeper.start.remote()) for keeper in keepers]
        return
    with start(configs, assembly, say) as made:
        yield made


def _find(name: str) -> Any | None:
    try:
        return ray.get_actor(name, namespace=_NAMESPACE)
    except ValueError:
        return None
