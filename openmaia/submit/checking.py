"""What can be known of a job before it is submitted."""

import dataclasses
import shutil
from collections.abc import Sequence
from pathlib import Path

from openmaia.doctor import checkpoints, machine
from openmaia.errors import UsageError
from openmaia.remote.wish import Node, of_investigations, of_pools, unplaced
from openmaia.schema import Config, JobConfig


def room(config: Config, nodes: Sequence[Node], asked: str) -> None:
    """Raises UsageError where the job's nodes are too small for what the config wants of them.

    asked: where the size of the nodes comes from, for the message.
    """
    pools, investigations = of_pools(config), of_investigations(config)
    one = dataclasses.replace(investigations, count=1)
    if short := unplaced([*pools, one], nodes):
        wanted = ", ".join(str(claim) for claim in (*pools, investigations))
        raise UsageError(
            f"{asked} is too little: no room for {', '.join(f'{count} of {name}' for name, count in short.items())} (wanted: "
            f"{wanted}). Ask for more, or give a file of configs/machine that fits"
        )


def nodes(job: JobConfig) -> list[Node]:
    return [Node(gpus=job.gpus, cpus=job.cpus, memory=job.memory_gb * 2.0**30)] * job.nodes


def spoken(job: JobConfig) -> str:
    return f"job.nodes={job.nodes} with job.gpus={job.gpus}, job.cpus={job.cpus}, job.memory_gb={job.memory_gb} of each"


def files(config: Config) -> None:
    """Raises UsageError for folders and checkpoints that a job on this file system would not find."""
    found = [*machine.folders(config), *checkpoints.named(config)]
    missing = [
        f"{each.what} ({each.remedy})" if each.remedy else each.what for each in found if each.state == "missing"
    ]
    if missing:
        raise UsageError("; ".join(missing))


def absolute(config: Config) -> None:
    """Raises UsageError for a relative path to runs or exemplars.

    A job runs in a copy of the working directory that is thrown away, and with it what is written there.
    """
    for key, path in (("runs", config.paths.runs), ("exemplars", config.paths.exemplars)):
        if not path.startswith(("/", "~")) and "://" not in path:
            raise UsageError(
                f"paths.{key}={path!r} is relative, and a job's folder is temporary; give a path that every node sees, "
                f"such as paths.{key}=/shared/{path}, or a URL"
            )


def program(name: str, purpose: str) -> str:
    """The path of a program. Raises UsageError where it is not there."""
    found = shutil.which(name)
    if found is None:
        raise UsageError(f"{name} is not on PATH: it {purpose}. Run this where it is, or print the job with --dry-run")
    return found


def folder(name: str) -> Path:
    """A folder of cluster/. Raises UsageError outside of a clone."""
    found = Path(__file__).parents[2] / "cluster" / name
    if not found.is_dir():
        raise UsageError(
            f"{found} is missing: `openmaia submit {name}` needs the files of a clone; install that with pip install -e"
        )
    return found
