"""`python -m tests.helpers.same_records FOLDER`: 24 investigations in this process, and on Ray in three other ways. Writes to
FOLDER/found.json how many records and scores differ, and how many nodes took part."""

import json
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

os.environ.setdefault("RAY_raylet_start_wait_time_s", "120")  # for busy machines

import openmaia.distributed  # noqa: F401, I001  settles how Ray starts
import psutil
import ray
from ray.cluster_utils import Cluster

from openmaia.assembly import ConfigAssembly
from openmaia.config.loading import load
from openmaia.config.schema import Config
from openmaia.distributed.sweep import run_sweep
from openmaia.runs.run import Run
from tests.distributed.test_same_records import Quiet, in_process, records
from tests.helpers.samples import comparable
from tests.helpers.sweeping import LAYERS, sources

UNITS = ":".join(f"{layer}={','.join(map(str, range(count)))}" for layer, count in LAYERS.items())
WAYS = {"one at once": (3, 1, 1), "24 at once": (16, 24, 1), "24 at once on three nodes": (16, 24, 3)}
"""Largest batch, investigations at once, and nodes."""


def main(folder: Path) -> None:
    own = [*sources(folder), f"units={UNITS}", "replicates=2"]
    alone = in_process(load([*own, f"paths.runs={folder / 'alone'}"]))
    found: dict[str, Any] = {}
    for name, (batch, at_once, nodes) in WAYS.items():
        pools = [f"pools.{role}.max_batch={batch}" for role in ("target", "generator", "editor", "backbone")]
        room = ["ray.cpus_per_investigation=0.05", "ray.memory_mb=50", "ray.investigations_per_process=8"]
        runs = f"paths.runs={folder / f'{at_once}-{nodes}'}"
        config = load([*own, runs, *pools, *room, f"ray.investigations={at_once}"])
        found[name] = _compared(config, nodes, alone)
    (folder / "found.json").write_text(json.dumps(found))


def _compared(config: Config, nodes: int, alone: Run) -> dict[str, int]:
    cluster: Any = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "include_dashboard": False})
    try:
        for _ in range(nodes - 1):
            cluster.add_node(num_cpus=2)
        config.ray.address = cluster.address
        ray.init(address=cluster.address, log_to_driver=False)
        with _nodes_seen() as seen:
            run = run_sweep(config, ConfigAssembly(), Quiet()).run
    finally:
        ray.shutdown()
        cluster.shutdown()
    pairs = list(zip(records(run), records(alone), strict=True))
    own, other = run.scores(), alone.scores()
    return {
        "records": len(pairs),
        "different": sum(comparable(one) != comparable(two) for one, two in pairs),
        "scores": len(own),
        "different scores": sum(own[each] != other.get(each) for each in own),
        "nodes": len(seen),
    }


@contextmanager
def _nodes_seen() -> Iterator[set[int]]:
    """The raylets below which investigations have run. Ray titles each process by what it runs; one that outlives its
    raylet has another parent for a moment."""
    seen: set[int] = set()
    over = threading.Event()
    titles = tuple(f"ray::{layer}/" for layer in LAYERS)

    def look() -> None:
        while not over.wait(0.2):
            for process in psutil.Process().children(recursive=True):
                try:
                    parent = process.parent()
                    if parent and parent.name() == "raylet" and " ".join(process.cmdline()).startswith(titles):
                        seen.add(parent.pid)
                except psutil.NoSuchProcess:
                    pass

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield seen
    finally:
        over.set()
        thread.join()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
