"""The pools of one run with the services that its config describes."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from openmaia.assembly import ConfigAssembly
from openmaia.config.machine import POOLS
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
    """The pool of the target in the place of all: the models of the others take seconds to load."""
    with _pool_for_all("target", config) as made:
        yield made


@contextmanager
def backbone_pool(config: Config) -> Iterator[Pools]:
    """The pool of the backbone in the place of all, for agents that ask for nothing else."""
    with _pool_for_all("backbone", config) as made:
        yield made


@contextmanager
def _pool_for_all(role: str, config: Config) -> Iterator[Pools]:
    assembly = ConfigAssembly()
    make = partial(assembly.host, role, config)
    with pool(make, getattr(config.pools, role), assembly.concurrency(role, config), ready=False) as made:
        yield Pools(dict.fromkeys(POOLS, made.address))
