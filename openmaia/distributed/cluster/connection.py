"""Connects to an existing Ray cluster, or starts one on this machine for the current run."""

import logging
import re
import signal
import socket
import threading
from collections.abc import Generator
from contextlib import contextmanager

import ray

from openmaia.config.schema import Config
from openmaia.core.errors import UsageError


@contextmanager
def cluster(config: Config) -> Generator[None]:
    """Context manager that connects this process to Ray and disconnects it at the end.

    If `ray.address` is "local", it starts a cluster on this machine, which ends with the block. Otherwise it joins the
    cluster at that address. If the process is connected already, it stays connected, also at the end.

    Raises:
        UsageError: If no cluster answers at `ray.address`.
    """
    if ray.is_initialized():
        yield  # a job or a test has connected before
        return
    own = config.ray.address == "local"
    _check_reachable(config.ray.address)
    try:
        with _signal_handlers_kept():
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
        lines = str(error).strip().splitlines()
        raise _unreachable(config.ray.address, lines[0] if lines else type(error).__name__) from error
    try:
        yield
    finally:
        ray.shutdown()


@contextmanager
def _signal_handlers_kept() -> Generator[None]:
    """Context manager that restores the handlers of SIGINT and SIGTERM at its end, because `ray.init` replaces them."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _check_reachable(address: str) -> None:
    """Raises UsageError if nothing listens at the address. Ray itself would retry for minutes before it fails."""
    match = re.fullmatch(r"(?:ray://)?\[?([^\]/]+?)\]?:(\d+)", address)
    if not match:
        return
    try:
        socket.create_connection((match[1], int(match[2])), timeout=10).close()
    except OSError as error:
        raise _unreachable(address, error.strerror or str(error)) from error


def _unreachable(address: str, reason: str) -> UsageError:
    return UsageError(
        f"ray.address={address!r}: no Ray cluster answers there ({reason}). Start one with `ray start --head`, give its "
        "address, or leave ray.address=local for a cluster of this run's own"
    )
