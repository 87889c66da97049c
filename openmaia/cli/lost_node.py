"""Ends a command if Ray has declared its node dead and the command does not end by itself.

After a node was cut off from the head of its cluster for a while, many calls of Ray never return on it, so that no
exception could end the command. As after a second Ctrl-C, no data is lost.
"""

import sys
import threading
import time
from typing import Any, NoReturn

from openmaia.cli.signals import end_at_once

WATCH_SECONDS, LOST_SECONDS = 20.0, 120.0
"""Defaults of `end_without_ray`. Most commands end earlier by themselves: they notice the loss within about a minute, and
need some seconds to end."""

FAILURE = 1
"""Exit code of a command that failed."""


def end_without_ray(every: float = WATCH_SECONDS, after: float = LOST_SECONDS) -> None:
    """Starts a thread that ends this process if its Ray node is lost.

    A node is lost if Ray lists it as dead or does not answer. Call this function once in each process that runs a
    command. The thread does nothing while the process is not connected to Ray.

    Args:
        every: Time in seconds between two checks of the node.
        after: Time in seconds. The process ends if every check in a period of this length finds the node lost.
    """
    threading.Thread(target=_watch, args=(every, after), name="lost node", daemon=True).start()


def _watch(every: float, after: float) -> NoReturn:
    seen = time.monotonic()
    while True:
        time.sleep(every)
        problem = _problem()
        if not problem:
            seen = time.monotonic()
        elif time.monotonic() > seen + after:
            end_at_once(problem, FAILURE)


def _problem() -> str:
    """Returns why this node seems to be lost; empty if it is alive, or if this process is not connected to Ray."""
    ray: Any = sys.modules.get("ray")
    try:
        if ray is None or not ray.is_initialized():
            return ""
        from openmaia.distributed.cluster.nodes import ENDED, own_is_alive

        return "" if own_is_alive() else ENDED
    except Exception as error:
        return f"Ray does not answer on the node of this command: {error}"
