"""The pools of one run with the services that its config describes."""

from collections.abc import Iterator
from contextlib import contextmanager

from openmaia.assembly import ConfigAssembly
from openmaia.config.schema import Config
from openmaia.distributed.pools.handles import Pools
from openmaia.distributed.pools.run_pools import run_pools


@contextmanager
def pools(config: Config) -> Iterator[Pools]:
    with run_pools([config], ConfigAssembly()) as made:
        yield made[0]
