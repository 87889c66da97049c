"""Checks the cluster before any model is loaded.

The cluster must have the resources that the config requests, and all nodes must share the folders of the run. Without
the checks, Ray would wait for missing resources without limit.
"""

import time
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

import ray

from openmaia.config.schema import Config
from openmaia.core.errors import ServiceError, StoreError, UsageError
from openmaia.core.text import Printer
from openmaia.distributed.cluster import resources
from openmaia.distributed.cluster.nodes import alive, label, run_on
from openmaia.runs.files import Files
from openmaia.runs.run import Run

_PAUSE = 0.5
"""Seconds between two attempts of a repeated check."""

_LATE = 10.0
"""Seconds until a file that one node wrote must be visible on another node."""

_ANSWER = 90.0
"""Seconds in which a node must start a process and check the folders."""


def preflight(configs: Sequence[Config], runs: Sequence[Run], say: Printer) -> None:
    """Checks that the cluster has what the configs request, and that all nodes share `paths.runs` and `paths.exemplars`.

    Args:
        configs: The configs of the runs of one command.
        runs: The runs, in the order of the configs.
        say: Receives messages for the user.

    Raises:
        UsageError: If resources are missing, or if a node does not share the folders.
        ServiceError: If a node could not be checked.
    """
    check_room(configs, say)
    for config, run in zip(configs, runs, strict=True):
        check_folders([("paths.runs", run.files), ("paths.exemplars", Files(config.paths.exemplars))])


def check_room(configs: Sequence[Config], say: Printer) -> None:
    """Checks that the cluster has what the configs request: GPUs, CPUs, memory and nodes with certain labels.

    The initial replicas of all pools must fit beside at least one investigation. The workers that compute exemplars must
    fit on their own, because they end before the pools start. If an existing cluster is too small, the check waits up to
    `ray.wait_seconds` for nodes to join. With `ray.autoscaling`, nothing is checked.

    Raises:
        UsageError: If the cluster is too small.
    """
    config = configs[0]
    if config.ray.autoscaling:
        say("ray.autoscaling: the cluster grows as it must; nothing is compared with what it has now")
        return
    patience = 0.0 if config.ray.address == "local" else config.ray.wait_seconds
    until = time.monotonic() + patience
    waiting = False
    while reason := resources.shortage(configs, nodes := _nodes()):
        if time.monotonic() >= until:
            waited = f" after {patience:g} s" if patience else ""
            raise UsageError(f"{_where(config)} has {_had(nodes)}{waited}, and {reason}")
        if not waiting:
            say(f"waiting up to {patience:g} s for nodes: {reason}")
            waiting = True
        time.sleep(_PAUSE)
    if unused := resources.unused_gpus(configs, nodes):
        say(unused)
    wanted = resources.of_investigations(config)
    left_out = resources.unplaced([*resources.of_pools(configs), wanted], nodes).get(wanted.name, 0)
    if left_out:
        say(f"room for {wanted.count - left_out} of ray.investigations={wanted.count} at once")
    largest = resources.of_pools(configs, largest=True)
    if beyond := resources.unplaced(largest, nodes).values():
        start, most = (sum(pool.count for pool in pools) for pools in (resources.of_pools(configs), largest))
        say(
            f"{_had(nodes)}: the pools start with {start} replicas; of the {most} to which they may grow "
            f"(pools.….max_replicas), {most - sum(beyond)} find room"
        )


def _where(config: Config) -> str:
    return "this machine" if config.ray.address == "local" else f"the cluster at ray.address={config.ray.address}"


def _had(nodes: Sequence[resources.NodeResources]) -> str:
    gpus, cpus = sum(node.gpus for node in nodes), sum(node.cpus for node in nodes)
    memory = sum(node.memory for node in nodes) / 2**30
    return f"{len(nodes)} node{'s' * (len(nodes) != 1)} with {gpus} GPUs, {cpus:g} CPUs and {memory:.0f} GiB"


def _nodes() -> list[resources.NodeResources]:
    # With what other jobs use at the moment.
    return [
        resources.NodeResources(
            gpus=int(had.get("GPU", 0)),
            cpus=had.get("CPU", 0.0),
            memory=had.get("memory", 0.0),
            labels=node.get("Labels") or {},
        )
        for node in alive()
        for had in (node["Resources"],)
    ]


def check_folders(folders: Sequence[tuple[str, Files]]) -> None:
    """Checks that all nodes of the cluster share the given folders with this process.

    Each node must read a file that this process wrote, and this process must read a file that the node wrote.

    Args:
        folders: The folders, each after the config key that names it, such as `paths.runs`, for the error message.

    Raises:
        UsageError: If a node does not share a folder. The message names the nodes.
        ServiceError: If a node could not be checked, for example because it gave no answer.
    """
    here = ray.get_runtime_context().get_node_id()
    others = [node for node in alive() if node["NodeID"] != here]
    if not others:
        return
    name = f".canary-{uuid.uuid4().hex}"
    for _, files in folders:
        files.create()
        files.write(name, b"driver")
    try:
        _check(others, folders, name)
    finally:
        for _, files in folders:
            for written in (name, *(f"{name}-{node['NodeID']}" for node in others)):
                files.delete(written)


def _check(nodes: Sequence[dict[str, Any]], folders: Sequence[tuple[str, Files]], name: str) -> None:
    def own_file(node: Mapping[str, Any]) -> str:
        return f"{name}-{node['NodeID']}"

    wrong, unknown = list[str](), list[str]()
    for node, said, problem in run_on(nodes, _look, lambda node: (folders, name, own_file(node)), _ANSWER):
        if problem:
            unknown.append(f"{label(node)} {problem}")
            continue
        if not said:
            away = [(key, f) for key, f in folders if not _appears(f, own_file(node), time.monotonic() + _LATE)]
            said = [f"writes files that cannot be seen here ({key}={files.root})" for key, files in away]
        wrong += [f"{label(node)} {each}" for each in said]
    if wrong:
        raise UsageError(
            f"not every node shares the run's folders: {'; '.join([*wrong, *unknown])}. Give paths on storage that all nodes "
            "share, or URLs such as paths.runs=s3://bucket/folder"
        )
    if unknown:
        raise ServiceError(
            f"whether all nodes share the run's folders is not known: {'; '.join(unknown)}. Run the same command again "
            "when this is mended, or without these nodes"
        )


def _look(folders: Sequence[tuple[str, Files]], name: str, own: str) -> list[str]:
    """Runs on another node. Returns the problems."""
    wrong: list[str] = []
    until = time.monotonic() + _LATE
    for key, files in folders:
        try:
            if not _appears(files, name, until):
                wrong.append(f"does not see what is written to {key}={files.root}")
            else:
                files.write(own, b"node")
        except StoreError as error:
            wrong.append(f"cannot use {key}={files.root} ({error.message})")
    return wrong


def _appears(files: Files, name: str, until: float) -> bool:
    # A network file system may show a file late.
    while files.read(name) is None:
        if time.monotonic() >= until:
            return False
        time.sleep(_PAUSE)
    return True
