"""Lets only one replica at a time load its model on a shared GPU.

While a model loads, vLLM measures the free memory of the GPU. It would count the memory that another replica allocates
meanwhile as its own.
"""

import os
import tempfile
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import ray
from filelock import FileLock


def loading_turn(num_gpus: float) -> AbstractContextManager[object]:
    """Returns a context manager that waits until no other process of this user loads a model on the GPU of this actor.

    It uses a file lock, which the operating system releases if the process dies.

    Args:
        num_gpus: The GPUs of the replica. Only a fraction between 0 and 1 means a shared GPU; otherwise nothing is
            locked.
    """
    if not 0 < num_gpus < 1:
        return nullcontext()
    gpu = "-".join(ray.get_runtime_context().get_accelerator_ids()["GPU"])
    return FileLock(Path(tempfile.gettempdir()) / f"openmaia-{os.getuid()}-gpu-{gpu}.lock")
