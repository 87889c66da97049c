"""Checks of a job that are possible before it is submitted."""

import dataclasses
import shutil
from collections.abc import Sequence
from pathlib import Path

from openmaia.config.loading import is_file
from openmaia.config.machine import JobConfig
from openmaia.config.schema import Config
from openmaia.core.checks import Check
from openmaia.core.errors import UsageError
from openmaia.core.secrets import is_clean
from openmaia.distributed.cluster.resources import NodeResources, of_investigations, of_pools, too_wide, unplaced
from openmaia.distributed.launchers.requirements import installed, missing_files, missing_packages


def check_room(configs: Sequence[Config], nodes: Sequence[NodeResources], asked: str) -> None:
    """Checks that the nodes of a job have the resources that its configs request.

    Args:
        configs: The configs of the sweeps, which share all pools except the one of the target.
        nodes: The nodes of the job.
        asked: The settings that determine the nodes, as text for the error message.

    Raises:
        UsageError: If the nodes are too small.
    """
    pools, investigations = of_pools(configs), of_investigations(configs[0])
    one = dataclasses.replace(investigations, count=1)
    if reason := too_wide(pools, nodes):
        raise UsageError(f"{asked} is too little: {reason}")
    if short := unplaced([*pools, one], nodes):
        wanted = ", ".join(str(claim) for claim in (*pools, investigations))
        raise UsageError(
            f"{asked} is too little: no room for {', '.join(f'{count} of {name}' for name, count in short.items())} (wanted: "
            f"{wanted}). Ask for more, or give a file of configs/machine that fits"
        )


def list_nodes(job: JobConfig) -> list[NodeResources]:
    """Returns the nodes that a job requests."""
    return [NodeResources(gpus=job.gpus, cpus=job.cpus, memory=job.memory_gb * 2.0**30)] * job.nodes


def describe_size(job: JobConfig) -> str:
    """Returns the settings that determine the size of a job, as text for messages."""
    return f"job.nodes={job.nodes} with job.gpus={job.gpus}, job.cpus={job.cpus}, job.memory_gb={job.memory_gb} of each"


def check_files(config: Config) -> None:
    """Raises UsageError if this machine lacks a file or folder of a config, or if `paths.runs` cannot be written."""
    if missing := _missing(missing_files(config)):
        raise UsageError(missing)


def check_command_line(sources: Sequence[str]) -> None:
    """Raises UsageError if an override among the sources has a URL with a password or a query."""
    # The cluster stores and shows the command line of a job.
    for source in sources:
        if not is_file(Path(source)) and not is_clean(source):
            raise UsageError(
                f"{source.partition('=')[0]} has a URL with a password or a query, and the cluster stores and shows the "
                "command line of a job; put it into a file, or into an environment variable of the job, and give "
                f"'{source.partition('=')[0]}=${{oc.env:NAME}}'"
            )


def check_absolute(config: Config) -> None:
    """Raises UsageError if `paths.runs` or `paths.exemplars` is relative."""
    # The processes of a job have working directories of their own, most of which are deleted when the job ends.
    for key, path in (("runs", config.paths.runs), ("exemplars", config.paths.exemplars)):
        if not path.startswith(("/", "~")) and "://" not in path:
            raise UsageError(
                f"paths.{key}={path!r} is relative, and a job's processes have folders of their own; give a path that every "
                f"node sees, such as paths.{key}=/shared/{path}, or a URL"
            )


def check_packages(config: Config) -> None:
    """Raises UsageError if this Python lacks a package that a config needs."""
    if missing := _missing(missing_packages(config, installed())):
        raise UsageError(f"{missing}. Another Python for the job: OPENMAIA_PYTHON=…")


def _missing(results: Sequence[Check]) -> str:
    return "; ".join(result.message for result in results if result.state == "missing")


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


def find_folder(name: str) -> Path:
    """Returns the path of a subfolder of cluster/. Raises UsageError if the package is not installed from a clone."""
    found = Path(__file__).parents[3] / "cluster" / name
    if not found.is_dir():
        raise UsageError(
            f"{found} is missing: `openmaia submit {name}` needs the files of a clone; install that with pip install -e"
        )
    return found
