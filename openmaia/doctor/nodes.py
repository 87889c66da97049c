"""Run as a process of its own: prints the GPUs of each node of a Ray cluster as a line of JSON."""

import json
import sys
from typing import Any

from openmaia.config import load
from openmaia.errors import UsageError
from openmaia.remote import cluster


def main(address: str) -> None:
    config = load([f"ray.address={address}", "name=doctor", "units=all", "target.name=doctor"])
    try:
        with cluster.cluster(config):
            nodes: list[dict[str, Any]] = cluster.ray.nodes()
            print(json.dumps({"gpus": [int(node["Resources"].get("GPU", 0)) for node in nodes if node["Alive"]]}))
    except UsageError as error:
        print(json.dumps({"refused": error.message}))


if __name__ == "__main__":
    main(sys.argv[1])
