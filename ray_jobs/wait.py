"""`python -m ray_jobs.wait --nodes N --timeout SECONDS`: until N nodes of the cluster at RAY_ADDRESS are alive."""

import argparse
import os
import sys
import time
from typing import Any

import ray
from ray.exceptions import AuthenticationError, RayError

ALIVE = 0
"""GcsNodeInfo.GcsNodeState."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m ray_jobs.wait", description=__doc__)
    parser.add_argument("--nodes", type=int, required=True)
    parser.add_argument("--timeout", type=float, default=300.0, help="seconds")
    given = parser.parse_args()
    address = os.environ.get("RAY_ADDRESS") or parser.error("RAY_ADDRESS=HOST:PORT says which cluster; it is not set")
    alive = wait(address, given.nodes, given.timeout)
    if alive < given.nodes:
        sys.exit(
            f"error: {alive} of {given.nodes} Ray nodes at {address} after {given.timeout:g} s. The log of each node says "
            "what it waits for; common: no route between the nodes (OPENMAIA_HEAD_ADDRESS=… names another network)"
        )


def wait(address: str, wanted: int, timeout: float) -> int:
    """How many nodes are alive: as many as wanted, or fewer once the time is over."""
    until = time.monotonic() + timeout
    alive = said = -1
    while alive < wanted and time.monotonic() < until:
        alive = count(address)
        if alive != said:
            print(f"{time.strftime('%H:%M:%S')} {alive} of {wanted} Ray nodes", flush=True)
            said = alive
        if alive < wanted:
            time.sleep(0.25)
    return alive


def count(address: str) -> int:
    """Nodes alive; 0 where no head answers yet."""
    # The one way to ask that does not join the cluster first, which takes seconds and a raylet on this machine.
    client: Any = ray._raylet.GcsClient  # pyright: ignore[reportAttributeAccessIssue]
    try:
        nodes = client(address=address).get_all_node_info(timeout=2)
    except AuthenticationError:
        raise
    except RayError:
        return 0
    return sum(node.state == ALIVE for node in nodes.values())


if __name__ == "__main__":
    main()
