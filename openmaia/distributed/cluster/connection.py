"""Connects to an existing Ray cluster, or starts one on this machine for the current run."""

import logging
import os
import signal
import socket
import stat
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import ray

from openmaia.config.machine import host_and_port
from openmaia.config.schema import Config
from openmaia.core.errors import ServiceError, UsageError

_LONGEST_SOCKET = 107
"""Largest length of the path of a socket in bytes."""
_SOCKET = "/r/session_2026-01-31_23-59-59_999999_9999999/sockets/plasma_store"
"""The longest path of a socket in the folder of Ray."""


@contextmanager
def cluster(config: Config) -> Generator[None]:
    """Context manager that connects this process to Ray and disconnects it at the end.

    If `ray.address` is "local", it starts a cluster on this machine, which ends with the block. Otherwise it joins the
    cluster at that address. If the process is connected already, it stays connected, also at the end.

    Raises:
        UsageError: If no cluster answers at `ray.address`, or the folder for Ray's files belongs to another user.
        ServiceError: If Ray does not start on this machine.
    """
    if ray.is_initialized():
        yield  # a job or a test has connected before
        return
    own = config.ray.address == "local"
    _check_reachable(config.ray.address)
    # Ray lets everybody write into its folder, where the sockets of its processes are. Nobody else may reach this one.
    folder = str(private_folder() / "r") if own else None
    try:
        with _signal_handlers_kept():
            context: Any = ray.init(
                address=config.ray.address,
                num_cpus=(config.ray.num_cpus or None) if own else None,
                include_dashboard=False if own else None,
                namespace=f"openmaia-{config.name}",
                logging_level=logging.ERROR,
                log_to_driver=False,
                runtime_env=None if own else {"env_vars": {"RAY_USAGE_STATS_ENABLED": "0"}},
                _temp_dir=folder,
            )
            if own:
                os.chmod(context.address_info["session_dir"], 0o700)
    except Exception as error:  # of a process that does not come up in time, Ray raises just that
        ray.shutdown()  # it may be the folder that cannot be closed
        lines = str(error).strip().splitlines()
        reason = lines[0] if lines else type(error).__name__
        raise (_not_started(reason) if own else _unreachable(config.ray.address, reason)) from error
    try:
        yield
    finally:
        ray.shutdown()


def private_folder() -> Path:
    """Returns a folder for the files of a Ray of this user, which no other user can open. It is created if necessary.

    It is in the folder that RAY_TMPDIR names, or TMPDIR if its path is short enough for sockets, or in /tmp.

    Raises:
        UsageError: Another user has made it, it cannot be made, or the path in RAY_TMPDIR is too long.
    """
    chosen, temporary = (os.environ.get(name, "") for name in ("RAY_TMPDIR", "TMPDIR"))
    folder = _below(chosen or temporary or "/tmp")
    if (excess := len(os.fsencode(f"{folder}{_SOCKET}")) - _LONGEST_SOCKET) > 0:
        if chosen:
            raise UsageError(
                f"RAY_TMPDIR={chosen!r} is {excess} bytes too long for the sockets of Ray; give a folder with a shorter path"
            )
        folder = _below("/tmp")
    try:
        folder.mkdir(mode=0o700, parents=True)
    except FileExistsError:
        status = folder.lstat()
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid():
            raise UsageError(
                f"{folder} is not a folder of yours, so that somebody else could reach the processes of this run; set "
                "RAY_TMPDIR to a folder of your own with a short path"
            ) from None
        folder.chmod(0o700)
    except OSError as error:
        raise UsageError(
            f"{folder} cannot be made for the files of Ray ({error.strerror}); set RAY_TMPDIR to a folder of your own with a "
            "short path"
        ) from error
    return folder


def _below(base: str) -> Path:
    return Path(base).absolute() / f"ray-{os.getuid()}"


@contextmanager
def _signal_handlers_kept() -> Generator[None]:
    # `ray.init` replaces the handlers of SIGINT and SIGTERM.
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
    # Ray itself would retry for minutes before it fails.
    place = host_and_port(address)
    if place is None:
        return
    try:
        socket.create_connection(place, timeout=10).close()
    except OSError as error:
        raise _unreachable(address, error.strerror or str(error)) from error


def _not_started(reason: str) -> ServiceError:
    return ServiceError(
        f"Ray did not start on this machine ({reason}). Where the machine is busy or short of memory, the same command may "
        "succeed later"
    )


def _unreachable(address: str, reason: str) -> UsageError:
    return UsageError(
        f"ray.address={address!r}: no Ray cluster answers there ({reason}). Start one with `ray start --head`, give its "
        "address, or leave ray.address=local for a cluster of this run's own"
    )
