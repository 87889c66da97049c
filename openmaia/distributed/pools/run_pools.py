"""Builds the pools of one or several runs from their configs."""

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial

from openmaia.config.machine import DrawingPoolConfig
from openmaia.config.schema import Config, model_of, pool_names, pools_by_role
from openmaia.core.components import identity, of_config
from openmaia.core.paths import user_path
from openmaia.distributed.assembly import Assembly
from openmaia.distributed.cluster.placement import FreePlaces, Place, reserve
from openmaia.distributed.cluster.resources import of_pool
from openmaia.distributed.pools.dispatch.cache import CacheSpec
from openmaia.distributed.pools.handles import PoolAddress, Pools
from openmaia.distributed.pools.manager import PoolManager, manage
from openmaia.distributed.pools.replica import PoolSpec

_LOADING = "loading.json"
"""File in `paths.cache` with the times in seconds that models took to load, by a hash of their configs."""


@contextmanager
def run_pools(
    configs: Sequence[Config], assembly: Assembly, say: Callable[[str], None] = lambda line: None
) -> Iterator[list[Pools]]:
    """Context manager that starts the pools of several runs and yields those of each, in the order of the configs.

    Each run has its own pool for its target. The runs share all other pools, which are built from the first config. If
    this process dies, Ray ends the replicas. `say` receives a message if replicas wait for resources, and the output of
    models that are loading.
    """
    shared = [pool for pool in pool_names(configs[0]) if pool != "target"]
    wanted = [(pool, configs[0]) for pool in shared] + [("target", config) for config in configs]
    with _managed(wanted, assembly, say) as managers:
        addresses = {manager.spec.role: _address(manager) for manager in managers[: len(shared)]}
        roles = pools_by_role(configs[0])
        yield [Pools({"target": _address(target), **addresses}, roles) for target in managers[len(shared) :]]


@contextmanager
def run_generators(configs: Sequence[Config], assembly: Assembly, say: Callable[[str], None]) -> Iterator[list[Pools]]:
    """Context manager that starts the pool of the generator alone for each config, as `run_pools` starts all."""
    with _managed([("generator", config) for config in configs], assembly, say) as managers:
        yield [
            Pools({"generator": _address(manager)}, pools_by_role(config))
            for manager, config in zip(managers, configs, strict=True)
        ]


@contextmanager
def _managed(
    wanted: Sequence[tuple[str, Config]], assembly: Assembly, say: Callable[[str], None]
) -> Iterator[list[PoolManager]]:
    requests = [of_pool(role, config) for role, config in wanted]
    with reserve(requests, say, grows=wanted[0][1].ray.autoscaling) as places:
        free = FreePlaces()
        managers = [
            make_manager(role, config, assembly, places_of_role, free)
            for (role, config), places_of_role in zip(wanted, places, strict=True)
        ]
        times = LoadingTimes(wanted, say)
        with manage(managers, say, times.loaded):
            yield managers


class LoadingTimes:
    """Tells the user which models are loading and how long they took the last time. Stores the new times in a file.

    Args:
        pools: The role of each pool and the config from which it is built.
        say: Receives messages for the user.
    """

    def __init__(self, pools: Sequence[tuple[str, Config]], say: Callable[[str], None]):
        self._say = say
        self._file = user_path(pools[0][1].paths.cache) / _LOADING
        models = [f"{role.removeprefix('test_')} {model_of(config, role)}" for role, config in pools]
        self._keys = [hashlib.sha256(model.encode()).hexdigest()[:16] for model in models]
        several = len(pools) > len({role for role, _ in pools})
        self._names = [
            f"target {config.target.name}" if several and role == "target" else role for role, config in pools
        ]
        known = self._known()
        times = [known[key] for key in self._keys if key in known]
        estimate = f"about {max(times):.0f} s, as the last time" if len(times) == len(pools) else "not timed here yet"
        say(f"loading {', '.join(self._names)}: {estimate}")

    def loaded(self, number: int, seconds: float) -> None:
        """Says and stores that the pool with this index was loaded, so many seconds after the start of the pools."""
        self._say(f"loaded {self._names[number]} in {seconds:.0f} s")
        with suppress(OSError):
            self._file.parent.mkdir(parents=True, exist_ok=True)
            self._file.write_text(json.dumps(self._known() | {self._keys[number]: round(seconds, 1)}))

    def _known(self) -> dict[str, float]:
        try:
            stored = json.loads(self._file.read_text())
        except (OSError, ValueError):
            return {}
        return stored if isinstance(stored, dict) else {}


def make_manager(
    role: str, config: Config, assembly: Assembly, places: Sequence[Place] = (), free: FreePlaces | None = None
) -> PoolManager:
    """Returns the manager of one pool. Its dispatcher is started at once, its replicas are not.

    Args:
        role: The service, such as "generator".
        config: The config of the run.
        assembly: Loads the model.
        places: Reserved resources for the initial replicas.
        free: See `PoolManager.free_places`; shared by the managers of a run.
    """
    settings = model_of(config, role)
    model = of_config(settings)
    spec = PoolSpec(
        role=role,
        make=partial(assembly.host, role, config),
        imports=model.imports,
        measures=model.gpu_use(settings).measures,
        config=getattr(config.pools, role),
        concurrency=assembly.concurrency(role, config),
        run=config.name,
    )
    return PoolManager(
        spec=spec,
        cache=cache_spec(role, config),
        places=places,
        free_places=free or FreePlaces(),
        autoscaled=config.ray.autoscaling,
    )


def cache_spec(role: str, config: Config) -> CacheSpec | None:
    """Returns the settings of the image cache of a service, or None if its answers are not cached."""
    pool = getattr(config.pools, role)
    if not isinstance(pool, DrawingPoolConfig) or pool.cache_mb == 0:
        return None
    same = identity(model_of(config, role))
    if same is None:
        return None
    return CacheSpec(
        identity=same,
        memory_bytes=pool.cache_mb * 2**20,
        disk_bytes=pool.spill_mb * 2**20,
        folder=str(user_path(config.paths.cache) / "images" / role.removeprefix("test_")),
    )


def _address(manager: PoolManager) -> PoolAddress:
    config = manager.spec.config
    return PoolAddress(
        dispatcher=manager.dispatcher,
        gpus=config.num_gpus,
        cache_identity=manager.cache.identity if manager.cache else "",
    )
