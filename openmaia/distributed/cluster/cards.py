"""Finds the GPUs that a run on this machine would use, before Ray is started."""

import os
import subprocess
import sys
from typing import Any


def memories(address: str) -> list[int]:
    """Returns the memory in bytes of each GPU that a run has, 0 where it is not known. Empty if it runs elsewhere.

    If this process is connected to Ray, that counts its GPUs; otherwise those count that CUDA_VISIBLE_DEVICES leaves, as for Ray.

    Args:
        address: The `ray.address` of the config.
    """
    # Importing Ray takes long, and whoever has not done so is not connected.
    ray: Any = sys.modules.get("ray")
    if ray is not None and ray.is_initialized():
        count, here = int(ray.cluster_resources().get("GPU", 0)), visible(_listed(), None)
        return here if len(here) == count else [0] * count
    return visible(_listed(), os.environ.get("CUDA_VISIBLE_DEVICES")) if address == "local" else []


def visible(said: str, devices: str | None) -> list[int]:
    """Reads a table of nvidia-smi: index, UUID and memory in MiB of each GPU. Returns bytes; 0 if they are not known.

    Args:
        devices: The value of CUDA_VISIBLE_DEVICES; None if it is not set.
    """
    rows = [[cell.strip() for cell in line.split(",")] for line in said.splitlines()]
    cards = [
        (index, uuid, int(size) * 2**20 if size.isdecimal() else 0)  # "[N/A]" where it shares the main memory
        for index, uuid, size in (row for row in rows if len(row) == 3)
    ]
    if devices is None:
        return [size for _, _, size in cards]
    names = [name.strip() for name in devices.split(",") if name.strip()]
    return [
        size
        for index, uuid, size in cards
        if any(name == index or (len(name) > 4 and uuid.startswith(name)) for name in names)
    ]


def _listed() -> str:
    asked = ["nvidia-smi", "--query-gpu=index,uuid,memory.total", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(asked, capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return "" if done.returncode else done.stdout
