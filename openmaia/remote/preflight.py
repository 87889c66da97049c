"""Looks at the cluster before any weight is loaded: is there room for what the config wants, and does every node see
the folders that the run is written to. What is wrong is one UsageError and not a wait without end."""

import time
import uuid
from collections.abc import Callable, Sequence
from typing import Any

import ray
from ray.exceptions import GetTimeoutError, RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from openmaia.errors import StoreError, UsageError
from openmaia.remote import wish
from openmaia.schema import Config
from openmaia.store.files import Files
from openmaia.store.run import Run

Say = Callable[[str], None]

PAUSE = 0.5
"""Seconds between two looks."""

LATE = 10.0
"""Seconds that a shared folder may take to show another node's file."""

ANSWER = 90.0
"""Seconds that a node gets to start a process and look at the folders."""


def preflight(config: Config, run: Run, say: Say) -> None:
    """Raises UsageError that names what is short, or the nodes that do not see the run's folders."""
    room(config, say)
    shared([("paths.runs", run.files), ("paths.exemplars", Files(config.paths.exemplars))])


def room(config: Config, say: Say) -> None:
    """Waits `ray.wait_seconds` for nodes that are still joining. Raises UsageError where the room is not enough then."""
    if config.ray.autoscaling:
        say("ray.autoscaling: the cluster grows as it must; nothing is compared with what it has now")
        return
    patience = 0.0 if config.ray.address == "local" else config.ray.wait_seconds
    until = time.monotonic() + patience
    waiting = False
    while reason := _short(config, nodes := _nodes()):
        if time.monotonic() >= until:
            waited = f" after {patience:g} s" if patience else ""
            raise UsageError(f"{_where(config)} has {_had(nodes)}{waited}, and {reason}")
        if not waiting:
            say(f"waiting up to {patience:g} s for nodes: {reason}")
            waiting = True
        time.sleep(PAUSE)
    wanted = wish.of_investigations(config)
    left_out = wish.unplaced([*wish.of_pools(config), wanted], nodes).get(wanted.name, 0)
    if left_out:
        say(f"room for {wanted.count - left_out} of ray.investigations={wanted.count} at once")


def _short(config: Config, nodes: Sequence[wish.Node]) -> str:
    """What finds no place and what to do about it; empty where there is room."""
    pools, investigations = wish.of_pools(config), wish.of_investigations(config)
    exemplars = wish.of_exemplars(config)
    if missing := wish.unplaced(pools, nodes):
        wanted = ", ".join(map(str, pools))
        return (
            f"no room for {_listed(missing)} (wanted: {wanted}); give smaller pools.….num_gpus or num_cpus, fewer "
            "pools.….replicas, or more nodes"
        )
    if wish.unplaced([exemplars], nodes):
        return f"no room for {exemplars}; give fewer ray.exemplar_workers"
    one = wish.Claim(name=investigations.name, count=1, cpus=investigations.cpus, memory=investigations.memory)
    if wish.unplaced([*pools, one], nodes):
        return (
            f"no room for a single one of the {investigations} beside the pools; give a smaller "
            "ray.cpus_per_investigation, ray.memory_mb or pools.….num_cpus, or more nodes"
        )
    return ""


def _listed(missing: dict[str, int]) -> str:
    return ", ".join(f"{count} of the {name}'s replicas" for name, count in missing.items())


def _where(config: Config) -> str:
    return "this machine" if config.ray.address == "local" else f"the cluster at ray.address={config.ray.address}"


def _had(nodes: Sequence[wish.Node]) -> str:
    gpus, cpus = sum(node.gpus for node in nodes), sum(node.cpus for node in nodes)
    memory = sum(node.memory for node in nodes) / 2**30
    return f"{len(nodes)} node{'s' * (len(nodes) != 1)} with {gpus} GPUs, {cpus:g} CPUs and {memory:.0f} GiB"


def _alive() -> list[dict[str, Any]]:
    return [node for node in ray.nodes() if node["Alive"]]


def _nodes() -> list[wish.Node]:
    """What the nodes have in all: other people's jobs end."""
    return [
        wish.Node(
            gpus=int(had.get("GPU", 0)),
            cpus=had.get("CPU", 0.0),
            memory=had.get("memory", 0.0),
            labels=node.get("Labels") or {},
        )
        for node in _alive()
        for had in (node["Resources"],)
    ]


def shared(folders: Sequence[tuple[str, Files]]) -> None:
    """Every node reads what this process wrote and writes what this process reads, in each of the folders.

    folders: config keys and what they lead to. Raises UsageError that names the nodes where that fails.
    """
    here = ray.get_runtime_context().get_node_id()
    others = [node for node in _alive() if node["NodeID"] != here]
    if not others:
        return
    name = f".canary-{uuid.uuid4().hex}"
    for _, files in folders:
        files.create()
        files.write(name, b"driver")
    try:
        wrong = _asked(others, folders, name)
    finally:
        for _, files in folders:
            for written in (name, *(f"{name}-{node['NodeID']}" for node in others)):
                files.delete(written)
    if wrong:
        raise UsageError(
            f"not every node shares the run's folders: {'; '.join(wrong)}. Give paths on storage that all nodes share, or "
            "URLs such as paths.runs=s3://bucket/folder"
        )


def _asked(nodes: Sequence[dict[str, Any]], folders: Sequence[tuple[str, Files]], name: str) -> list[str]:
    """One task pinned to each node, all at once. What is wrong, each with the node's name."""
    asked: dict[str, tuple[str, Any]] = {}
    for node in nodes:
        where = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
        task = _remote_look.options(num_cpus=0, max_retries=0, scheduling_strategy=where)
        own = f"{name}-{node['NodeID']}"
        asked[f"{node['NodeManagerHostname']} ({node['NodeManagerAddress']})"] = own, task.remote(folders, name, own)
    wrong: list[str] = []
    until = time.monotonic() + ANSWER
    for called, (own, reference) in asked.items():
        try:
            said = ray.get(reference, timeout=max(until - time.monotonic(), 1.0))
        except GetTimeoutError:
            said = [f"gave no answer within {ANSWER:g} s"]
        except RayError as error:
            said = [f"could not be asked ({type(error).__name__})"]
        if not said:
            away = [(key, files) for key, files in folders if not _appears(files, own, time.monotonic() + LATE)]
            said = [f"writes files that cannot be seen here ({key}={files.root})" for key, files in away]
        wrong += [f"{called} {each}" for each in said]
    return wrong


def _look(folders: Sequence[tuple[str, Files]], name: str, own: str) -> list[str]:
    """On the other node."""
    wrong: list[str] = []
    until = time.monotonic() + LATE
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
    """Network file systems may show a new file a little later."""
    while files.read(name) is None:
        if time.monotonic() >= until:
            return False
        time.sleep(PAUSE)
    return True


_remote_look: Any = ray.remote(_look)
