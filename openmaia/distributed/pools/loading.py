"""Lets replicas that share a GPU load side by side, except beside a model that measures the memory of its GPU."""

import fcntl
import os
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def loading(gpu: str, *, measures: bool, folder: Path | None = None) -> Generator[None]:
    """Context manager in which a replica loads its weights.

    vLLM without `kv_cache_gb` takes all growth of the GPU's used memory for its own while it loads, and sizes its KV cache by
    what is left. It loads alone, and all others load together. The system ends the turn of a process that dies.

    Args:
        gpu: The id of the GPU; empty if the replica does not share one.
        measures: Whether it is such a model.
        folder: Where all processes of this machine see a file; None: the folder of temporary files.
    """
    if not gpu:
        yield
        return
    path = (folder or Path(tempfile.gettempdir())) / f"openmaia-{os.getuid()}-gpu-{gpu}.lock"
    lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX if measures else fcntl.LOCK_SH)
        yield
    finally:
        # Not by closing alone: a process that the model has forked holds the file open, too.
        fcntl.flock(lock, fcntl.LOCK_UN)
        os.close(lock)
