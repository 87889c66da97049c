"""`python -m tests.helpers.several_nodes FOLDER`: one replica of a language model on two nodes, with a pretended GPU each.
Writes what test_several_nodes.py looks at to FOLDER/found.json."""

import json
import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

os.environ.setdefault("RAY_raylet_start_wait_time_s", "120")  # for busy machines
os.environ["VLLM_CPU_KVCACHE_SPACE"] = "1"
os.environ["VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS"] = "10"

import openmaia.distributed  # noqa: F401, I001  settles how Ray starts
import psutil
import ray
from ray.cluster_utils import Cluster
from ray.util import placement_group_table

from openmaia.config.loading import load
from openmaia.config.schema import Config
from openmaia.core.messages import Chat, user
from openmaia.distributed.pools.handles import PooledBackbone, Pools
from tests.helpers.run_pools import pools
from tests.helpers.sweeping import sources
from tests.helpers.tiny import gemma

ENGINE = ("backbone.kind=vllm", "backbone.context_tokens=2048", "backbone.vllm.eager=true", "limits.reply_tokens=64")
WITHOUT_NODE = 60
"""Seconds without the second node: longer than two tries to load a model, after which a pool is given up."""

STAGES = ("backbone.vllm.pipeline_parallel=2", "pools.backbone.num_gpus=2")


def main(folder: Path) -> None:
    found: dict[str, Any] = {}
    model = f"backbone.model={gemma.build(folder / 'gemma')}"
    one = load([*sources(folder), *ENGINE, model])
    several = load([*sources(folder), *ENGINE, model, *STAGES])
    head = {"num_cpus": 4, "num_gpus": 1, "include_dashboard": False}
    cluster: Any = Cluster(initialize_head=True, head_node_args=head)
    try:
        ray.init(address=cluster.address, log_to_driver=False)
        with pools(one) as made:
            found["one"] = _answers(made)
        found.update(_spanning(several, cluster))
        until = time.monotonic() + 60
        while _groups() and time.monotonic() < until:
            time.sleep(0.1)
        found["left"] = len(_groups())
        (folder / "found.json").write_text(json.dumps(found))
    finally:
        ray.shutdown()
        cluster.shutdown()


def _spanning(config: Config, cluster: Any) -> dict[str, Any]:
    other = cluster.add_node(num_cpus=4, num_gpus=1)
    with pools(config) as made:
        found: dict[str, Any] = {"several": _answers(made)}
        found["nodes"] = [len(set(group["bundles_to_node_id"].values())) for group in _groups()]
        workers = _processes("RayWorkerProc")
        found["workers"] = len(workers)
        raylet = _holder().ppid()
        [far] = [worker for worker in workers if worker.ppid() != raylet]
        far.kill()
        found["without a worker"] = _answers(made)
        _holder().kill()
        found["without the replica"] = _answers(made)
        found["deaths"] = made.statistics()["backbone"].deaths
        with ThreadPoolExecutor(1) as thread:
            cluster.remove_node(other, allow_graceful=False)
            asked = thread.submit(_answers, made)
            time.sleep(WITHOUT_NODE)
            found["answered too early"] = asked.done()
            cluster.add_node(num_cpus=4, num_gpus=1)
            found["on another node"] = asked.result(timeout=300)
    return found


def _holder() -> psutil.Process:
    """The replica of the language model: the only one with processes of its own."""
    [holder] = [process for process in _processes("ray::Replica") if process.children()]
    return holder


def _answers(made: Pools) -> list[str]:
    backbone = PooledBackbone(made.addresses["backbone"], "test")
    asked = [Chat(conversation=f"{i}", messages=(user(f"word {i}"),), seed=i, max_tokens=12) for i in range(3)]
    return [backbone.reply([chat])[0].text for chat in asked]


def _groups() -> list[dict[str, Any]]:
    return [group for group in placement_group_table().values() if group["state"] != "REMOVED"]


def _processes(title: str) -> list[psutil.Process]:
    """Ray's processes with this title: `RayWorkerProc` are those of vLLM, one for each stage."""
    children = psutil.Process().children(recursive=True)
    return sorted((p for p in children if title in " ".join(p.cmdline())), key=lambda p: p.pid)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
