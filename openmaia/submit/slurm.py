"""A run as a job of SLURM: `sbatch` with the size that the config's `job` section names."""

import os
import shlex
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from openmaia.errors import UsageError
from openmaia.schema import Config
from openmaia.submit import checking

PYTHON = "OPENMAIA_PYTHON"
"""Tells the script which Python has this package."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    command: list[str]
    python: str

    def __str__(self) -> str:
        """As a shell would take it."""
        return f"{PYTHON}={shlex.quote(self.python)} {shlex.join(self.command)}"


def prepare(configs: Sequence[Config], sources: Sequence[str], options: Sequence[str]) -> Job:
    """configs: of one sweep or several, which the sources stand for. options: further ones of sbatch; they win over those
    made from the config. Raises UsageError."""
    job = configs[0].job
    if wrong := [option for option in options if not option.startswith("-")]:
        raise UsageError(f"--option={wrong[0]!r}: expected an option of sbatch, such as --option=--partition=gpu")
    checking.room(configs, checking.nodes(job), checking.spoken(job))
    for config in configs:
        checking.absolute(config)
        checking.files(config)
        if PYTHON not in os.environ:
            checking.packages(config)
    asked = [
        "--export=ALL",  # a site's own default may be NONE
        f"--job-name={configs[0].name}",
        f"--nodes={job.nodes}",
        f"--cpus-per-task={job.cpus}",
        f"--mem={job.memory_gb}G",
        f"--time={_minutes(job.hours)}",
        *([f"--gpus-per-node={job.gpus}"] if job.gpus else []),
    ]
    script = checking.folder("slurm") / "openmaia.sbatch"
    command = ["sbatch", "--parsable", *asked, *options, str(script), *sources]
    return Job(command=command, python=os.environ.get(PYTHON) or sys.executable)


def _minutes(hours: float) -> int:
    """sbatch takes a bare number as minutes."""
    return max(round(hours * 60), 1)


def submit(job: Job) -> str:
    """The job's number. Raises UsageError where SLURM does not take it."""
    checking.program("sbatch", "hands jobs to SLURM")
    done = subprocess.run(job.command, env=os.environ | {PYTHON: job.python}, capture_output=True, text=True)
    if done.returncode:
        raise UsageError(f"sbatch did not take the job: {' '.join(done.stderr.split())}")
    return done.stdout.strip().partition(";")[0]


def follow(number: str) -> list[str]:
    return [f"squeue --job={number}", f"tail -F openmaia-{number}.out", f"scancel {number}"]
