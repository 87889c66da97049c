"""`python -m tests.come_and_go FOLDER UNITS`: a run on three nodes, one of which is removed in the middle, while another is
added. Every unit is done, each once, and the added node takes part."""

import os
import sys
from collections import Counter
from pathlib import Path
from typing import Any

os.environ.setdefault("RAY_raylet_start_wait_time_s", "120")  # for busy machines

import openmaia.remote  # noqa: F401, I001  settles how Ray starts
import ray
from ray.cluster_utils import Cluster

from openmaia.config import load
from openmaia.remote.drive import drive
from openmaia.remote.investigator import Job
from openmaia.remote.services import pools
from openmaia.store.exemplars import ExemplarStore
from openmaia.store.run import Owed, Run
from tests.sweeping import ANSWER, planned, sources

REPLY = "[CODE]:\n```python\nprint(tools.node_id()); tools.wait(0.3)\n```"
OVERRIDES = (
    "tools=[tests.sweeping:node_id,tests.sweeping:wait]",
    "ray.investigations=16",  # more than fit: what is added is of use
    "ray.investigations_per_process=2",
    "ray.cpus_per_investigation=0.25",
    "ray.memory_mb=100",
    "retries=3",
)


def main(folder: Path, units: int) -> None:
    cluster: Any = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    ray.init(address=cluster.address, log_to_driver=False)
    first, second = cluster.add_node(num_cpus=1), cluster.add_node(num_cpus=1)
    config = load([*sources(folder, [REPLY, ANSWER]), *OVERRIDES])
    run, ended, added = planned(config, units), Counter[Owed](), ""
    with pools(config) as made:
        made.target("test").info()
        store = ExemplarStore.at(config.paths.exemplars, config.target.name, "none")
        # Whichever node holds the dispatcher of the backbone goes, if it is not the driver's own.
        removed = next((n for n in (first, second) if n.node_id == node_of(made.dispatchers["backbone"])), second)
        kept = first if removed is second else second
        for _, result in drive(config, [Job(config=config, run=run, pools=made, exemplars=store)]):
            assert result.summary is not None, result.cause
            ended[result.owed] += 1
            if sum(ended.values()) == units // 3:
                cluster.remove_node(removed, allow_graceful=False)
                added = cluster.add_node(num_cpus=1).node_id
    assert len(ended) == units == len(run.done())
    assert set(ended.values()) == {1}
    assert run.owed() == []
    used = nodes(run)
    assert {kept.node_id, added} <= used, (kept.node_id, added, used)
    ray.shutdown()
    cluster.shutdown()


def node_of(actor: Any) -> str:
    asked = actor.__ray_call__.remote(lambda self: ray.get_runtime_context().get_node_id())
    return ray.get(asked, timeout=120)


def nodes(run: Run) -> set[str]:
    return {str(run.record(owed).turns[0].observation[0]).strip() for owed in run.done()}


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
