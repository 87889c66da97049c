"""What can be known of a job before it is submitted."""

import dataclasses
import shutil
from collections.abc import Sequence
from pathlib import Path

from openmaia.doctor import checkpoints, installed, machine
from openmaia.doctor.finding import Finding
from openmaia.errors import UsageError
from openmaia.remote.wish import Node, of_investigations, of_pool, of_pools, unplaced
from openmaia.schema import Config, JobConfig


def room(configs: Sequence[Config], nodes: Sequence[Node], asked: str) -> None:
    """Raises UsageError where the job's nodes are too small for what the config wants of them.

    configs: of one sweep, or of several that share everything but their targets. asked: where the size of the nodes comes
    from, for the message.
    """
    config = configs[0]
    pools, investigations = of_pools(config), of_investigations(config)
    pools += [of_pool("target", other.pools.target) for other in configs[1:]]
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
    if missing := _missing([*machine.folders(config), *checkpoints.named(config)]):
        raise UsageError(missing)


def absolute(config: Config) -> None:
    """Raises UsageError for a relative path to runs or exemplars.

    A job's processes run in folders of their own, on several machines; most of these are thrown away at its end.
    """
    for key, path in (("runs", config.paths.runs), ("exemplars", config.paths.exemplars)):
        if not path.startswith(("/", "~")) and "://" not in path:
            raise UsageError(
                f"paths.{key}={path!r} is relative, and a job's processes have folders of their own; give a path that every "
                f"node sees, such as paths.{key}=/shared/{path}, or a URL"
            )


def packages(config: Config) -> None:
    """Raises UsageError for packages that the config needs and this Python does not have."""
    if missing := _missing(installed.needed(config, installed.distributions(), gpus=config.job.gpus > 0)):
        raise UsageError(f"{missing}. Another Python for the job: OPENMAIA_PYTHON=…")


def _missing(found: Sequence[Finding]) -> str:
    """What is not there, and what to do about it; empty where all is."""
    missing = [each for each in found if each.state == "missing"]
    return "; ".join(f"{each.what} ({each.remedy})" if each.remedy else each.what for each in missing)


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
