"""The size of a job, and what launching it needs of this machine."""

import shutil
from collections.abc import Sequence

from openmaia.config.machine import JobConfig
from openmaia.config.schema import Config
from openmaia.core.errors import UsageError
from openmaia.distributed.cluster.resources import NodeResources, shortage


def require_room(configs: Sequence[Config], nodes: Sequence[NodeResources], asked: str) -> None:
    """Raises UsageError if the nodes of a job lack the resources that its configs request.

    Args:
        configs: The configs of the sweeps, which share all pools except the one of the target.
        nodes: The nodes of the job.
        asked: The settings that determine the nodes, for the error message.
    """
    if reason := shortage(configs, nodes):
        raise UsageError(f"{asked} is too little: {reason}, or a file of configs/machine that fits")


def list_nodes(job: JobConfig) -> list[NodeResources]:
    """Returns the nodes that a job requests."""
    return [NodeResources(gpus=job.gpus, cpus=job.cpus, memory=job.memory_gb * 2.0**30)] * job.nodes


def describe_size(job: JobConfig) -> str:
    """Returns the settings that determine the size of a job, as text for messages."""
    return f"job.nodes={job.nodes} with job.gpus={job.gpus}, job.cpus={job.cpus}, job.memory_gb={job.memory_gb} of each"


def find_program(name: str, purpose: str) -> str:
    """Returns the path of a program. Raises UsageError if it is not on PATH.

    Args:
        name: The name of the program.
        purpose: What it does, as a verb phrase for the error message.
    """
    found = shutil.which(name)
    if found is None:
        raise UsageError(f"{name} is not on PATH: it {purpose}. Run this where it is, or print the job with --dry-run")
    return found
