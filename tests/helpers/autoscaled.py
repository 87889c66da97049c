"""`python -m tests.helpers.autoscaled FOLDER ADDRESS`: a pool on a cluster with one GPU, to which Ray's autoscaler adds a node.
Writes what the test looks at to FOLDER/found.json.

`head` starts such a cluster with the command line of Ray: `ray.cluster_utils.AutoscalingCluster` begins with `ray stop --force`, which
ends every Ray of the machine.
"""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import ray

import openmaia.distributed  # noqa: F401  settles how Ray starts
from openmaia.config.machine import PoolConfig
from openmaia.distributed.pools.autoscaling import ScalingPolicy
from tests.conftest import RAY
from tests.helpers.loading import Counted, Load
from tests.helpers.sleeping import node_of, pool

PORT = 6379
"""The nodes of the fake provider look for their head at this port."""

NODE = {"CPU": 1, "GPU": 2, "object_store_memory": 100_000_000}

LISTS = (
    "initialization_commands",
    "setup_commands",
    "cluster_synced_files",
    "head_setup_commands",
    "worker_setup_commands",
    "head_start_ray_commands",
    "worker_start_ray_commands",
    "rsync_exclude",
    "rsync_filter",
)


def autoscaling() -> dict[str, Any]:
    """Ray's fake multi-node provider: a new node is a raylet on this machine."""
    return {
        "cluster_name": "fake",
        "max_workers": 1,
        "upscaling_speed": 1.0,
        "idle_timeout_minutes": 5,
        "provider": {"type": "fake_multinode"},
        "head_node_type": "ray.head.default",
        "available_node_types": {
            "ray.head.default": {"resources": {"CPU": 1, "GPU": 1}, "node_config": {}, "max_workers": 0},
            "gpus": {"resources": NODE, "node_config": {}, "min_workers": 0, "max_workers": 1},
        },
        "file_mounts_sync_continuously": False,
        **{name: [] for name in LISTS},
        **{name: {} for name in ("auth", "docker", "file_mounts")},
    }


@contextmanager
def head(folder: Path, environment: dict[str, str]) -> Iterator[None]:
    """A head with that autoscaler, and all processes that it starts, until the end of the block."""
    config, short = folder / "autoscaling.json", f"/tmp/ray-{os.getpid()}-fake"
    config.write_text(json.dumps(autoscaling()))
    command = [
        RAY, "start", "--head", "--block", f"--port={PORT}", f"--temp-dir={short}", "--num-cpus=1", "--num-gpus=1",
        "--include-dashboard=false", f"--autoscaling-config={config}", "--object-store-memory=100000000",
    ]  # fmt: skip
    environment = environment | {"RAY_FAKE_CLUSTER": "1", "AUTOSCALER_UPDATE_INTERVAL_S": "1"}
    with (folder / "head.log").open("w") as log:
        started = psutil.Popen(command, env=environment, stdout=log, stderr=subprocess.STDOUT, start_new_session=True)
    try:
        yield
    finally:
        family = [started, *started.children(recursive=True)]
        started.terminate()
        for process in psutil.wait_procs(family, timeout=20)[1]:
            process.kill()
        shutil.rmtree(short, ignore_errors=True)


def main(folder: Path, address: str) -> None:
    until = time.monotonic() + 120
    while True:
        try:
            ray.init(address=address, log_to_driver=False)
            break
        except (ConnectionError, RuntimeError, ValueError):
            if time.monotonic() > until:
                raise
            time.sleep(1)
    before = ray.cluster_resources().get("GPU", 0)
    asked = Load(folder / "log")
    policy = ScalingPolicy(1, 3, up_after=0.5, down_after=60.0)
    config = PoolConfig(max_replicas=3, max_batch=4, num_gpus=1)
    with (
        pool(Counted(str(asked.log), seconds=0.3), config, policy=policy, autoscaled=True) as made,
        asked.on(made.address, callers=12, size=4),
    ):
        made.wait_for(lambda now: now.replicas == 3, seconds=120)
        time.sleep(3)
        nodes = set(map(node_of, made.manager._actors.values()))
    found = {"gpus": [before, ray.cluster_resources()["GPU"]], "nodes": len(nodes), "counted": asked.counted()}
    (folder / "found.json").write_text(json.dumps(found))
    ray.shutdown()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
