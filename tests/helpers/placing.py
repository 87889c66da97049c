"""`python -m tests.helpers.placing FOLDER`: pools on nodes with pretended GPUs, of which only one can hold the widest replica.
Writes what the tests of test_placement.py look at to FOLDER/found.json."""

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("RAY_raylet_start_wait_time_s", "120")  # for busy machines
os.environ.setdefault("RAY_worker_niceness", "0")

import openmaia.distributed  # noqa: F401, I001  settles how Ray starts
import psutil
import ray
from ray.cluster_utils import Cluster
from ray.util import placement_group_table

from openmaia.config.loading import load
from openmaia.distributed.workers import largest_capacity
from openmaia.distributed.cluster.placement import reserve
from openmaia.distributed.pools.handles import Pools
from tests.helpers.run_pools import pools
from openmaia.distributed.cluster.resources import ResourceRequest
from tests.helpers.sweeping import sources

GPUS = (
    "pools.backbone.num_gpus=2",
    "pools.target.num_gpus=1",
    "pools.target.min_replicas=2",
    "pools.target.node_labels.kind=in(small,tiny)",
)


def main(folder: Path) -> None:
    # The driver's node comes first where Ray has the choice, so that what is small would be put there before what is wide.
    head = {"num_cpus": 1, "num_gpus": 2, "include_dashboard": False}
    cluster: Any = Cluster(initialize_head=True, head_node_args=head)
    nodes = [cluster.add_node(num_cpus=1, num_gpus=1, labels={"kind": "small"}) for _ in range(3)]
    ray.init(address=cluster.address, log_to_driver=False)
    found: dict[str, Any] = {}
    packed = [
        ResourceRequest(name="a", count=2, gpus=1),
        ResourceRequest(name="b", count=1, cpus=1),
        ResourceRequest(name="c", count=1),
    ]
    with reserve(packed, lambda line: None) as places:
        nodes_of = set(placement_group_table(places[0][0].group)["bundles_to_node_id"].values())
        found["packed"] = {"nodes": len(nodes_of), "places": [len(each) for each in places]}
    narrow = load([*sources(folder), "ray.cpus_per_investigation=0.5", "ray.memory_mb=1"])
    found["largest"] = [largest_capacity(narrow)]
    with reserve([ResourceRequest(name="all", count=4, cpus=1)], lambda line: None):
        found["largest"].append(largest_capacity(narrow))
    found["largest"].append(largest_capacity(narrow))
    with pools(load([*sources(folder), *GPUS])) as made:
        found["up"] = _replicas(made, 2)
        targets = [node for node in _held() if node in {each.node_id for each in nodes}]
        found["small"] = len(set(targets))
        before = _processes()
        cluster.remove_node(next(node for node in nodes if node.node_id == targets[0]), allow_graceful=False)
        made.target("test").info()
        found["again"] = _replicas(made, 2)
        others = {pid for pid, raylet in before.items() if psutil.pid_exists(raylet)}
        found["lost"] = len(before) - len(others)
        found["kept"] = others <= _processes().keys()
        found["deaths"] = sum(counters.deaths for counters in made.statistics().values())
    until = time.monotonic() + 60
    while _held() and time.monotonic() < until:
        time.sleep(0.1)
    found["left"] = _held()
    (folder / "found.json").write_text(json.dumps(found))  # Ray prints about its lost node
    ray.shutdown()
    cluster.shutdown()


def _processes() -> dict[int, int]:
    """The replicas' processes, each with the process of its node that started it."""
    children = psutil.Process().children(recursive=True)
    found = {p.pid: p.ppid() for p in children if "ray::Replica" in " ".join(p.cmdline())}
    # A child that a replica has just forked has its command line.
    return {pid: parent for pid, parent in found.items() if parent not in found}


def _groups() -> list[dict[str, Any]]:
    return [group for group in placement_group_table().values() if group["state"] != "REMOVED"]


def _held() -> list[str]:
    """Nodes of the bundles of all groups that there are."""
    return [node for group in _groups() for node in group["bundles_to_node_id"].values()]


def _replicas(made: Pools, targets: int) -> dict[str, int]:
    until = time.monotonic() + 120
    while True:
        up = {role: counters.replicas for role, counters in made.statistics().items()}
        if up == {"target": targets, "generator": 1, "editor": 1, "backbone": 1} or time.monotonic() > until:
            return up
        time.sleep(0.2)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
