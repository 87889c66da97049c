"""Lists the nodes of the cluster, checks that Ray is alive on the node of this process, and runs functions on nodes."""

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

import ray
from ray.exceptions import GetTimeoutError, RayError, RayTaskError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from openmaia.core.errors import ServiceError
from openmaia.distributed.failures import last_line

_ANSWER_SECONDS = 60.0
"""Longest wait for an answer of the head. A head that is restarted answers again within this time. If this node was cut
off from the head for a while, `ray.nodes` may never return."""


def alive() -> list[dict[str, Any]]:
    """Returns the nodes that are alive, as `ray.nodes` describes them.

    Raises:
        ServiceError: If the head of the cluster gives no answer within `_ANSWER_SECONDS`.
    """
    answer: Future[list[dict[str, Any]]] = Future()

    def ask() -> None:
        try:
            answer.set_result(ray.nodes())
        except Exception as error:
            answer.set_exception(error)

    threading.Thread(target=ask, name="nodes", daemon=True).start()
    try:
        return [node for node in answer.result(_ANSWER_SECONDS) if node["Alive"]]
    except TimeoutError:
        raise ServiceError(
            f"the head of the Ray cluster gave no answer within {_ANSWER_SECONDS:g} s, as if this node had been cut off from "
            "it; what is finished is kept: check the network, and run the same command again to continue"
        ) from None


def own_is_alive() -> bool:
    """Returns whether the node of this process is alive. Raises the same exceptions as `alive`."""
    return ray.get_runtime_context().get_node_id() in {node["NodeID"] for node in alive()}


_ABSENT_SECONDS = 45.0
"""Seconds for which the node of this process must be missing among the living nodes, until Ray counts as ended on it.
After a restart of the head, nodes are missing for a short time, because they register one after another."""


ENDED = (
    "Ray has ended on the node of this command, and all models and investigations with it; finished turns are kept: run "
    "the same command again to continue"
)


class OwnNode:
    """Detects that Ray has ended on the node of this process.

    If the raylet of the node has died, the processes that this program started on the cluster are gone. New ones cannot
    be started, and calls that wait for them would wait forever.
    """

    def __init__(self) -> None:
        self._absent_since: float | None = None

    def check(self) -> None:
        """Raises ServiceError if the node has been missing for _ABSENT_SECONDS, or the head gives no answer."""
        if own_is_alive():
            self._absent_since = None
        elif self._absent_since is None:
            self._absent_since = time.monotonic()
        elif time.monotonic() > self._absent_since + _ABSENT_SECONDS:
            raise ServiceError(ENDED)


def label(node: Mapping[str, Any]) -> str:
    """Returns the host name and the address of a node (an item of `ray.nodes()`), for messages."""
    return f"{node['NodeManagerHostname']} ({node['NodeManagerAddress']})"


def run_on(
    nodes: Sequence[Mapping[str, Any]],
    function: Callable[..., Any],
    arguments: Callable[[Mapping[str, Any]], Sequence[Any]],
    seconds: float,
) -> Iterator[tuple[Mapping[str, Any], Any, str]]:
    """Runs a function on several nodes at once.

    Args:
        nodes: As `ray.nodes` describes them.
        function: Ray reserves no CPUs for it.
        arguments: Returns the arguments of the function for a node.
        seconds: Longest wait for all results.

    Yields:
        (node, result, problem) in the order of the nodes. If the function returned, `problem` is empty. If it raised an
        exception, did not return in time or could not be run, `result` is None and `problem` says why.
    """
    remote: Any = ray.remote(function)
    asked: list[tuple[Mapping[str, Any], Any]] = []
    for node in nodes:
        where = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
        task = remote.options(num_cpus=0, max_retries=0, scheduling_strategy=where)
        asked.append((node, task.remote(*arguments(node))))
    until = time.monotonic() + seconds
    for node, reference in asked:
        try:
            yield node, ray.get(reference, timeout=max(until - time.monotonic(), 1.0)), ""
        except GetTimeoutError:
            yield node, None, f"gave no answer within {seconds:g} s"
        except RayTaskError as error:
            yield node, None, f"fails: {last_line(error)}"
        except RayError as error:
            yield node, None, f"could not be asked ({type(error).__name__})"
