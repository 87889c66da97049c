"""What a scheduler gave this job on this node, read from its environment, and ports that nobody else uses."""

import os
import shutil
import socket
from collections.abc import Mapping
from dataclasses import dataclass

PORTS = 10
"""A node's services listen on as many consecutive ports; its workers on whatever is free."""

FIRST, BLOCKS = 20_000, 1_000
"""Below 30000, so that the kernel does not hand these ports out to outgoing connections."""

STORE_SHARE = 0.3
"""Of a node's memory, for objects: Ray's own default."""

RAY_BYTES = 512 * 2**20
"""Kept back for Ray's own processes on a node; measured: 390 MB on a head, 185 MB on a worker (Ray 2.60)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """cpus, gpus: of this node; memory, store: bytes for tasks and for objects. None: whatever Ray finds."""

    cpus: int | None
    gpus: int | None
    memory: int | None
    store: int | None

    def options(self) -> list[str]:
        """Of `ray start`, which otherwise takes the whole machine for its own: it does not see a job's limits."""
        wanted = {
            "num-cpus": self.cpus,
            "num-gpus": self.gpus,
            "memory": self.memory,
            "object-store-memory": self.store,
        }
        return [f"--{name}={value}" for name, value in wanted.items() if value is not None]


def share(environment: Mapping[str, str] = os.environ, shm_bytes: int | None = None) -> Share:
    """This node's part of a SLURM allocation; outside of one, all of it is None. shm_bytes: free in /dev/shm."""
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
        store = max(min(int(megabytes * 2**20 * STORE_SHARE), int(free * 0.95)), 80 * 2**20)
        memory = max(megabytes * 2**20 - store - RAY_BYTES, 64 * 2**20)
    return Share(cpus=cpus, gpus=gpus, memory=memory, store=store)


def _gpus(environment: Mapping[str, str]) -> int:
    """SLURM_GPUS_ON_NODE is set for jobs that asked for GPUs by any of SLURM's options."""
    named = environment.get("CUDA_VISIBLE_DEVICES", "").split(",")
    visible = [name for name in named if name not in ("", "NoDevFiles")]  # the latter: none, by an older SLURM
    return int(environment.get("SLURM_GPUS_ON_NODE", 0)) or len(visible)


def free_block(number: int) -> int:
    """The first of PORTS consecutive free ports; jobs of different numbers begin to look at different places."""
    for step in range(BLOCKS):
        base = FIRST + (number + step) % BLOCKS * PORTS
        if all(_is_free(base + offset) for offset in range(PORTS)):
            return base
    raise OSError(f"no {PORTS} consecutive free ports between {FIRST} and {FIRST + BLOCKS * PORTS}")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True


def own_address(peer: str = "") -> str:
    """The address of this node on its way to the peer; without one, the address that its own name stands for.

    With several networks, OPENMAIA_HEAD_ADDRESS names the one to use on the head; workers follow.
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
    """Nothing is sent: a datagram socket that is connected knows by which of its addresses it would."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((peer, 9))
        except OSError:
            return "127.0.0.1"
        return probe.getsockname()[0]
