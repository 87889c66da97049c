"""Connects to Ray: a cluster of one's own on this machine, or one that is already there."""

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager

import ray

from openmaia.config import Config
from openmaia.errors import UsageError


@contextmanager
def cluster(config: Config) -> Iterator[None]:
    """Raises UsageError where nobody answers at the address."""
    if ray.is_initialized():
        yield  # a job's or a test's own connection
        return
    own = config.ray.address == "local"
    if own:
        # Ray otherwise puts this host's address in place of the loopback one, and listens to the network.
        os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
    try:
        ray.init(
            address=config.ray.address,
            num_cpus=(config.ray.num_cpus or None) if own else None,
            include_dashboard=False if own else None,
            namespace=f"openmaia-{config.name}",
            logging_level=logging.ERROR,
            log_to_driver=False,
            runtime_env=None if own else {"env_vars": {"RAY_USAGE_STATS_ENABLED": "0"}},
        )
    except (ConnectionError, ValueError, RuntimeError, TimeoutError) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise UsageError(
            f"ray.address={config.ray.address!r}: no Ray cluster answers there ({reason}). Start one with "
            "`ray start --head`, give its address, or leave ray.address=local for one of this run's own"
        ) from error
    try:
        yield
    finally:
        ray.shutdown()
