"""`python -m tests.helpers.sharing FOLDER GPUS`: three pools whose models load slowly, each on so much of a pretended GPU. That of
the first measures the memory of its GPU."""

import json
import sys
import time
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import ray

from openmaia.config.machine import PoolConfig
from tests.helpers.sleeping import Sleeping, pool

SECONDS = 4.0


def slow(folder: Path, number: int) -> Sleeping:
    """Takes its time to load and writes down when; whole GPUs give enough of it for three processes to start."""
    began = time.time()
    time.sleep(SECONDS)
    (folder / f"{number}.load").write_text(json.dumps([began, time.time()]))
    return Sleeping()


def main(folder: Path, num_gpus: float) -> None:
    """Starts the pools and waits until all of them are loaded."""
    ray.init(
        address="local", num_cpus=2, num_gpus=1 if num_gpus < 1 else 3, include_dashboard=False, log_to_driver=False
    )
    with ExitStack() as stack:
        config = PoolConfig(num_gpus=num_gpus)
        pools = [
            stack.enter_context(pool(partial(slow, folder, number), config, ready=False, measures=not number))
            for number in range(3)
        ]
        for each in pools:
            each.wait_for(lambda now: now.replicas == 1, 200)
    ray.shutdown()


if __name__ == "__main__":
    main(Path(sys.argv[1]), float(sys.argv[2]))
