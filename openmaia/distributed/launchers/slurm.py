"""Submits a run as a SLURM batch job. The `job` section of the config sets its size."""

import os
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from openmaia.config.schema import Config
from openmaia.core.errors import UsageError
from openmaia.core.shipped import shipped
from openmaia.distributed.launchers import sizes

PYTHON = "OPENMAIA_PYTHON"
"""Environment variable with the Python that the batch script uses."""

_CONTAINERS = ("OPENMAIA_PYXIS", "OPENMAIA_APPTAINER")
"""Environment variables that name a container image. If one is set, the job runs in the image and uses its Python."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmJob:
    """A SLURM batch job."""

    command: list[str]
    """Of sbatch."""
    python: str
    """The path of the Python interpreter that the job uses."""

    def __str__(self) -> str:
        return f"{PYTHON}={shlex.quote(self.python)} {shlex.join(self.command)}"


def prepare(configs: Sequence[Config], sources: Sequence[str], options: Sequence[str]) -> SlurmJob:
    """Returns the batch job that runs the given configs.

    Args:
        configs: The configs of the sweeps.
        sources: The config files and overrides from which they were loaded. The job loads them again.
        options: Further options of sbatch. They override those made from the config.

    Raises:
        UsageError: If an option is invalid.
    """
    job = configs[0].job
    if wrong := [option for option in options if not option.startswith("-")]:
        raise UsageError(f"--option={wrong[0]!r}: expected an option of sbatch, such as --option=--partition=gpu")
    asked = [
        "--export=ALL",  # a site's own default may be NONE
        f"--job-name={configs[0].name}",
        f"--nodes={job.nodes}",
        f"--cpus-per-task={job.cpus}",
        f"--mem={job.memory_gb}G",
        f"--time={_minutes(job.hours)}",
        *([f"--gpus-per-node={job.gpus}"] if job.gpus else []),
    ]
    script = shipped("cluster") / "slurm" / "openmaia.sbatch"
    command = ["sbatch", "--parsable", *asked, *options, str(script), *sources]
    python = os.environ.get(PYTHON) or ("python3" if _in_container(os.environ) else sys.executable)
    return SlurmJob(command=command, python=python)


def uses_this_python(environment: Mapping[str, str]) -> bool:
    """Returns whether a job uses the Python of this process."""
    return PYTHON not in environment and not _in_container(environment)


def _in_container(environment: Mapping[str, str]) -> bool:
    return any(environment.get(name) for name in _CONTAINERS)


def _minutes(hours: float) -> int:
    # The unit of sbatch for plain numbers. 0 would be no limit.
    return max(round(hours * 60), 1)


def submit(job: SlurmJob) -> str:
    """Submits a job and returns its SLURM job id. Raises UsageError if sbatch is missing or fails."""
    sizes.find_program("sbatch", "hands jobs to SLURM")
    done = subprocess.run(job.command, env=os.environ | {PYTHON: job.python}, capture_output=True, text=True)
    if done.returncode:
        raise UsageError(f"sbatch did not take the job: {' '.join(done.stderr.split())}")
    return done.stdout.strip().partition(";")[0]


def follow(number: str) -> list[str]:
    """Returns three shell commands for a job id: they show the state of the job, follow its output and end it."""
    return [f"squeue --job={number}", f"tail -F openmaia-{number}.out", f"scancel {number}"]
