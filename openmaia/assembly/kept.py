"""Uses models of `openmaia pools up`, which are loaded already."""

from collections.abc import Generator as Generating
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from uuid import uuid4

from openmaia import distributed
from openmaia.config.schema import Config
from openmaia.core.errors import OpenMaiaError
from openmaia.core.services import Generator, Target


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptModels:
    """Handles to models that other processes hold."""

    pools: str
    """The name of their pools."""
    target: Target
    generator: Generator


@contextmanager
def kept_models(config: Config) -> Generating[KeptModels | None]:
    """Context manager that yields the models of the pools that are kept up for a config, on the cluster that `ray.address`
    names. It starts neither pools nor Ray: None if no such pools have been loaded, or no cluster answers."""
    if config.ray.address == "local":  # whose cluster ends with the run
        yield None
        return
    distributed.prepare(config.ray.address)
    from openmaia.distributed.cluster.connection import cluster
    from openmaia.distributed.pools import kept

    with ExitStack() as stack:
        pools = None
        with suppress(OpenMaiaError):  # also of pools that are just ending
            stack.enter_context(cluster(config))
            pools = kept.loaded(config)
        if pools is None:
            stack.close()
            yield None
            return
        caller = f"live-{uuid4().hex[:8]}"
        stack.callback(pools.leave, caller)
        yield KeptModels(pools=kept.pools_name(config), target=pools.target(caller), generator=pools.generator(caller))
