"""Determines the resources of this job on this node from SLURM's environment variables, and finds free ports."""

import os
import shutil
import socket
from collections.abc import Mapping
from dataclasses import dataclass

PORTS = 10
"""Number of consecutive ports for Ray's services on a node."""

# All ports are below 30000, because the kernel gives higher ones to outgoing connections.
FIRST, _BLOCKS = 20_000, 1_000
"""First port, and number of blocks of PORTS ports."""

# Ray's default.
_STORE_SHARE = 0.3
"""Share of the job's memory on a node that Ray's object store gets."""

# Measured with Ray 2.60: 390 MB on a head, 185 MB on a worker.
_RAY_BYTES = 512 * 2**20
"""Memory that is reserved for Ray's own processes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """The resources of a job on one node. None means that Ray detects the value."""

    cpus: int | None
    gpus: int | None
    memory: int | None
    """Bytes for tasks and actors."""
    store: int | None
    """Bytes for Ray's object store."""

    def options(self) -> list[str]:
        """Returns options of `ray start` for these resources."""
        # Without them, Ray would use the whole node.
        wanted = {
            "num-cpus": self.cpus,
            "num-gpus": self.gpus,
            "memory": self.memory,
            "object-store-memory": self.store,
        }
        return [f"--{name}={value}" for name, value in wanted.items() if value is not None]


def read_share(environment: Mapping[str, str] = os.environ, shm_bytes: int | None = None) -> Share:
    """Returns the resources of the SLURM job on this node. All are None if this is no SLURM job.

    Args:
        environment: The environment variables.
        shm_bytes: Free bytes in /dev/shm, which limit the object store; None to measure them.
    """
    if "SLURM_JOB_ID" not in environment:
        return Share(cpus=None, gpus=None, memory=None, store=None)
    cpus = int(environment.get("SLURM_CPUS_ON_NODE", 0)) or None
    gpus = _gpus(environment)
    megabytes = (
        int(environment.get("SLURM_MEM_PER_NODE", 0))
        or int(environment.get("SLURM_MEM_PER_CPU", 0)) * (cpus or 0)
        or int(environment.get("SLURM_MEM_PER_GPU", 0)) * gpus
    )
    memory = store = None
    if megabytes:
        free = shutil.disk_usage("/dev/shm").free if shm_bytes is None else shm_bytes
        store = max(min(int(megabytes * 2**20 * _STORE_SHARE), int(free * 0.95)), 80 * 2**20)
        memory = max(megabytes * 2**20 - store - _RAY_BYTES, 64 * 2**20)
    return Share(cpus=cpus, gpus=gpus, memory=memory, store=store)


def _gpus(environment: Mapping[str, str]) -> int:
    """Returns SLURM_GPUS_ON_NODE. If it is 0 or not set, returns the number of GPUs in CUDA_VISIBLE_DEVICES."""
    named = environment.get("CUDA_VISIBLE_DEVICES", "").split(",")
    visible = [name for name in named if name not in ("", "NoDevFiles")]  # older SLURM: NoDevFiles means no GPU
    return int(environment.get("SLURM_GPUS_ON_NODE", 0)) or len(visible)


def find_free_block(number: int) -> int:
    """Returns the first of PORTS consecutive free ports. Raises OSError if there are none.

    Args:
        number: Differs between jobs, such as their ids.
    """
    # The search starts at the number, so that jobs rarely try the same ports.
    for step in range(_BLOCKS):
        base = FIRST + (number + step) % _BLOCKS * PORTS
        if all(_is_free(base + offset) for offset in range(PORTS)):
            return base
    raise OSError(f"no {PORTS} consecutive free ports between {FIRST} and {FIRST + _BLOCKS * PORTS}")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True


def find_own_address(peer: str = "") -> str:
    """Returns the IP address under which other nodes reach this node.

    Args:
        peer: The IP address of the node that is to reach it. If it is empty, the result is OPENMAIA_HEAD_ADDRESS or, if that
            is not set, the address of the host name or, if that is a loopback address, of the default interface.
    """
    if peer:
        return _towards(peer)
    if given := os.environ.get("OPENMAIA_HEAD_ADDRESS"):
        return given
    try:
        named = [str(found[4][0]) for found in socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET)]
    except socket.gaierror:
        named = []
    outside = [address for address in named if not address.startswith("127.")]
    return outside[0] if outside else _towards("192.0.2.1")


def _towards(peer: str) -> str:
    """Returns the local IP address that the kernel would use to reach the peer, or 127.0.0.1 if there is no route."""
    # Connecting a UDP socket sends nothing.
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((peer, 9))
        except OSError:
            return "127.0.0.1"
        return probe.getsockname()[0]
