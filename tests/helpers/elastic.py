"""`python -m tests.helpers.elastic FOLDER`: elastic pools on nodes with pretended GPUs. Writes what the tests of test_elastic.py
look at to FOLDER/found.json."""

import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("RAY_raylet_start_wait_time_s", "120")  # for busy machines
os.environ.setdefault("RAY_worker_niceness", "0")

import openmaia.distributed  # noqa: F401, I001  settles how Ray starts
import ray
from ray.cluster_utils import Cluster

from openmaia.assembly import ConfigAssembly
from openmaia.config.machine import PoolConfig
from openmaia.config.schema import Config
from openmaia.distributed.cluster import preflight
from openmaia.distributed.pools.autoscaling import ScalingPolicy
from openmaia.distributed.pools.handles import Pools
from openmaia.distributed.pools.run_pools import run_pools
from tests.helpers.loading import Counted, Load
from tests.helpers.sleeping import Handle, node_of, pool
from tests.helpers.sweeping import short

GPUS = [f"pools.{role}.num_gpus=1" for role in ("target", "generator", "editor", "backbone")]


@dataclass(frozen=True)
class SleepingAssembly(ConfigAssembly):
    """All hosts are `Counted`; everything else is that of the config."""

    log: str = ""

    def host(self, role: str, config: Config) -> Any:
        return Counted(self.log, seconds=0.3)

    def concurrency(self, role: str, config: Config) -> int:
        return 0


def main(folder: Path) -> None:
    head = {"num_cpus": 2, "num_gpus": 7, "include_dashboard": False}
    cluster: Any = Cluster(initialize_head=True, head_node_args=head)
    ray.init(address=cluster.address, log_to_driver=False)
    found = seven_gpus(folder / "seven")
    found["joined"] = join(cluster, folder / "joined")
    (folder / "found.json").write_text(json.dumps(found))  # Ray prints about its nodes
    ray.shutdown()
    cluster.shutdown()


def seven_gpus(folder: Path) -> dict[str, Any]:
    """Eleven replicas at most, on seven GPUs. A target that wants five takes what is left; a generator that wants four as
    well gets what a backbone and an editor give back that are no longer needed."""
    busy = [f"pools.{role}.max_{key}" for role, key in (("target", "replicas=5"), ("generator", "replicas=4"))]
    batches = [f"pools.{role}.max_batch=4" for role in ("target", "generator")]
    config = short(folder, *GPUS, *busy, *batches, "ray.memory_mb=1")
    said, asked = list[str](), Load(folder / "log")
    preflight.check_room([config], said.append)
    with run_pools([config], SleepingAssembly(log=str(asked.log))) as (made,):
        started = _until(made, lambda up: min(up.values()) == 1)
        with asked.on(made.addresses["target"], callers=12, size=4):
            _until(made, lambda up: up["target"] == 4)
            with asked.on(made.addresses["generator"], callers=12, size=4):
                time.sleep(4)  # both want to grow and cannot
                before = {role: counts.replicas for role, counts in made.statistics().items()}
                made.release_all_but(["target", "test_generator"])
                after = _until(made, lambda up: up["target"] + up["generator"] == 7)
        late = Handle(made.addresses["backbone"], "late").ask("double", [10**6])
    # "and 4 CPUs" and the like belong to the machine
    said = [line.partition(",")[0] + line[line.index(":") :] for line in said if "max_replicas" in line]
    return {
        "short": {"said": said, "started": started, "grown": before},
        "released": {"after": after, "late": late, "counted": asked.counted()},
    }


def join(cluster: Any, folder: Path) -> dict[str, Any]:
    folder.mkdir()
    asked = Load(folder / "log")
    host = Counted(str(asked.log), seconds=0.3)
    policy = ScalingPolicy(1, 3, up_after=0.5, down_after=60.0)
    with (
        pool(host, PoolConfig(max_replicas=3, max_batch=4, num_gpus=4), policy=policy) as made,
        asked.on(made.address, callers=12, size=4),
    ):
        until = time.monotonic() + 60
        while made.manager.status is None or not made.manager.status.unplaced:
            assert time.monotonic() < until
            time.sleep(0.1)
        before = made.statistics().replicas
        cluster.add_node(num_cpus=1, num_gpus=8)
        after = made.wait_for(lambda now: now.replicas == 3, seconds=120).replicas
        time.sleep(2)
        nodes = set(map(node_of, made.manager._actors.values()))
    return {"before": before, "after": after, "nodes": len(nodes), "counted": asked.counted()}


def _until(made: Pools, condition: Callable[[dict[str, int]], bool]) -> dict[str, int]:
    until = time.monotonic() + 120
    while True:
        up = {role: counts.replicas for role, counts in made.statistics().items()}
        if condition(up) or time.monotonic() > until:
            return up
        time.sleep(0.2)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
