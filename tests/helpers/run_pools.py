"""The pools of one run with the services that its config describes."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from openmaia.assembly import ConfigAssembly
from openmaia.config.schema import Config
from openmaia.distributed.pools.handles import Pools
from openmaia.distributed.pools.run_pools import run_pools
from tests.helpers.sleeping import pool


@contextmanager
def pools(config: Config) -> Iterator[Pools]:
    with run_pools([config], ConfigAssembly()) as made:
        yield made[0]


@contextmanager
def target_pool(config: Config) -> Iterator[Pools]:
    """The pool of the target alone: the models of the others take seconds to load."""
    make = partial(ConfigAssembly().host, "target", config)
    with pool(make, config.pools.target, ready=False) as made:
        yield Pools({"target": made.address})
