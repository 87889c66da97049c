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


def room(configs: Sequence[Config], nodes: Sequence[NodeResources], asked: str) -> None:
    """Checks that the nodes of a job have the resources that its configs request.

    Args:
        configs: The config of a sweep, or those of several sweeps that share all pools except the one of the target.
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


def nodes(job: JobConfig) -> list[NodeResources]:
    """Returns the nodes that a job requests, each with its resources."""
    return [NodeResources(gpus=job.gpus, cpus=job.cpus, memory=job.memory_gb * 2.0**30)] * job.nodes


def spoken(job: JobConfig) -> str:
    """Returns the settings that determine the size of a job, as text for messages."""
    return f"job.nodes={job.nodes} with job.gpus={job.gpus}, job.cpus={job.cpus}, job.memory_gb={job.memory_gb} of each"


def files(config: Config) -> None:
    """Checks, on this machine, that the files and folders named in a config exist and that `paths.runs` can be written.

    Raises:
        UsageError: If a file or folder is missing, or if `paths.runs` cannot be written.
    """
    if missing := _missing(missing_files(config)):
        raise UsageError(missing)


def command_line(sources: Sequence[str]) -> None:
    """Checks that the command line of a job, which the cluster stores and shows, holds no secret.

    Args:
        sources: The config files and overrides of the job.

    Raises:
        UsageError: If an override has a URL with a password or a query.
    """
    for source in sources:
        if not is_file(Path(source)) and not is_clean(source):
            raise UsageError(
                f"{source.partition('=')[0]} has a URL with a password or a query, and the cluster stores and shows the "
                "command line of a job; put it into a file, or into an environment variable of the job, and give "
                f"'{source.partition('=')[0]}=${{oc.env:NAME}}'"
            )


def absolute(config: Config) -> None:
    """Checks that `paths.runs` and `paths.exemplars` of a config are absolute paths or URLs.

    The processes of a job run in separate working directories on several machines. Most of these directories are
    deleted when the job ends.

    Raises:
        UsageError: If one of the paths is relative.
    """
    for key, path in (("runs", config.paths.runs), ("exemplars", config.paths.exemplars)):
        if not path.startswith(("/", "~")) and "://" not in path:
            raise UsageError(
                f"paths.{key}={path!r} is relative, and a job's processes have folders of their own; give a path that every "
                f"node sees, such as paths.{key}=/shared/{path}, or a URL"
            )


def packages(config: Config) -> None:
    """Checks that the packages that a config needs are installed for this Python.

    Raises:
        UsageError: If a package is missing.
    """
    if missing := _missing(missing_packages(config, installed())):
        raise UsageError(f"{missing}. Another Python for the job: OPENMAIA_PYTHON=…")


def _missing(results: Sequence[Check]) -> str:
    """Joins the messages of the missing requirements. Returns an empty string if none is missing."""
    return "; ".join(result.message for result in results if result.state == "missing")


def program(name: str, purpose: str) -> str:
    """Returns the path of a program.

    Args:
        name: The name of the program.
        purpose: A verb phrase that says what the program does, for the error message.

    Raises:
        UsageError: If the program is not on PATH.
    """
    found = shutil.which(name)
    if found is None:
        raise UsageError(f"{name} is not on PATH: it {purpose}. Run this where it is, or print the job with --dry-run")
    return found


def folder(name: str) -> Path:
    """Returns the path of a subfolder of the folder cluster/, which is only in a clone of the repository.

    Raises:
        UsageError: If the folder is missing because the package is not installed from a clone.
    """
    found = Path(__file__).parents[3] / "cluster" / name
    if not found.is_dir():
        raise UsageError(
            f"{found} is missing: `openmaia submit {name}` needs the files of a clone; install that with pip install -e"
        )
    return found
