"""`python -m tests.helpers.downloading FOLDER CONFIG…`: `openmaia doctor --download` on a cluster of two nodes with a cache each."""

import os
import sys
from pathlib import Path
from typing import Any

os.environ.setdefault("RAY_raylet_start_wait_time_s", "120")  # for busy machines

import openmaia.distributed  # noqa: F401, I001  settles how Ray starts
from ray.cluster_utils import Cluster

from openmaia.cli.commands.doctor import download_weights


def main(folder: Path, config: list[str]) -> None:
    head = {"num_cpus": 1, "include_dashboard": False, "env_vars": {"HF_HOME": str(folder / "first")}}
    cluster: Any = Cluster(initialize_head=True, head_node_args=head)
    cluster.add_node(num_cpus=1, env_vars={"HF_HOME": str(folder / "second")})
    try:
        download_weights([*config, f"ray.address={cluster.address}"])
    finally:
        cluster.shutdown()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
