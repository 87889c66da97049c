"""`python -m tests.helpers.come_and_go FOLDER UNITS`: a run on three nodes, one of which is removed in the middle, while another is
added. Every unit is done, each once, and the added node takes part."""

import os
import sys
from collections import Counter
from pathlib import Path
from typing import Any

os.environ.setdefault("RAY_raylet_start_wait_time_s", "120")  # for busy machines

import openmaia.distributed  # noqa: F401, I001  settles how Ray starts
import ray
from ray.cluster_utils import Cluster

from openmaia.assembly import ConfigAssembly
from openmaia.config.loading import load
from openmaia.distributed.scheduler import Scheduler
from openmaia.distributed.worker import SweepContext
from tests.helpers.run_pools import pools
from openmaia.assembly import exemplars
from openmaia.runs.run import InvestigationId, Run
from tests.helpers.sweeping import ANSWER, LAYERS, planned, sources

REPLY = "[CODE]:\n```python\nprint(tools.node_id()); tools.wait(0.3); tools.wait_for_node({folder!r})\n```"
OVERRIDES = (
    "tools=[tests.helpers.sweeping:node_id,tests.helpers.sweeping:wait,tests.helpers.sweeping:wait_for_node]",
    "ray.investigations=16",  # more than fit: what is added is of use
    "ray.investigations_per_process=2",
    "ray.cpus_per_investigation=0.25",
    "ray.memory_mb=100",
    "sandbox.seconds=120",
    "retries=3",
)


def main(folder: Path, units: int) -> None:
    cluster: Any = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    ray.init(address=cluster.address, log_to_driver=False)
    first, second = cluster.add_node(num_cpus=1), cluster.add_node(num_cpus=1)
    meeting = folder / "meeting"
    meeting.mkdir()
    config = load([*sources(folder, [REPLY.format(folder=str(meeting)), ANSWER]), *OVERRIDES])
    run, ended, added = planned(config, units), Counter[InvestigationId](), ""
    with pools(config) as made:
        made.target("test").info()
        asked = [address.dispatcher.__ray_call__.remote(node_of) for address in made.addresses.values()]
        assert set(ray.get(asked, timeout=60)) == {node_of()}, "a dispatcher is not on the node of the driver"
        store = exemplars.make(config, list(LAYERS))
        kept, removed = first, second
        for _, result in Scheduler(
            config, [SweepContext(config=config, run=run, pools=made, exemplars=store, assembly=ConfigAssembly())]
        ).results():
            assert result.summary is not None, result.cause
            ended[result.investigation] += 1
            if sum(ended.values()) == units // 3:
                cluster.remove_node(removed, allow_graceful=False)
                added = cluster.add_node(num_cpus=1).node_id
                (meeting / "expected").write_text(added)  # else all units may be done before its workers have started
    assert len(ended) == units == len(run.done())
    assert set(ended.values()) == {1}
    assert run.pending() == []
    used = nodes(run)
    assert {kept.node_id, added} <= used, (kept.node_id, added, used)
    ray.shutdown()
    cluster.shutdown()


def node_of(actor: Any = None) -> str:
    return ray.get_runtime_context().get_node_id()


def nodes(run: Run) -> set[str]:
    return {str(run.record(investigation).turns[0].observation[0]).strip() for investigation in run.done()}


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
