"""Connects to Ray: a cluster of one's own on this machine, or one that is already there."""

import logging
import os
import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import ray
from ray._private import ray_constants

from openmaia.errors import UsageError
from openmaia.schema import Config
from openmaia.signals import kept


@contextmanager
def cluster(config: Config) -> Iterator[None]:
    """Raises UsageError where nobody answers at the address."""
    if ray.is_initialized():
        yield  # a job's or a test's own connection
        return
    own = config.ray.address == "local"
    _knock(config.ray.address)
    try:
        with kept(), _on_loopback() if own else nullcontext():
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
        raise _nobody(config.ray.address, reason) from error
    try:
        yield
    finally:
        ray.shutdown()


@contextmanager
def _on_loopback() -> Iterator[None]:
    """Ray otherwise puts this host's address in place of the loopback one, and listens to the network. It reads the variable
    when it is imported, and its processes when they start. Only while it starts: a `ray start` that this process runs later
    would be refused a cluster of several nodes. Whoever sets the variable decides."""
    name = ray_constants.ENABLE_RAY_CLUSTERS_ENV_VAR
    if name in os.environ:
        yield
        return
    was = ray_constants.ENABLE_RAY_CLUSTER
    os.environ[name], ray_constants.ENABLE_RAY_CLUSTER = "0", False
    try:
        yield
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = was
        del os.environ[name]


def _knock(address: str) -> None:
    """Ray itself tries for minutes before it says that nobody is there."""
    found = re.fullmatch(r"(?:ray://)?\[?([^\]/]+?)\]?:(\d+)", address)
    if not found:
        return
    try:
        socket.create_connection((found[1], int(found[2])), timeout=10).close()
    except OSError as error:
        raise _nobody(address, error.strerror or str(error)) from error


def _nobody(address: str, reason: str) -> UsageError:
    return UsageError(
        f"ray.address={address!r}: no Ray cluster answers there ({reason}). Start one with `ray start --head`, give its "
        "address, or leave ray.address=local for one of this run's own"
    )
