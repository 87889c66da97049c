"""Connects to Ray: a cluster of one's own on this machine, or one that is already there."""

import logging
import os
import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import ray

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
    if own:
        # Ray otherwise puts this host's address in place of the loopback one, and listens to the network.
        os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
    try:
        with kept():
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
