"""A run as a job on a Ray cluster that is there, with the working directory as its code and its configs."""

import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from openmaia.config import is_file
from openmaia.errors import UsageError
from openmaia.schema import Config
from openmaia.submit import checking

EXCLUDES = ("/runs/", "/exemplars/*/", "/bench.json", "*.sqsh", "*.sif")
"""Beside what Ray leaves out by itself: .git, .venv, caches, and what .gitignore names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    address: str
    entrypoint: str
    """Goes through a shell on the cluster."""
    runtime_env: dict[str, Any]
    metadata: dict[str, str]

    def __str__(self) -> str:
        said = {"address": self.address, "entrypoint": self.entrypoint, "runtime_env": self.runtime_env}
        return yaml.safe_dump(said, sort_keys=False, allow_unicode=True, width=120)


def prepare(configs: Sequence[Config], sources: Sequence[str], address: str | None) -> Job:
    """configs: of one sweep or several, which the sources stand for. address: of the dashboard; None for what Ray's own
    variables name, or this machine's. Raises UsageError."""
    for config in configs:
        checking.absolute(config)
    folder = Path.cwd().resolve()
    words: list[str] = []
    for source in sources:
        path = Path(source)
        if not is_file(path):
            words.append(source)
        elif path.resolve().is_relative_to(folder):
            words.append(str(path.resolve().relative_to(folder)))
        else:
            raise UsageError(
                f"config {source!r} lies outside of {folder}, which is what the job gets; submit from a folder that holds it"
            )
    return Job(
        address=address or os.environ.get("RAY_API_SERVER_ADDRESS") or "http://127.0.0.1:8265",
        entrypoint=shlex.join(["python", "-m", "ray_jobs.run", *words]),
        runtime_env={"working_dir": str(folder), "excludes": list(EXCLUDES)},
        metadata={"name": configs[0].name},
    )


def submit(job: Job) -> str:
    """The job's id. Raises UsageError where nobody takes it."""
    from openmaia.remote.jobs import submit as hand_over

    return hand_over(job.address, job.entrypoint, job.runtime_env, job.metadata)


def follow(job: Job, number: str) -> list[str]:
    at = f"--address={shlex.quote(job.address)}"
    return [f"ray job logs {at} --follow {number}", f"ray job status {at} {number}", f"ray job stop {at} {number}"]
