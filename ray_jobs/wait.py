"""`python -m ray_jobs.wait --nodes N --timeout SECONDS`: waits until N nodes of the cluster at RAY_ADDRESS are alive.

Runs on a node of that cluster.
"""

import argparse
import os
import socket
import sys
import time

import ray

from openmaia.core.errors import ServiceError
from openmaia.distributed.cluster.nodes import alive as alive_nodes

_PAUSE = 0.25


def main() -> None:
    """Waits as the command line says. Exits with code 1 if too few nodes are alive after the time limit."""
    parser = argparse.ArgumentParser(prog="python -m ray_jobs.wait", description=__doc__)
    parser.add_argument("--nodes", type=int, required=True)
    parser.add_argument("--timeout", type=float, default=300.0, help="seconds")
    given = parser.parse_args()
    address = os.environ.get("RAY_ADDRESS") or parser.error("RAY_ADDRESS=HOST:PORT says which cluster; it is not set")
    try:
        alive = wait(address, given.nodes, time.monotonic() + given.timeout)
    except ServiceError as error:
        sys.exit(f"error: {error.message}")
    if alive < given.nodes:
        sys.exit(
            f"error: {alive} of {given.nodes} Ray nodes at {address} after {given.timeout:g} s. The log of each node says "
            "what it waits for; common: no route between the nodes (OPENMAIA_HEAD_ADDRESS=... names another network)"
        )


def wait(address: str, wanted: int, until: float) -> int:
    """Waits until so many nodes of a cluster are alive, and returns their number; less at the time limit.

    Args:
        address: The address of the head.
        wanted: The number of nodes to wait for.
        until: Time limit on the clock of `time.monotonic`.

    Raises:
        ServiceError: The head gives no answer, although it did before.
    """
    if not connect(address, until):
        return 0
    alive = reported = -1
    while alive < wanted and time.monotonic() < until:
        alive = len(alive_nodes())
        if alive != reported:
            print(f"{time.strftime('%H:%M:%S')} {alive} of {wanted} Ray nodes", flush=True)
            reported = alive
        if alive < wanted:
            time.sleep(_PAUSE)
    ray.shutdown()
    return alive


def connect(address: str, until: float) -> bool:
    """Connects to a cluster as soon as its head answers. Returns False if it does not before `until` (monotonic)."""
    host, _, port = address.rpartition(":")
    while time.monotonic() < until:
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=2).close()
            ray.init(address=address, log_to_driver=False, configure_logging=False)
            return True
        except (OSError, ConnectionError, RuntimeError):  # the head or the node on this machine has not started yet
            time.sleep(_PAUSE)
    return False


if __name__ == "__main__":
    main()
