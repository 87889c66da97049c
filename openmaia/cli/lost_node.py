"""Ends a command whose node Ray has given up, if it does not end by itself.

After a node was cut off from the head of its cluster for a while, many calls of Ray never return on it, so that no
exception could end the command. As after a second Ctrl-C, no data is lost.
"""

import sys
import threading
import time
from typing import Any

from openmaia.cli.signals import end_at_once

WATCH_SECONDS = 20.0
"""Time in seconds between two looks."""

LOST_SECONDS = 120.0
"""Time in seconds for which Ray must have given up this node until the process is ended. By itself a command notices within
about a minute, and needs some seconds to end."""

FAILURE = 1
"""Exit code of a command that failed."""


def end_without_ray() -> None:
    """Lets this process end when Ray has given up its node. Call it once in a command, whether or not it uses Ray."""
    threading.Thread(target=_watch, name="lost node", daemon=True).start()


def _watch() -> None:
    seen = time.monotonic()
    while True:
        time.sleep(WATCH_SECONDS)
        problem = _problem()
        if not problem:
            seen = time.monotonic()
        elif time.monotonic() > seen + LOST_SECONDS:
            end_at_once(problem, FAILURE)


def _problem() -> str:
    """Returns why this node seems to be lost; empty if it is alive, or if this process is not connected to Ray."""
    ray: Any = sys.modules.get("ray")
    try:
        if ray is None or not ray.is_initialized():
            return ""
        from openmaia.distributed.cluster.nodes import ENDED, alive

        return "" if ray.get_runtime_context().get_node_id() in {node["NodeID"] for node in alive()} else ENDED
    except Exception as error:
        return f"Ray does not answer on the node of this command: {error}"
